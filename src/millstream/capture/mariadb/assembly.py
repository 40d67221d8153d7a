"""Events of the binlog, put together to transactions. Does no I/O but for the spool of large ones.

A transaction is a group: a GTID, descriptions of tables and rows, and its end (XID or COMMIT). One
that ends in ROLLBACK is forgotten. Between XA PREPARE and XA COMMIT other groups come: what was
prepared is held here, and the position stays before it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.capture.change import CapturedTable, Transaction
from millstream.capture.mariadb import binlog_event as events
from millstream.capture.mariadb.alterations import Alteration, alteration_of
from millstream.capture.mariadb.binlog_event import GroupStart
from millstream.capture.mariadb.groups import Group, TableShape
from millstream.capture.mariadb.gtids import Gtids, Position
from millstream.capture.mariadb.statements import (
    Mark,
    TableName,
    defined,
    emptied,
    first_word,
    mark_of,
    mentioned,
    plain,
    savepoint_rolled_back_to,
    savepoint_set,
    xa_name,
    xa_step,
)
from millstream.capture.mariadb.table_map import table_names
from millstream.capture.source import SourceLost

# Statements that change rows, when somebody's session does not log rows.
CHANGES_BY_STATEMENT: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH"})


class BinlogIncomplete(SourceLost):
    def __init__(self, position: str, what: str) -> None:
        super().__init__(
            f"after {position} the binlog has {what}. Once that is mended, `millstream capture "
            "reload NAME` begins behind it, and loads all tables anew"
        )


@dataclass(frozen=True, slots=True)
class Shapes:
    """What the assembly asks about tables."""

    of_map: Callable[[bytes], TableShape]  # of the body of a TABLE_MAP of a captured table
    current: Callable[[TableName], CapturedTable | None]  # as it was last, also if it is gone
    must_reload: Callable[[TableName, Alteration], bool]  # after its definition changed
    is_there: Callable[[TableName], bool]  # now
    folds_case: bool = False  # TRUNCATE ORDERS is of orders, by the server's settings


@dataclass(slots=True)
class _Open:
    """The group that is being read."""

    start: GroupStart
    at_s: int
    group: Group
    savepoints: dict[str, int]
    is_alone: bool  # ends with its first statement; else rows may follow it (CREATE ... SELECT)


class Assembly:
    """One stream's state. `tables` may grow while it runs."""

    def __init__(
        self, start: Position, tables: set[TableName], shapes: Shapes, *, has_checksums: bool
    ) -> None:
        self.done: Gtids = start.done
        self.file, self.offset = "", 0
        self._handed_over: Gtids | None = start.done if start.read_from != start.done else None
        self._read: Gtids = start.read_from
        self._tables, self._shapes = tables, shapes
        self._has_checksum = has_checksums  # of what comes before a file describes itself
        self._open: _Open | None = None
        self._by_map: dict[bytes, TableShape | None] = {}
        self._by_id: dict[int, TableShape | None] = {}
        self._prepared: dict[str, tuple[Gtids, Group]] = {}  # with what was read before it

    @property
    def resume(self) -> str:
        for before, _ in self._prepared.values():  # the oldest one
            return str(Position(self.done, before))
        return str(self.done)

    def add_tables(self, names: Sequence[TableName]) -> None:
        """From here on. Of a transaction that is half read, who knows what was passed over."""
        self._tables.update(names)
        self._by_map.clear()
        if self._open is not None:
            for name in names:
                self._open.group.reload(str(name))

    def close(self) -> None:
        if self._open is not None:
            self._open.group.close()
        for _, group in self._prepared.values():
            group.close()

    def take(self, packet: bytes) -> Transaction | None:
        """One event; the transaction that ends with it, if it touched a captured table."""
        kind = packet[5]
        if kind == events.FORMAT_DESCRIPTION:
            self._has_checksum = events.describes_checksums(packet)
            return None
        handle = HANDLERS.get(kind)
        if handle is None:
            self.offset = events.end_of(packet) or self.offset
            return None
        event = events.read_event(packet, has_checksum=self._has_checksum)
        self.offset = event.end or self.offset
        return handle(self, event)

    def rotate(self, event: events.Event) -> None:
        self.file = events.rotated_to(event.body)

    def begin_mariadb(self, event: events.Event) -> None:
        self._begin(events.read_mariadb_gtid(event.body, event.server_id), event.at_s)

    def begin_mysql(self, event: events.Event) -> None:
        self._begin(events.read_mysql_gtid(event.body), event.at_s)

    def _begin(self, start: GroupStart, at_s: int) -> None:
        self._open = _Open(start, at_s, Group(), {}, start.is_standalone)

    def anonymous(self, event: events.Event) -> None:
        raise BinlogIncomplete(self.resume, "a transaction without a GTID: set gtid_mode = ON")

    def incident(self, event: events.Event) -> None:
        raise BinlogIncomplete(self.resume, "a gap: the server could not write all changes")

    def unreadable(self, event: events.Event) -> None:
        raise BinlogIncomplete(
            self.resume,
            f"events of type {event.type}: set binlog_transaction_compression = OFF "
            "and binlog_row_value_options = ''",
        )

    def table(self, event: events.Event) -> None:
        body = event.body
        description = body[6:]
        try:
            shape = self._by_map[description]
        except KeyError:
            is_captured = TableName(*table_names(body)) in self._tables
            shape = self._shapes.of_map(body) if is_captured else None
            self._by_map[description] = shape
        self._by_id[events.table_id(body)] = shape

    def rows(self, event: events.Event) -> None:
        shape = self._by_id.get(events.table_id(event.body))
        if shape is None or self._open is None:
            return
        if events.has_every_column(event.type, event.body):
            self._open.group.add(shape, event.type, event.body)
        else:  # of a session with another binlog_row_image
            self._open.group.reload(shape.table.name)

    def commit(self, event: events.Event) -> Transaction | None:
        return self._end(event.at_s)

    def prepare(self, event: events.Event) -> Transaction | None:
        if event.body[0]:  # XA COMMIT ... ONE PHASE
            return self._end(event.at_s)
        assert self._open is not None
        self._prepared[xa_name(event.body)] = (self._read, self._open.group)
        self._finish(self._open.start.gtid)
        return None

    def query(self, event: events.Event) -> Transaction | None:
        database, statement = events.read_query(event.type, event.body)
        match mark_of(statement):
            case Mark.BEGIN:
                if self._open is not None:
                    self._open.is_alone = False
                return None
            case Mark.COMMIT:
                return self._end(event.at_s)
            case Mark.ROLLBACK:
                self._roll_back()
                return None
        if self._open is None:
            return None
        if step := xa_step(statement):
            return self._xa(*step, event.at_s)
        if self._savepoint(self._open, statement):
            return None
        self._statement(self._open.group, database, statement)
        return self._end(event.at_s) if self._open.is_alone else None

    def _savepoint(self, opened: _Open, statement: str) -> bool:
        if name := savepoint_set(statement):
            opened.savepoints[name] = opened.group.mark()
            return True
        if name := savepoint_rolled_back_to(statement):
            opened.group.truncate_to(opened.savepoints.get(name, 0))
            return True
        return False

    def _statement(self, group: Group, database: str, statement: str) -> None:
        folds_case = self._shapes.folds_case
        for name in emptied(statement, database, self._tables, folds_case=folds_case):
            self._empty(group, name)
        if first_word(statement) in CHANGES_BY_STATEMENT:
            for name in mentioned(plain(statement), database, self._tables):
                self._reload(group, name)
        altered = defined(statement, database, self._tables, folds_case=folds_case)
        for name in altered:
            if self._shapes.must_reload(name, alteration_of(plain(statement))):
                self._reload(group, name)

    def _empty(self, group: Group, name: TableName) -> None:
        table = self._shapes.current(name)
        if table is not None and table not in group.truncated:
            group.truncated.append(table)

    def _reload(self, group: Group, name: TableName) -> None:
        """A table that has got another name, or is gone since, has no rows to be loaded."""
        if self._shapes.is_there(name):
            group.reload(str(name))
        else:
            self._empty(group, name)

    def _xa(self, step: str, name: str, at_s: int) -> Transaction | None:
        if step not in ("COMMIT", "ROLLBACK"):  # START, END: marks inside of the group
            return None
        assert self._open is not None
        _, prepared = self._prepared.pop(name, (None, None))
        if step == "ROLLBACK":
            if prepared is not None:
                prepared.close()
            self._roll_back()
            return None
        if prepared is not None:
            self._open.group = prepared
        else:  # it was prepared before this capture began: nobody knows what it did
            for table in self._tables:
                self._open.group.reload(str(table))
        return self._end(at_s)

    def _roll_back(self) -> None:
        if self._open is not None:
            self._open.group.close()
            self._finish(self._open.start.gtid)

    def _end(self, at_s: int) -> Transaction | None:
        """The group is committed."""
        opened = self._open
        if opened is None:
            return None
        gtid, group = opened.start.gtid, opened.group
        is_new = self._handed_over is None or gtid not in self._handed_over
        self._finish(gtid)
        if group.is_empty or not is_new:
            group.close()
            return None
        return Transaction(
            commit=gtid,
            resume=self.resume,
            id=gtid,
            at_ms=at_s * 1000,
            changes=group.changes(),
            reloads=tuple(group.reloads),
        )

    def _finish(self, gtid: str) -> None:
        self._open = None
        self._read = self._read.with_gtid(gtid)
        if self._handed_over is None:
            self.done = self._read
        elif gtid not in self._handed_over:
            self.done = self.done.with_gtid(gtid)


HANDLERS: Final[Mapping[int, Callable[[Assembly, events.Event], Transaction | None]]] = {
    events.ROTATE: Assembly.rotate,
    events.MARIADB_GTID: Assembly.begin_mariadb,
    events.MYSQL_GTID: Assembly.begin_mysql,
    events.ANONYMOUS_GTID: Assembly.anonymous,
    events.INCIDENT: Assembly.incident,
    events.PARTIAL_UPDATE_ROWS: Assembly.unreadable,
    events.TRANSACTION_PAYLOAD: Assembly.unreadable,
    events.MYSQL_TAGGED_GTID: Assembly.unreadable,
    events.TABLE_MAP: Assembly.table,
    **dict.fromkeys(events.ROWS, Assembly.rows),
    events.XID: Assembly.commit,
    events.XA_PREPARE: Assembly.prepare,
    events.QUERY: Assembly.query,
    events.QUERY_COMPRESSED: Assembly.query,
    events.EXECUTE_LOAD_QUERY: Assembly.query,
}
