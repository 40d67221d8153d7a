"""Queues of an application: a small client of share groups (KIP-932), for any broker that has them.

`queue` is the face. Pure are `asked`, `membership`, `leader_session`, `acknowledgements`,
`held_jobs`, `deliveries`, `letters`, `login`, `values`; around them `worker` and its links do the
I/O. It speaks the protocol only: nothing here knows which broker it talks to.
"""
