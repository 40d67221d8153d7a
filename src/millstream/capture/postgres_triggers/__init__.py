"""PostgreSQL, captured by triggers, where logical replication is not to be had.

Triggers write what changed into a table beside the captured ones; the source looks there for what
has become visible since it looked last. A snapshot is a position: `position.py` says how they are
ordered, `change_log.py` reads what lies between two of them, `statements.py` has the tables and the
triggers. Values, types and rows are those of capture/postgres/.

Does not see: writers that switch triggers off (session_replication_role), and tables that are
written to by a subscription. docs/formats/capture_triggers.md has the tables, and what holds.
"""
