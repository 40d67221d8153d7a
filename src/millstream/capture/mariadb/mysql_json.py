"""MySQL's binary JSON to text, as that server writes it. Pure. (MariaDB keeps JSON as text.)

    document  uint8 type, value
    object    count, bytes; for each key (offset, uint16 length); for each value (uint8 type, value
              or offset); then keys and values. An array has no keys.
    string    length in groups of 7 bits, the low ones first; UTF-8

Counts, bytes and offsets have 2 bytes in small ones and 4 in large ones; offsets count from where
the count is. Values that fit into the place of an offset are there.
"""

import base64
import struct
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Final

from millstream.base.errors import Corrupt
from millstream.capture.mariadb.value_text import decimal_reader

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL = 0, 1, 2, 3, 4
DOUBLE, STRING, OPAQUE = 11, 12, 15
NUMBERS: Final[Mapping[int, struct.Struct]] = {
    5: struct.Struct("<h"),
    6: struct.Struct("<H"),
    7: struct.Struct("<i"),
    8: struct.Struct("<I"),
    9: struct.Struct("<q"),
    10: struct.Struct("<Q"),
}
LITERALS: Final = ("null", "true", "false")
# Column types of opaque values.
DECIMAL, DATE, TIME, DATETIMES = 246, 10, 11, (7, 12)


class BadJson(Corrupt):
    """Bytes that are no JSON document of MySQL's."""


def json_text(document: bytes) -> str:
    if not document:  # of a row that was written with errors ignored
        return "null"
    try:
        return _value(document[0], document, 1)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise BadJson(f"a JSON value in the binlog cannot be read: {error}") from None


def _value(kind: int, data: bytes, at: int) -> str:
    if kind in (SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY):
        return _container(kind, data[at:])
    if kind == LITERAL:
        return LITERALS[data[at]]
    if kind in NUMBERS:
        return str(NUMBERS[kind].unpack_from(data, at)[0])
    if kind == DOUBLE:
        return _double_text(struct.unpack_from("<d", data, at)[0])
    if kind == STRING:
        return _quoted(_string(data, at).decode())
    if kind == OPAQUE:
        return _opaque(data[at], _string(data, at + 1))
    raise BadJson(f"a JSON value in the binlog has the type {kind}, which is not known here")


def _container(kind: int, data: bytes) -> str:
    size = 4 if kind in (LARGE_OBJECT, LARGE_ARRAY) else 2
    count = _number(data, 0, size)
    is_object = kind in (SMALL_OBJECT, LARGE_OBJECT)
    values_at = 2 * size + (count * (size + 2) if is_object else 0)
    values = [_entry(data, values_at + index * (1 + size), size) for index in range(count)]
    if not is_object:
        return f"[{', '.join(values)}]"
    keys = [_key(data, 2 * size + index * (size + 2), size) for index in range(count)]
    pairs = (f"{key}: {value}" for key, value in zip(keys, values, strict=True))
    return "{" + ", ".join(pairs) + "}"


def _entry(data: bytes, at: int, size: int) -> str:
    kind = data[at]
    is_inlined = kind in (LITERAL, 5, 6) or (size == 4 and kind in (7, 8))
    return _value(kind, data, at + 1 if is_inlined else _number(data, at + 1, size))


def _key(data: bytes, at: int, size: int) -> str:
    start, length = _number(data, at, size), _number(data, at + size, 2)
    return _quoted(data[start : start + length].decode())


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _string(data: bytes, at: int) -> bytes:
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if at + length > len(data):
        raise BadJson(f"a text of {length} bytes in a JSON value of the binlog is cut short")
    return data[at : at + length]


def _double_text(number: float) -> str:
    text = repr(number).replace("e+", "e")
    return text.replace("e-0", "e-")


def _opaque(column_type: int, data: bytes) -> str:
    if column_type == DECIMAL:
        return decimal_reader(data[0], data[1])(data, 2)
    if column_type in (DATE, TIME, *DATETIMES):
        return f'"{_moment(column_type, int.from_bytes(data, "little", signed=True))}"'
    return f'"base64:type{column_type}:{base64.b64encode(data).decode()}"'


def _moment(column_type: int, packed: int) -> str:
    """24 bits of microseconds below the packed form that columns have."""
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, micros = packed >> 24, packed & 0xFFFFFF
    clock = f"{whole >> 12 & (31 if column_type != TIME else 1023):02d}"
    clock += f":{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
    if column_type == TIME:
        return sign + clock
    months, day = whole >> 22, whole >> 17 & 31
    date = f"{months // 13:04d}-{months % 13:02d}-{day:02d}"
    return date if column_type == DATE else f"{date} {clock}"


def _quoted(text: str) -> str:
    quoted: str = encode_basestring(text)
    return quoted
