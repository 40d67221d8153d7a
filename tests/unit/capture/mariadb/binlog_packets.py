"""Packets of a binlog, as a MariaDB server sends them, made by hand: one table, `shop.orders`."""

import struct
import zlib

from millstream.capture.mariadb import binlog_event as events
from millstream.capture.mariadb.table_map import LONG, VARCHAR

AT_S = 1_800_000_000
# id INT NOT NULL PRIMARY KEY, item VARCHAR(10) in utf8mb4 (collation 45)
_NAMES = b"\x04\x08\x02id\x04item"
_MORE = b"\x01\x01\x00" + b"\x02\x01\x2d" + _NAMES + b"\x08\x01\x00"


def packet(kind: int, body: bytes, *, server_id: int = 1) -> bytes:
    size = events.HEADER_BYTES + len(body) + events.CHECKSUM_BYTES
    header = events.HEADER.pack(AT_S, kind, server_id, size, 1000, 0)
    return b"\x00" + header + body + struct.pack("<I", zlib.crc32(header + body))


def gtid(sequence: int, *, domain: int = 0, flags: int = events.TRANSACTIONAL) -> bytes:
    return packet(events.MARIADB_GTID, struct.pack("<QIB", sequence, domain, flags) + bytes(6))


def table_map(*, table_id: int = 7, database: str = "shop", table: str = "orders") -> bytes:
    names = b"".join(bytes([len(name)]) + name.encode() + b"\0" for name in (database, table))
    columns = b"\x02" + bytes([LONG, VARCHAR]) + b"\x02" + struct.pack("<H", 40) + b"\x02"
    return packet(
        events.TABLE_MAP, table_id.to_bytes(6, "little") + b"\x01\x00" + names + columns + _MORE
    )


def row(number: int, item: str | None) -> bytes:
    if item is None:
        return b"\xfe" + struct.pack("<i", number)
    return b"\xfc" + struct.pack("<i", number) + bytes([len(item.encode())]) + item.encode()


def rows(kind: int, *given: bytes, table_id: int = 7, present: int = 0xFF) -> bytes:
    images = 2 if kind in events.UPDATES else 1
    head = table_id.to_bytes(6, "little") + b"\x01\x00\x02" + bytes([present]) * images
    return packet(kind, head + b"".join(given))


def inserted(*numbers: int, table_id: int = 7) -> bytes:
    given = [row(number, f"item {number}") for number in numbers]
    return rows(events.WRITE_ROWS_V1, *given, table_id=table_id)


def xid() -> bytes:
    return packet(events.XID, struct.pack("<Q", 1))


def query(statement: str, *, database: str = "shop") -> bytes:
    head = struct.pack("<IIBHH", 1, 0, len(database), 0, 0)
    return packet(events.QUERY, head + database.encode() + b"\0" + statement.encode())


def xa_prepare(name: bytes) -> bytes:
    return packet(events.XA_PREPARE, b"\x00" + struct.pack("<III", 1, len(name), 0) + name)
