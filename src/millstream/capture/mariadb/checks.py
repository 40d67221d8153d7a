"""What a server lacks before it can be captured, and what mends it. Changes nothing."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.capture.mariadb.connection import Session, StatementRefused
from millstream.capture.mariadb.select_rows import quoted_name
from millstream.capture.mariadb.snapshots import is_mariadb
from millstream.capture.mariadb.statements import TableName
from millstream.capture.source import Finding

DAY_S: Final = 86_400
FILE: Final = "in the server's configuration file, then restart it"
FOR_EVER: Final = "-- and in the server's configuration file; open sessions keep what they had"
GRANT: Final = re.compile(r"GRANT (.+) ON (\S+) TO ", re.IGNORECASE)
TABLE: Final = """
    SELECT engine, table_type FROM information_schema.tables
    WHERE table_schema = %s AND table_name = %s"""
HAS_KEY: Final = """
    SELECT 1 FROM information_schema.statistics
    WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' LIMIT 1"""
CASCADES: Final = """
    SELECT constraint_name FROM information_schema.referential_constraints
    WHERE constraint_schema = %s AND table_name = %s
    AND (delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT')
         OR update_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))"""
TRANSACTIONAL: Final = ("INNODB", "ROCKSDB")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A setting, the value that it must have, and how it gets it."""

    name: str
    value: str
    why: str
    mend: str = ""

    def finding(self, found: str) -> Finding:
        value = self.value or "''"
        return Finding(
            what=f"{self.name} is {found or 'empty'}, not {value}: {self.why}",
            mend=self.mend or f"SET GLOBAL {self.name} = {value}; {FOR_EVER}",
        )


EVERY_SERVER: Final = (
    Wanted("log_bin", "ON", "there is no binlog to read", f"log_bin = ON {FILE}"),
    Wanted("binlog_format", "ROW", "statements cannot be captured, rows can"),
    Wanted("binlog_row_image", "FULL", "rows would come without some of their columns"),
    Wanted("binlog_row_metadata", "FULL", "the names of columns would not be known"),
)
MYSQL: Final = (
    Wanted("gtid_mode", "ON", "transactions have no names", f"gtid_mode = ON {FILE}"),
    Wanted("binlog_transaction_compression", "OFF", "compressed transactions are not read"),
    Wanted("binlog_row_value_options", "", "parts of JSON values are not read"),
)


def findings(session: Session, tables: Sequence[TableName]) -> list[Finding]:
    of_mariadb = is_mariadb(session)
    wanted = EVERY_SERVER if of_mariadb else EVERY_SERVER + MYSQL
    names = [want.name for want in wanted]
    settings = session.variables(*names, "server_id", "sync_binlog", "binlog_expire_logs_seconds")
    return [
        *_settings(wanted, settings),
        *_server(settings),
        *_privileges(session, tables, of_mariadb=of_mariadb),
        *(finding for table in tables for finding in _table(session, table)),
    ]


def _settings(wanted: Iterable[Wanted], settings: Mapping[str, str]) -> Iterator[Finding]:
    for want in wanted:
        found = settings.get(want.name)
        if found is not None and found.upper() != want.value:
            yield want.finding(found)


def _server(settings: Mapping[str, str]) -> Iterator[Finding]:
    if settings.get("server_id") == "0":
        yield Finding(
            what="server_id is 0: nobody may read the binlog", mend=f"server_id = 1 {FILE}"
        )
    if settings.get("sync_binlog", "1") != "1":
        yield Finding(
            what=f"sync_binlog is {settings['sync_binlog']}: after a power cut the server may have "
            "forgotten transactions that were captured, and then the capture is lost",
            mend=f"SET GLOBAL sync_binlog = 1; {FOR_EVER}",
            is_fatal=False,
        )
    kept_s = int(float(settings.get("binlog_expire_logs_seconds") or 0))
    if 0 < kept_s < DAY_S:
        yield Finding(
            what=f"the binlog is kept for {kept_s} s only: a capture that rests for longer is lost",
            mend=f"SET GLOBAL binlog_expire_logs_seconds = {7 * DAY_S}",
            is_fatal=False,
        )


def _privileges(
    session: Session, tables: Sequence[TableName], *, of_mariadb: bool
) -> Iterator[Finding]:
    ((user,),) = session.rows("SELECT CURRENT_USER()")
    account = "@".join(f"'{part}'" for part in str(user).rpartition("@")[::2])
    grants = [grant for (grant,) in session.rows("SHOW GRANTS")]
    everywhere = _granted_everywhere(grants)
    monitor = "BINLOG MONITOR" if of_mariadb else "REPLICATION CLIENT"
    for privilege in ("REPLICATION SLAVE", monitor):
        if not everywhere & {privilege, "ALL PRIVILEGES", *ALSO_KNOWN_AS.get(privilege, ())}:
            yield Finding(
                what=f"{user} may not read the binlog: it lacks {privilege}",
                mend=f"GRANT {privilege} ON *.* TO {account}",
            )
    for table in tables:
        if _exists(session, table) and not _may_select(session, table):
            yield Finding(
                what=f"{user} may not read {table}",
                mend=f"GRANT SELECT ON {quoted_name(table.database)}.* TO {account}",
            )


# One privilege has had several names.
ALSO_KNOWN_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "REPLICATION SLAVE": ("REPLICATION REPLICA",),
    "BINLOG MONITOR": ("REPLICATION CLIENT", "SUPER"),
    "REPLICATION CLIENT": ("SUPER",),
}


def _granted_everywhere(grants: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for grant in grants:
        matched = GRANT.match(grant)
        if matched and matched[2] == "*.*":
            found |= {privilege.strip().upper() for privilege in matched[1].split(",")}
    return found


def _exists(session: Session, table: TableName) -> bool:
    return bool(session.rows(TABLE, table.database, table.table))


def _may_select(session: Session, table: TableName) -> bool:
    """The catalogue shows only columns on which the user has some privilege: so ask the table."""
    try:
        session.rows(f"SELECT * FROM {_quoted(table)} LIMIT 0")
    except StatementRefused:
        return False
    return True


def _quoted(table: TableName) -> str:
    return f"{quoted_name(table.database)}.{quoted_name(table.table)}"


def _table(session: Session, table: TableName) -> Iterator[Finding]:
    found = session.rows(TABLE, table.database, table.table)
    if not found:
        yield Finding(
            what=f"there is no table {table}, or it may not be seen",
            mend="name a table that is there, or grant SELECT on it",
        )
        return
    engine, kind = found[0]
    if kind == "VIEW":
        yield Finding(what=f"{table} is a view: it has no rows of its own", mend="name its tables")
        return
    if kind == "SYSTEM VERSIONED":
        yield Finding(
            what=f"{table} is system-versioned: its history comes as rows of their own",
            mend=f"ALTER TABLE {_quoted(table)} DROP SYSTEM VERSIONING",
            is_fatal=False,
        )
    if str(engine).upper() not in TRANSACTIONAL:
        yield Finding(
            what=f"{table} is of the engine {engine}, without transactions: its initial load is no "
            "snapshot, and what a crash cuts off is not undone",
            mend=f"ALTER TABLE {_quoted(table)} ENGINE = InnoDB",
            is_fatal=False,
        )
    yield from _rows_unseen(session, table)


def _rows_unseen(session: Session, table: TableName) -> Iterator[Finding]:
    if not session.rows(HAS_KEY, table.database, table.table):
        yield Finding(
            what=f"{table} has no primary key: its changes have no key, its topic is not compacted",
            mend=f"ALTER TABLE {_quoted(table)} ADD PRIMARY KEY (...)",
            is_fatal=False,
        )
    for (constraint,) in session.rows(CASCADES, table.database, table.table):
        yield Finding(
            what=f"{constraint} changes rows of {table} when others change, and the binlog does "
            "not tell",
            mend=f"ALTER TABLE {_quoted(table)} DROP FOREIGN KEY {quoted_name(constraint)}; "
            "-- then let the application change those rows",
            is_fatal=False,
        )
