"""Queues: share groups (KIP-932), where a record is handed to one member, and then is done or not.

Everything in this folder is pure: calls take values and `now_ms`, and return values. The shell
around it owns the clock, the connections, the reads and the disk; what it must store is named by
each part, and docs/decisions/0011-share-groups.md says in which order. Three parts that do not
know one another: `share_partition.py` (who has which record), `share_sessions.py` (which
partitions a member fetches from) and `share_group.py` (who is in the group, and reads what).
"""
