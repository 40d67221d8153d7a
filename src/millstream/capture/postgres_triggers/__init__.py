"""PostgreSQL, captured by triggers, where logical replication is not to be had.

Triggers write what changed into a table beside the captured ones; the source looks there for what
has become visible since it looked last. A snapshot is a position: `position.py` says how they are
ordered, `change_log.py` reads what lies between two of them, `statements.py` has the tables and the
triggers. Values, types and rows are those of capture/postgres/.

Does not see: tables that are written to by a subscription, and writers that switch triggers off
where the login does not own the table. docs/formats/capture_triggers.md has what holds.
"""
