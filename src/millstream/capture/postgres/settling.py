"""Waits for transactions that neither the stream nor a snapshot would show to a load.

Two kinds: commits that are in the log and wait for a synchronous standby, so that no query sees
them; and transactions that wrote to a table before it was published, which the stream leaves out
even if they commit later. Nobody is blocked meanwhile.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from millstream.capture.postgres.catalogue import Catalogue

PAUSE_SECONDS: Final = 0.05
# What other logins wait for is told to those who may read all statistics.
_HAS_STANDBYS: Final = """
SELECT current_setting('synchronous_standby_names') <> '',
       pg_has_role('pg_read_all_stats', 'USAGE')
"""
_WAITING_COMMITS: Final = """
SELECT pid, xact_start FROM pg_stat_activity WHERE wait_event = 'SyncRep'
"""
_RUNNING: Final = "SELECT pg_snapshot_xip(pg_current_snapshot())::text"
_WRITERS: Final = """
SELECT l.virtualtransaction FROM pg_locks l JOIN pg_database d ON d.oid = l.database
 WHERE l.locktype = 'relation' AND l.granted AND d.datname = current_database()
   AND (l.relation = %s OR l.relation IN (SELECT relid FROM pg_partition_tree(%s)))
   AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock',
                  'AccessExclusiveLock')
"""

Asked = set[tuple[Any, ...]]


def await_commits(catalogue: Catalogue, is_over: Callable[[], bool]) -> None:
    """Until all that wait for a standby now are seen. Who may not know which these are waits for
    everything that runs."""
    ((has_standbys, may_know),) = catalogue.ask(_HAS_STANDBYS)
    if has_standbys:
        query = _WAITING_COMMITS if may_know else _RUNNING
        _await_end(lambda: {*catalogue.ask(query)}, is_over)


def await_writers(catalogue: Catalogue, oid: int, is_over: Callable[[], bool]) -> None:
    """Until all transactions that have written to this table, and have not ended, have."""
    _await_end(lambda: {*catalogue.ask(_WRITERS, [oid, oid])}, is_over)


def _await_end(ask: Callable[[], Asked], is_over: Callable[[], bool]) -> None:
    """Of those that are there now; others may come."""
    left = ask()
    while left and not is_over():
        time.sleep(PAUSE_SECONDS)
        left &= ask()
