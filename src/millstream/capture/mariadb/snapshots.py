"""A snapshot of the database, and the set of GTIDs that it sees.

MariaDB tells the place in the binlog that a snapshot belongs to, exactly. MySQL does not: there the
set is taken before the snapshot, so that it has only what the snapshot sees for sure, and once more
after it, so that nothing which the snapshot may see comes later.
"""

from dataclasses import dataclass

from millstream.capture.mariadb.connection import Session
from millstream.capture.mariadb.gtids import Gtids, MariadbGtids, MysqlGtids

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
