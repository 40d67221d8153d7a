"""The rows that are there: chunks of a table, each read in a snapshot of its own. Thread-safe.

Tables of engines without transactions (MyISAM, Aria) have no snapshot: there a chunk is read as the
table is at that moment, and what is written meanwhile comes by the binlog once more.
"""

import json
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import pymysql

from millstream.capture.change import CapturedTable, Transaction
from millstream.capture.mariadb.binlog_dump import ERROR
from millstream.capture.mariadb.catalogue import Catalogue, CatalogueColumn, CatalogueTable
from millstream.capture.mariadb.column_type import INTEGERS
from millstream.capture.mariadb.connection import (
    READ_WITHIN_S,
    Address,
    Session,
    TableChanged,
    translated,
)
from millstream.capture.mariadb.gtids import Gtids
from millstream.capture.mariadb.packets import Packets
from millstream.capture.mariadb.select_rows import (
    KeyBounds,
    answer_parts,
    answer_reader,
    quoted_name,
    select_list,
    table_text,
)
from millstream.capture.mariadb.snapshots import await_commits, begin_snapshot, is_mariadb
from millstream.capture.mariadb.statements import TableName
from millstream.capture.source import SourceInterrupted
from millstream.capture.table_names import split_name

QUERY_COMMAND: Final = b"\x03"
END: Final = 0xFE
END_BYTES_MAX: Final = 8  # a row that begins with the same byte is longer
TRIES_MAX: Final = 20  # of a chunk whose table is altered again and again
ESTIMATE: Final = """
    SELECT table_rows FROM information_schema.tables
    WHERE table_schema = %s AND table_name = %s"""


@dataclass(frozen=True, slots=True, eq=False)
class MariadbChunk:
    table: CapturedTable
    rows: Sequence[tuple[bytes, bytes]]
    last_key: str | None
    closes_at: str
    sure: Gtids

    def sees(self, transaction: Transaction) -> bool:
        return transaction.commit in self.sure


class MariadbLoader:
    """`version_of` gives a table its number; it is called from any thread."""

    def __init__(
        self, address: Address, version_of: Callable[[CatalogueTable], CapturedTable]
    ) -> None:
        self._address, self._version_of = address, version_of
        self._idle: list[Session] = []
        self._lock = threading.Lock()
        self._is_mariadb: bool | None = None

    def rows_estimate(self, table: CapturedTable) -> int:
        name = table_name(table)
        with self._session() as session:
            found = session.rows(ESTIMATE, name.database, name.table)
        return int(found[0][0] or 0) if found else 0

    def ranges(self, table: CapturedTable, count: int) -> list[tuple[str | None, str | None]]:
        with self._session() as session:
            found = _described(session, table)
            keys = _keys_between(session, found, count) if found.key and count > 1 else []
        bounds = [None, *keys, None]
        return list(pairwise(bounds))

    def read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> MariadbChunk:
        for _ in range(TRIES_MAX - 1):
            try:
                return self._read(table, after, until, rows_max)
            except TableChanged:
                continue
        return self._read(table, after, until, rows_max)

    def _read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> MariadbChunk:
        with self._session() as session:
            seen = begin_snapshot(session, of_mariadb=self._of_mariadb(session))
            try:
                found = _described(session, table)
                packets = _select(session, found, after, until, rows_max)
            finally:
                session.rows("ROLLBACK")
        read = answer_reader(found)
        is_last = not found.key or len(packets) < rows_max
        return MariadbChunk(
            table=self._version_of(found),
            rows=[read(packet) for packet in packets],
            last_key=None if is_last else KeyBounds(found).of_answer(packets[-1]),
            closes_at=str(seen.possible),
            sure=seen.sure,
        )

    def settle(self, is_over: Callable[[], bool]) -> None:
        with self._session() as session:
            await_commits(session, is_over, of_mariadb=self._of_mariadb(session))

    def settle_table(self, table: CapturedTable, is_over: Callable[[], bool]) -> None:
        """The binlog has every table: none is captured from the middle of a transaction on."""

    def _of_mariadb(self, session: Session) -> bool:
        if self._is_mariadb is None:
            self._is_mariadb = is_mariadb(session)
        return self._is_mariadb

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with self._lock:
            session = self._idle.pop() if self._idle else Session(self._address)
        try:
            yield session
        except BaseException:
            session.close()
            raise
        with self._lock:
            self._idle.append(session)

    def close(self) -> None:
        with self._lock:
            for session in self._idle:
                session.close()
            self._idle.clear()


def table_name(table: CapturedTable) -> TableName:
    return TableName(*split_name(table.name))


def _described(session: Session, table: CapturedTable) -> CatalogueTable:
    found = Catalogue(session).table(table_name(table))
    if found is None:
        raise TableChanged(f"the table {table.name} is not there")
    return found


def _select(
    session: Session, table: CatalogueTable, after: str | None, until: str | None, rows_max: int
) -> list[bytes]:
    statement = f"SELECT {select_list(table.columns)} FROM {table_text(table)}"
    if table.key:
        order = ", ".join(quoted_name(name) for name in table.key)
        condition = KeyBounds(table).condition(after, until)
        statement += f" WHERE {condition} ORDER BY {order} LIMIT {rows_max}"
    with translated(session.address.capture):
        return list(answered_rows(session, statement))


def answered_rows(session: Session, statement: str) -> Iterator[bytes]:
    """The rows of an answer as packets: the driver would make objects of them, one by one."""
    connection: Any = session.connection
    command = QUERY_COMMAND + statement.encode()
    connection._sock.sendall(struct.pack("<I", len(command)) + command)  # a packet, number 0
    packets = Packets(connection._sock)
    columns = _packet(packets, connection)[0]
    for _ in range(columns + 1):  # their descriptions, and the end of these
        _packet(packets, connection)
    while True:
        packet = _packet(packets, connection)
        if packet[0] == END and len(packet) <= END_BYTES_MAX:
            return
        yield packet


def _packet(packets: Packets, connection: Any) -> bytes:
    while (packet := packets.take()) is None:
        if not packets.receive(READ_WITHIN_S):
            raise SourceInterrupted(f"the database did not answer within {READ_WITHIN_S} s")
    if packet[0] == ERROR:
        code, message = int.from_bytes(packet[1:3], "little"), packet[9:].decode("utf-8", "replace")
        raise pymysql.err.OperationalError(code, message)
    return packet


def _keys_between(session: Session, table: CatalogueTable, count: int) -> list[str]:
    """Up to `count` - 1 keys that cut the table into parts."""
    by_name = {column.name: column for column in table.columns}
    key = [by_name[name] for name in table.key]
    if len(key) == 1 and key[0].type.word in INTEGERS:
        return _numbers_between(session, table, count)
    return _rows_between(session, table, key, count)


def _numbers_between(session: Session, table: CatalogueTable, count: int) -> list[str]:
    """Of the same distance: the ends of an index are there without reading the rest."""
    name = quoted_name(table.key[0])
    ends = session.rows(f"SELECT MIN({name}), MAX({name}) FROM {table_text(table)}")
    first, last = ends[0]
    if first is None:
        return []
    found = {first + (last - first) * number // count for number in range(1, count)}
    return [json.dumps([str(key)]) for key in sorted(found - {last})]


def _rows_between(
    session: Session, table: CatalogueTable, key: Sequence[CatalogueColumn], count: int
) -> list[str]:
    """Of as many rows: costs a walk over the index for each."""
    (rows,) = session.rows(f"SELECT COUNT(*) FROM {table_text(table)}")[0]
    order = ", ".join(quoted_name(name) for name in table.key)
    statement = f"SELECT {select_list(key)} FROM {table_text(table)} ORDER BY {order}"
    found = []
    for number in range(1, count if rows >= count else 1):
        one = f"{statement} LIMIT 1 OFFSET {rows // count * number}"
        with translated(session.address.capture):
            found += [answer_parts(packet) for packet in answered_rows(session, one)]
    return [KeyBounds(table).text([part or b"" for part in parts]) for parts in found]
