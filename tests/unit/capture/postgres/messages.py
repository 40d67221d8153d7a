"""Messages of pgoutput, written by hand for tests."""

import struct
from collections.abc import Sequence
from typing import Final

INT4: Final = 23
TEXT: Final = 25
UNSENT: Final = object()  # a value that did not change, and was not sent

Value = str | None | object


def tuple_of(*values: Value) -> bytes:
    return len(values).to_bytes(2) + b"".join(_value(value) for value in values)


def _value(value: Value) -> bytes:
    if value is None:
        return b"n"
    if value is UNSENT:
        return b"u"
    data = str(value).encode()
    return b"t" + len(data).to_bytes(4) + data


def begin(xid: int) -> bytes:
    return struct.pack(">cQQI", b"B", 0, 0, xid)


def commit(lsn: int, *, at: int = 0) -> bytes:
    return struct.pack(">cBQQQ", b"C", 0, lsn, lsn + 8, at)


def insert(oid: int, *values: Value) -> bytes:
    return b"I" + oid.to_bytes(4) + b"N" + tuple_of(*values)


def update(oid: int, *values: Value, key: Sequence[Value] = (), old: Sequence[Value] = ()) -> bytes:
    before = b"K" + tuple_of(*key) if key else b"O" + tuple_of(*old) if old else b""
    return b"U" + oid.to_bytes(4) + before + b"N" + tuple_of(*values)


def delete(oid: int, *key: Value) -> bytes:
    return b"D" + oid.to_bytes(4) + b"K" + tuple_of(*key)


def truncate(*oids: int) -> bytes:
    return struct.pack(">cIB", b"T", len(oids), 0) + b"".join(oid.to_bytes(4) for oid in oids)


def relation(oid: int, *columns: tuple[str, int], identity: str = "d") -> bytes:
    """The first column is the key."""
    head = b"R" + oid.to_bytes(4) + b"public\0items\0" + identity.encode()
    described = [
        bytes([number == 0]) + name.encode() + b"\0" + struct.pack(">Ii", type_oid, -1)
        for number, (name, type_oid) in enumerate(columns)
    ]
    return head + len(columns).to_bytes(2) + b"".join(described)


def message(prefix: str, content: bytes, *, transactional: bool = True) -> bytes:
    size = len(content).to_bytes(4)
    return struct.pack(">cBQ", b"M", transactional, 0) + prefix.encode() + b"\0" + size + content


def stream_start(xid: int) -> bytes:
    return struct.pack(">cIB", b"S", xid, 1)


STREAM_STOP: Final = b"E"


def stream_commit(xid: int, lsn: int) -> bytes:
    return struct.pack(">cIBQQQ", b"c", xid, 0, lsn, lsn + 8, 0)


def stream_abort(xid: int, sub_xid: int) -> bytes:
    return struct.pack(">cII", b"A", xid, sub_xid)


def streamed(xid: int, plain: bytes) -> bytes:
    """As it stands inside of a streamed block."""
    return plain[:1] + xid.to_bytes(4) + plain[1:]
