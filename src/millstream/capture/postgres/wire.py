"""Messages of the replication protocol and of `pgoutput`, versions 1 and 2. Pure.

Only what is rare is made an object here. Rows are read by code that is made for each table
(row_decoder.py), straight from a message's bytes:

    I  oid(4) 'N' tuple                             insert
    U  oid(4) ['K' tuple | 'O' tuple] 'N' tuple     update; the old key, or the old row
    D  oid(4) 'K' tuple | 'O' tuple                 delete

    tuple    columns(2), and for each: 'n' (null) | 'u' (not changed, not sent) | 't' size(4) text

Inside of a streamed block, the number of the (sub-)transaction stands after the first byte.
"""

import struct
from typing import Final, NamedTuple

from millstream.base.errors import Corrupt
from millstream.capture.table_names import full_name

INSERT: Final = ord("I")
UPDATE: Final = ord("U")
DELETE: Final = ord("D")
TRUNCATE: Final = ord("T")
RELATION: Final = ord("R")
TYPE: Final = ord("Y")
MESSAGE: Final = ord("M")
ORIGIN: Final = ord("O")
BEGIN: Final = ord("B")
COMMIT: Final = ord("C")
STREAM_START: Final = ord("S")
STREAM_STOP: Final = ord("E")
STREAM_COMMIT: Final = ord("c")
STREAM_ABORT: Final = ord("A")

OLD_KEY: Final = ord("K")
OLD_ROW: Final = ord("O")
NEW_ROW: Final = ord("N")

WAL_DATA: Final = ord("w")
KEEPALIVE: Final = ord("k")
# 'w' start_lsn(8) end_lsn(8) sent_at(8), and then the message of pgoutput.
WAL_DATA_HEADER_BYTES: Final = 25
_KEEPALIVE = struct.Struct(">xQQ?")
# 'r' written_lsn flushed_lsn applied_lsn sent_at must_reply
_STATUS = struct.Struct(">cQQQQ?")
_BEGIN = struct.Struct(">xQQI")
_COMMIT = struct.Struct(">xBQQQ")
_STREAM_COMMIT = struct.Struct(">xIBQQQ")
_STREAM_ABORT = struct.Struct(">xII")
_TRUNCATE = struct.Struct(">IB")
_MESSAGE = struct.Struct(">BQ")
_COLUMN = struct.Struct(">Ii")
_SIZE = struct.Struct(">I")
# PostgreSQL's clock starts with the year 2000, ours with 1970.
EPOCH_MICROS: Final = 946_684_800_000_000
IS_TRANSACTIONAL: Final = 1


class BadMessage(Corrupt):
    def __init__(self, what: str, message: bytes) -> None:
        super().__init__(f"PostgreSQL sent {what}: {message[:40]!r}...")


class Keepalive(NamedTuple):
    """All of the log before `end_lsn` has been sent, as far as it is of interest to us."""

    end_lsn: int
    sent_at: int
    must_reply: bool


class Commit(NamedTuple):
    """`end_lsn` is where to go on; `at_us` counts from 1970."""

    commit_lsn: int
    end_lsn: int
    at_us: int

    @property
    def at_ms(self) -> int:
        return self.at_us // 1_000


class RelationColumn(NamedTuple):
    name: str
    type_oid: int
    type_modifier: int
    is_identity: bool


class Relation(NamedTuple):
    """A table as it was when the rows after this message were written.

    `identity` is the table's REPLICA IDENTITY: d(efault), f(ull), i(ndex), n(othing).
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def full_name(self) -> str:
        return full_name(self.schema, self.name)


class LogicalMessage(NamedTuple):
    is_transactional: bool
    prefix: str
    content: bytes


def read_keepalive(data: bytes) -> Keepalive:
    return Keepalive(*_KEEPALIVE.unpack_from(data))


def write_status(
    *, received: int, flushed: int, now_micros: int, must_reply: bool = False
) -> bytes:
    """What we tell the server: it may forget all before `flushed`. Micros count from 2000."""
    return _STATUS.pack(b"r", received, flushed, flushed, now_micros, must_reply)


def read_begin_xid(data: bytes) -> int:
    xid: int = _BEGIN.unpack_from(data)[2]
    return xid


def read_commit(data: bytes) -> Commit:
    _, commit_lsn, end_lsn, at = _COMMIT.unpack_from(data)
    return Commit(commit_lsn, end_lsn, to_epoch_us(at))


def read_stream_commit(data: bytes) -> tuple[int, Commit]:
    xid, _, commit_lsn, end_lsn, at = _STREAM_COMMIT.unpack_from(data)
    return xid, Commit(commit_lsn, end_lsn, to_epoch_us(at))


def read_stream_abort(data: bytes) -> tuple[int, int]:
    """The transaction, and the one inside of it that is rolled back: itself, if it is all of it."""
    xid, sub_xid = _STREAM_ABORT.unpack_from(data)
    return xid, sub_xid


def read_truncate(data: bytes) -> list[bytes]:
    """The oids of the tables, as bytes."""
    count, _ = _TRUNCATE.unpack_from(data, 1)
    first = 1 + _TRUNCATE.size
    return [data[at : at + 4] for at in range(first, first + 4 * count, 4)]


def read_relation(data: bytes) -> Relation:
    (oid,) = _SIZE.unpack_from(data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    identity, count = chr(data[at]), int.from_bytes(data[at + 1 : at + 3])
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _text(data, at + 1)
        type_oid, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, type_oid, modifier, bool(flags & 1)))
    # An empty schema stands for pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def read_message(data: bytes) -> LogicalMessage:
    flags, _ = _MESSAGE.unpack_from(data, 1)
    prefix, at = _text(data, 1 + _MESSAGE.size)
    (size,) = _SIZE.unpack_from(data, at)
    content = data[at + 4 : at + 4 + size]
    if len(content) != size:
        raise BadMessage(f"a message of {len(content)} bytes instead of {size}", data)
    return LogicalMessage(bool(flags & IS_TRANSACTIONAL), prefix, content)


def to_epoch_us(micros: int) -> int:
    return micros + EPOCH_MICROS


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.find(b"\0", at)
    if end < 0:
        raise BadMessage("a text without an end", data)
    return data[at:end].decode(), end + 1
