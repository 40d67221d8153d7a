"""A snapshot of the database, and the set of GTIDs that it sees.

MariaDB tells the place in the binlog that a snapshot belongs to, exactly. MySQL does not: there the
set is taken before the snapshot, so that it has only what the snapshot sees for sure, and once more
after it, so that nothing which the snapshot may see comes later.

A transaction is in the binlog, and may be read there, before any snapshot sees it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millstream.capture.mariadb.connection import Session
from millstream.capture.mariadb.gtids import Gtids, MariadbGtids, MysqlGtids

AWAIT_SECONDS: Final = 0.01
SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"


@dataclass(frozen=True, slots=True)
class SeenGtids:
    """`sure`: seen for certain. `possible`: all that can have been seen."""

    sure: Gtids
    possible: Gtids


def is_mariadb(session: Session) -> bool:
    ((version,),) = session.rows("SELECT VERSION()")
    return "mariadb" in str(version).lower()


def begin_snapshot(session: Session, *, of_mariadb: bool) -> SeenGtids:
    """Opens a transaction: the caller ends it."""
    if of_mariadb:
        session.rows(SNAPSHOT)
        seen = _mariadb_snapshot(session)
        return SeenGtids(seen, seen)
    before = _mysql_executed(session)
    session.rows(SNAPSHOT)
    return SeenGtids(before, _mysql_executed(session))


def _mariadb_snapshot(session: Session) -> MariadbGtids:
    found = dict(session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'"))
    file, offset = found["Binlog_snapshot_file"], int(found["Binlog_snapshot_position"])
    ((gtids,),) = session.rows("SELECT BINLOG_GTID_POS(%s, %s)", file, offset)
    return MariadbGtids.parse(gtids or "")


def _mysql_executed(session: Session) -> MysqlGtids:
    ((gtids,),) = session.rows("SELECT @@GLOBAL.gtid_executed")
    return MysqlGtids.parse(gtids)


def await_commits(session: Session, is_over: Callable[[], bool], *, of_mariadb: bool) -> None:
    """Until new snapshots see all that is in the binlog now."""
    is_seen = _mariadb_commits(session) if of_mariadb else _mysql_commits(session)
    while not is_seen() and not is_over():
        time.sleep(AWAIT_SECONDS)


def _mariadb_commits(session: Session) -> Callable[[], bool]:
    ((written,),) = session.rows("SELECT @@GLOBAL.gtid_binlog_pos")
    until = MariadbGtids.parse(written)

    def is_seen() -> bool:
        session.rows(SNAPSHOT)
        try:
            return _mariadb_snapshot(session).covers(until)
        finally:
            session.rows("ROLLBACK")

    return is_seen


def _mysql_commits(session: Session) -> Callable[[], bool]:
    """A transaction owns its GTID until its commit is over."""

    def owned() -> set[str]:
        ((found,),) = session.rows("SELECT @@GLOBAL.gtid_owned")
        return {part for part in str(found).replace("\n", "").split(",") if part}

    at_first = owned()
    return lambda: not at_first & owned()
