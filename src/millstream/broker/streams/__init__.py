"""Streams groups (KIP-1071): instances of a Kafka Streams application, which get tasks, not topics.

Everything in this folder is pure: calls take values and `now_ms`, and return values. The shell is
`group_coordinator.py`, as for consumer groups. `streams_group.py` hears the members,
`streams_book.py` knows who has what, `internal_topics.py` says which topics are missing, and
`sticky_tasks.py` who shall have which task.
"""
