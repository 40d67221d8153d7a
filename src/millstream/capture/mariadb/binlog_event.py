"""Events of the binlog, as far as a capture reads them. Pure.

Each packet is one event, after a byte that says that all is well:

    timestamp  uint32   seconds since 1970
    type       uint8
    server_id  uint32
    size       uint32   with this header
    end        uint32   where the next one begins in its file; 0: it is made for this reader only
    flags      uint16
    body
    checksum   uint32   CRC-32 of all above, unless the file has none
"""

import struct
import uuid
import zlib
from typing import Final, NamedTuple

from millstream.base.errors import Corrupt
from millstream.capture.mariadb.table_map import lenenc

HEADER: Final = struct.Struct("<IBIIIH")
HEADER_BYTES: Final = 19

QUERY, ROTATE, FORMAT_DESCRIPTION, XID = 2, 4, 15, 16
TABLE_MAP, WRITE_ROWS_V1, UPDATE_ROWS_V1, DELETE_ROWS_V1 = 19, 23, 24, 25
INCIDENT, HEARTBEAT = 26, 27
WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 30, 31, 32
MYSQL_GTID, ANONYMOUS_GTID, XA_PREPARE = 33, 34, 38
PARTIAL_UPDATE_ROWS, TRANSACTION_PAYLOAD, HEARTBEAT_V2, MYSQL_TAGGED_GTID = 39, 40, 41, 42
EXECUTE_LOAD_QUERY, LOAD_BYTES = 18, 13  # what it has more than a QUERY, about its file
MARIADB_GTID = 162
QUERY_COMPRESSED = 165
WRITE_ROWS_COMPRESSED, UPDATE_ROWS_COMPRESSED, DELETE_ROWS_COMPRESSED = 166, 167, 168

WRITES: Final = frozenset({WRITE_ROWS_V1, WRITE_ROWS, WRITE_ROWS_COMPRESSED})
UPDATES: Final = frozenset({UPDATE_ROWS_V1, UPDATE_ROWS, UPDATE_ROWS_COMPRESSED})
DELETES: Final = frozenset({DELETE_ROWS_V1, DELETE_ROWS, DELETE_ROWS_COMPRESSED})
ROWS: Final = WRITES | UPDATES | DELETES
WITH_EXTRA: Final = frozenset({WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS})
COMPRESSED: Final = frozenset(
    {WRITE_ROWS_COMPRESSED, UPDATE_ROWS_COMPRESSED, DELETE_ROWS_COMPRESSED}
)

# Flags of a GTID of MariaDB.
STANDALONE, GROUP_COMMIT, TRANSACTIONAL, DDL = 1, 2, 4, 32
PREPARED_XA, COMPLETED_XA = 64, 128

CHECKSUM_BYTES: Final = 4


class DamagedEvent(Corrupt):
    """Bytes of the binlog that changed on their way."""


class Event(NamedTuple):
    type: int
    at_s: int
    server_id: int
    end: int
    body: bytes


def read_event(packet: bytes, *, has_checksum: bool) -> Event:
    at_s, kind, server_id, size, end, _ = HEADER.unpack_from(packet, 1)
    if size != len(packet) - 1:
        raise DamagedEvent(f"an event of {size} bytes in the binlog came as {len(packet) - 1}")
    if not has_checksum:
        return Event(kind, at_s, server_id, end, packet[1 + HEADER_BYTES :])
    body_end = len(packet) - CHECKSUM_BYTES
    found = int.from_bytes(packet[body_end:], "little")
    if zlib.crc32(packet[1:body_end]) != found:
        raise DamagedEvent(f"the event before {end} in the binlog has a wrong checksum")
    return Event(kind, at_s, server_id, end, packet[1 + HEADER_BYTES : body_end])


def end_of(packet: bytes) -> int:
    """Where the next event begins, and nothing else of it."""
    return int.from_bytes(packet[14:18], "little")


def describes_checksums(packet: bytes) -> bool:
    """Of a FORMAT_DESCRIPTION: its last byte before its own checksum tells the algorithm."""
    return packet[-CHECKSUM_BYTES - 1] == 1


def rotated_to(body: bytes) -> str:
    """The file that goes on."""
    return body[8:].decode()


class GroupStart(NamedTuple):
    """`is_standalone`: one statement follows, and no end. MySQL says so by not saying BEGIN."""

    gtid: str
    is_standalone: bool = False
    is_prepare: bool = False


def read_mariadb_gtid(body: bytes, server_id: int) -> GroupStart:
    sequence, domain, flags = struct.unpack_from("<QIB", body)
    return GroupStart(
        f"{domain}-{server_id}-{sequence}", bool(flags & STANDALONE), bool(flags & PREPARED_XA)
    )


def read_mysql_gtid(body: bytes) -> GroupStart:
    number = int.from_bytes(body[17:25], "little")
    return GroupStart(f"{uuid.UUID(bytes=body[1:17])}:{number}", is_standalone=True)


def read_query(kind: int, body: bytes) -> tuple[str, str]:
    """The database that it ran in, and the statement."""
    _, _, database_size, _, variables_size = struct.unpack_from("<IIBHH", body)
    at = 13 + (LOAD_BYTES if kind == EXECUTE_LOAD_QUERY else 0) + variables_size
    database = body[at : at + database_size]
    statement = body[at + database_size + 1 :]
    if kind == QUERY_COMPRESSED:
        statement = _uncompressed(statement)
    return database.decode("utf-8", "replace"), _statement_text(statement)


def _statement_text(statement: bytes) -> str:
    """In the character set of the client that sent it: most have UTF-8, many of the rest Latin."""
    try:
        return statement.decode()
    except UnicodeDecodeError:
        return statement.decode("latin-1")


class Rows(NamedTuple):
    """Rows are at `at` and later in `data`."""

    data: bytes
    at: int


def table_id(body: bytes) -> int:
    return int.from_bytes(body[:6], "little")


def has_every_column(kind: int, body: bytes) -> bool:
    """Of each row, before and after."""
    columns, at = _columns(kind, body)
    size, every = (columns + 7) // 8, (1 << columns) - 1  # bits above may be anything
    images = 2 if kind in UPDATES else 1
    return all(
        int.from_bytes(body[start : start + size], "little") & every == every
        for start in range(at, at + size * images, size)
    )


def read_rows(kind: int, body: bytes) -> Rows:
    columns, at = _columns(kind, body)
    at += (columns + 7) // 8 * (2 if kind in UPDATES else 1)
    if kind in COMPRESSED:
        return Rows(_uncompressed(body[at:]), 0)
    return Rows(body, at)


def _columns(kind: int, body: bytes) -> tuple[int, int]:
    """How many, and where the bits begin that tell which of them are there."""
    extra = int.from_bytes(body[8:10], "little") if kind in WITH_EXTRA else 0
    return lenenc(body, 8 + extra)


def _uncompressed(data: bytes) -> bytes:
    """A byte of which 4 bits are the method and 3 the size of the length that follows."""
    return zlib.decompress(data[1 + (data[0] & 7) :])
