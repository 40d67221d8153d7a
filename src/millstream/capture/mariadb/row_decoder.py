"""Rows of the binlog to JSON, by code that is made for each table. Pure.

A row is a bit for each column that is null, then the values, without padding. One function per
table walks over them and writes the row's JSON object and its key's; it is made of one piece of
code per column (`_steps`), so that no decision is left that the table's types can take.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, Final

from millstream.base.errors import Corrupt
from millstream.capture.mariadb import table_map as codes
from millstream.capture.mariadb.column_type import UTF8_CHARSETS, ColumnType
from millstream.capture.mariadb.disguised_types import DISGUISED_TEXTS
from millstream.capture.mariadb.mysql_json import json_text
from millstream.capture.mariadb.table_map import MappedColumn, string_bytes_max
from millstream.capture.mariadb.value_text import (
    date_text,
    datetime_text,
    decimal_bytes,
    decimal_reader,
    float_text,
    fraction_bytes,
    fraction_text,
    old_datetime_text,
    old_time_text,
    time_text,
    timestamp_text,
)

# (data, at) -> (where the next row is, its key, the row)
ReadRow = Callable[[bytes, int], tuple[int, bytes | None, bytes]]
DecodeText = Callable[[bytes], str]
DecoderOf = Callable[[str], DecodeText]

REMEMBERED_MAX: Final = 4096  # values of each column
REMEMBERED_BYTES_MAX: Final = 64
INTEGERS: Final[Mapping[int, tuple[str, int]]] = {
    codes.TINY: ("b", 1),
    codes.SHORT: ("h", 2),
    codes.LONG: ("i", 4),
    codes.LONGLONG: ("q", 8),
}


class BadRow(Corrupt):
    """Rows that are not as their table's description says."""


def row_reader(
    columns: Sequence[MappedColumn], key: Sequence[str], decoder_of: DecoderOf
) -> ReadRow:
    """`decoder_of`: how to read a character set, by its name."""
    names: dict[str, Any] = {"from_bytes": int.from_bytes}
    lines = ["def read(data, at):", f"    nulls = {_null_bits(len(columns))}"]
    lines.append(f"    at += {(len(columns) + 7) // 8}")
    for index, column in enumerate(columns):
        steps = _steps(index, column, decoder_of, names)
        if column.is_nullable:
            lines += [f"    if nulls & {1 << index}:", f"        v{index} = 'null'", "    else:"]
            lines += [f"        {step}" for step in steps]
        else:
            lines += [f"    {step}" for step in steps]
    places = {column.name: index for index, column in enumerate(columns)}
    row = object_text([column.name for column in columns], places)
    keyed = f"{object_text(key, places)}.encode()" if key else "None"
    lines.append(f"    return at, {keyed}, {row}.encode()")
    exec("\n".join(lines), names)  # the text is ours: names of columns are in it as literals only
    made: ReadRow = names["read"]
    return made


def object_text(names: Sequence[str], places: Mapping[str, int]) -> str:
    """The code of an f-string that makes the JSON object of these columns."""
    parts = []
    for name in names:
        quoted = encode_basestring(name).replace("{", "{{").replace("}", "}}")
        parts.append(f"{quoted}:{{v{places[name]}}}")
    return "f" + repr("{{" + ",".join(parts) + "}}")


def _null_bits(columns: int) -> str:
    size = (columns + 7) // 8
    return "data[at]" if size == 1 else f"from_bytes(data[at : at + {size}], 'little')"


def _steps(
    index: int, column: MappedColumn, decoder_of: DecoderOf, names: dict[str, Any]
) -> list[str]:
    """Code that puts the text of a value into v<index>, and moves `at` behind it."""
    value, is_unsigned = f"v{index}", column.type.is_unsigned
    if column.code in INTEGERS and not (column.code == codes.LONGLONG and is_unsigned):
        letter, size = INTEGERS[column.code]
        letter = letter.upper() if is_unsigned else letter
        names[f"number_{letter}"] = struct.Struct(f"<{letter}").unpack_from
        return [f"{value} = number_{letter}(data, at)[0]", f"at += {size}"]
    fixed = _fixed_reader(column)
    if fixed is not None:
        size, read = fixed
        names[f"text_{index}"] = Remembered(read)
        return [f"{value} = text_{index}[data[at : at + {size}]]", f"at += {size}"]
    size = _length_bytes(column)
    names[f"text_{index}"] = Remembered(_string_reader(column, decoder_of))
    length = "data[at]" if size == 1 else f"from_bytes(data[at : at + {size}], 'little')"
    return [
        f"end = at + {size} + {length}",
        f"{value} = text_{index}[data[at + {size} : end]]",
        "at = end",
    ]


class Remembered(dict[bytes, str]):
    """Texts of the values that came last: an update repeats most of them, and so do rows."""

    def __init__(self, read: Callable[[bytes], str]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, data: bytes) -> str:
        text = self._read(data)
        if len(data) <= REMEMBERED_BYTES_MAX:
            if len(self) >= REMEMBERED_MAX:
                self.clear()
            self[data] = text
        return text


def _fixed_reader(column: MappedColumn) -> tuple[int, Callable[[bytes], str]] | None:
    """Bytes of a value, and how they are read; None for those that have a length."""
    code, kind = column.code, column.type
    if code in FIXED:
        return FIXED[code]
    if code == codes.INT24:
        is_signed = not kind.is_unsigned
        return 3, lambda data: str(int.from_bytes(data, "little", signed=is_signed))
    if code in FRACTIONS:
        return _fraction_reader(code, kind.length)
    if code == codes.NEWDECIMAL:
        read = decimal_reader(kind.length, kind.scale)
        return decimal_bytes(kind.length, kind.scale), lambda data: f'"{read(data, 0)}"'
    if code == codes.BIT:
        return (kind.length + 7) // 8, _bit_reader(kind.length)
    if code in (codes.ENUM, codes.SET):
        member = member_reader(kind)
        return column.meta & 0xFF, lambda data: member(int.from_bytes(data, "little"))
    return None


def _low(data: bytes) -> int:
    return int.from_bytes(data, "little")


# Types of which there is one form.
FIXED: Final[Mapping[int, tuple[int, Callable[[bytes], str]]]] = {
    codes.LONGLONG: (8, lambda data: f'"{_low(data)}"'),  # those without a sign
    codes.FLOAT: (4, lambda data: float_text(struct.unpack("<f", data)[0])),
    codes.DOUBLE: (8, lambda data: repr(struct.unpack("<d", data)[0])),
    codes.YEAR: (1, lambda data: str(data[0] and 1900 + data[0])),
    codes.DATE: (3, lambda data: f'"{date_text(_low(data))}"'),
    codes.TIME: (3, lambda data: f'"{old_time_text(int.from_bytes(data, "little", signed=True))}"'),
    codes.DATETIME: (8, lambda data: f'"{old_datetime_text(_low(data))}"'),
    codes.TIMESTAMP: (4, lambda data: f'"{timestamp_text(_low(data))}Z"'),
}
# Whole seconds in so many bytes, how they are written, and what ends the text.
FRACTIONS: Final[Mapping[int, tuple[int, Callable[[int], str], str]]] = {
    codes.DATETIME2: (5, datetime_text, ""),
    codes.TIMESTAMP2: (4, timestamp_text, "Z"),
    codes.TIME2: (3, str, ""),
}


def _fraction_reader(code: int, digits: int) -> tuple[int, Callable[[bytes], str]]:
    whole, write, end = FRACTIONS[code]
    size = whole + fraction_bytes(digits)
    if code == codes.TIME2:  # one number, so that it can be negative
        return size, lambda data: f'"{time_text(int.from_bytes(data), digits)}"'

    def read(data: bytes) -> str:
        fraction = fraction_text(int.from_bytes(data[whole:]), digits)
        return f'"{write(int.from_bytes(data[:whole]))}{fraction}{end}"'

    return size, read


def _bit_reader(bits: int) -> Callable[[bytes], str]:
    if bits == 1:
        return lambda data: "true" if data[0] else "false"
    if bits == 64:
        return lambda data: f'"{int.from_bytes(data)}"'
    return lambda data: str(int.from_bytes(data))


def member_reader(kind: ColumnType) -> Callable[[int], str]:
    """Of the number that the server keeps for an enum or set, the JSON text."""
    quoted = [encode_basestring(member) for member in kind.values]
    if kind.word == "enum":
        texts = ['""', *quoted]  # number 0 is a value that was none of them
        return texts.__getitem__

    def read(bits: int) -> str:
        return "[" + ",".join(one for place, one in enumerate(quoted) if bits >> place & 1) + "]"

    return read


def _length_bytes(column: MappedColumn) -> int:
    match column.code:
        case codes.BLOB | codes.GEOMETRY | codes.JSON | codes.VECTOR | codes.BLOB_COMPRESSED:
            return column.meta
        case codes.STRING:
            return 1 if string_bytes_max(column.meta) < 256 else 2
    return 1 if column.meta < 256 else 2


def _string_reader(column: MappedColumn, decoder_of: DecoderOf) -> Callable[[bytes], str]:
    read = value_reader(column.type, decoder_of)
    if column.code in (codes.BLOB_COMPRESSED, codes.VARCHAR_COMPRESSED):
        return lambda data: read(uncompressed(data))
    return read


def value_reader(kind: ColumnType, decoder_of: DecoderOf) -> Callable[[bytes], str]:
    """The JSON text of a string's bytes."""
    if kind.word in DISGUISED_TEXTS:
        shown, size = DISGUISED_TEXTS[kind.word]
        return lambda data: f'"{shown(data.ljust(size, bytes(1)))}"'
    if kind.word == "json":
        return lambda data: _as_json_string(json_text(data))
    if kind.word == "binary":  # its zeros at the end are not sent
        return lambda data: base64_text(data.ljust(kind.length, bytes(1)))
    if not kind.charset:
        return base64_text
    if kind.charset in UTF8_CHARSETS:
        return utf8_text
    decode = decoder_of(kind.charset)
    return lambda data: _as_json_string(decode(data))


def utf8_text(data: bytes) -> str:
    return _as_json_string(data.decode("utf-8", "backslashreplace"))


def _as_json_string(text: str) -> str:
    quoted: str = encode_basestring(text)
    return quoted


def base64_text(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def uncompressed(data: bytes) -> bytes:
    """A value of a COMPRESSED column: a byte that tells how, the length, then zlib's bytes."""
    if not data:
        return data
    method, size = data[0] >> 4, data[0] & 7
    if method == 0:
        return data[1:]
    if method != 8:
        raise BadRow(f"a value is compressed by method {method}, which is not known here")
    return zlib.decompress(data[1 + size :], wbits=-15 if data[0] & 8 else 15)
