"""Keys in stores that have no columns: a text that people can read, and bytes that sort. Pure.

The text is what the key of a record is (values/key_encoder.py): /home, 7, {"shop":7,"item":"tea"}.
The bytes are in the order of the keys (views/conditions.py). Of each column of the key, structs
laid flat, they have:

  01 value    sorted by its value
  02          NaN
  03          null

  integers, DATE, TIMESTAMP    8 bytes, big-endian, plus 2^63; BOOLEAN is 0 or 1
  DECIMAL                      16 bytes, digits without the point, plus 2^127
  FLOAT, DOUBLE                8 bytes of the double; negative ones inverted, others plus 2^63
  STRING, BINARY               UTF-8 or bytes, 00 as 00 FF; then 00 00
  ARRAY                        its elements so, then 00

No key's bytes are the beginning of another's: the first parts of a key are the beginning of all
keys that begin with them.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from millstream.base.schema import (
    INTEGER_BITS,
    DataType,
    DecimalOf,
    ListOf,
    MapOf,
    Scalar,
    Struct,
)
from millstream.values.key_encoder import KeyEncoder
from millstream.views.conditions import value_at
from millstream.views.table_layout import StoredColumn, TableLayout

VALUE, NAN, NULL = b"\x01", b"\x02", b"\x03"
END_OF_BYTES, END_OF_LIST = b"\x00\x00", b"\x00"
# Of a key that is null in all its parts, which no row has; nor is this the text of another one.
NO_KEY = b"{}"
# Above every byte that can follow the first parts of a key.
AFTER = b"\xff"
INTEGER = struct.Struct(">Q")
DOUBLE = struct.Struct(">d")
INTEGER_MIDDLE, DECIMAL_MIDDLE = 1 << 63, 1 << 127
ALL_BITS = (1 << 64) - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)

Sort = Callable[[Any], bytes]


class StoredKeys:
    """Of one view. Takes rows, or keys by name, whose values fit the view's columns."""

    def __init__(self, layout: TableLayout) -> None:
        self._encode = KeyEncoder(layout.key_schema, layout.key).encode
        self._fields = layout.key_schema.fields
        self._quick = _quick_text(layout)
        self._columns = [(column.path, sorting(column.type)) for column in layout.key_columns]

    def text(self, row: Mapping[str, Any]) -> bytes:
        """The same for equal keys: 0.0 is -0.0, and a struct that is null has parts that are."""
        if (text := self._quick(row)) is not None:
            return text
        key = {field.name: settled(field.type, row[field.name]) for field in self._fields}
        text = self._encode(key)
        return NO_KEY if text is None else text

    def sortable(self, row: Mapping[str, Any]) -> bytes:
        return b"".join(_sorted(sort, value_at(row, path)) for path, sort in self._columns)


def _quick_text(layout: TableLayout) -> Callable[[Mapping[str, Any]], bytes | None]:
    """The text of most keys, as the encoder gives it; None where only the encoder knows."""
    (name, *others) = layout.key
    kind = layout.key_schema.fields[0].type
    if others or not (kind in INTEGER_BITS or kind is Scalar.STRING):
        return lambda _row: None

    def text(row: Mapping[str, Any]) -> bytes | None:
        value = row[name]
        if isinstance(value, int):
            return b"%d" % value
        is_plain = value is not None and (value[:1].isalnum() or value[:1] == "/")
        return value.encode() if is_plain else None

    return text


def sortable_bound(bound: Sequence[tuple[StoredColumn, Any]]) -> bytes:
    """What all keys with these first parts begin with."""
    return b"".join(_sorted(sorting(column.type), value) for column, value in bound)


def settled(kind: DataType, value: Any) -> Any:
    """A part of a key, the same for equal ones: 0.0 for -0.0, a struct of nulls for a null one."""
    if isinstance(kind, Struct):
        parts = value or {}
        return {field.name: settled(field.type, parts.get(field.name)) for field in kind}
    if isinstance(kind, ListOf) and value is not None:
        return [None if one is None else settled(kind.element, one) for one in value]
    return value + 0.0 if isinstance(value, float) else value


def _sorted(sort: Sort, value: Any) -> bytes:
    if value is None:
        return NULL
    if isinstance(value, float) and math.isnan(value):
        return NAN
    return VALUE + sort(value)


def sorting(kind: DataType) -> Sort:
    """What makes bytes that sort of a value of this type, not null and not NaN."""
    match kind:
        case DecimalOf():
            return lambda number: _decimal(number, kind.scale)
        case ListOf(element, _):
            of = sorting(element)
            return lambda values: b"".join(_sorted(of, one) for one in values) + END_OF_LIST
        case Struct():
            parts = [(field.name, sorting(field.type)) for field in kind]
            return lambda row: b"".join(_sorted(of, row.get(name)) for name, of in parts)
        case MapOf():
            raise TypeError("a map has no order, and is in no key")
        case Scalar():
            return SORTING.get(kind, _integer)


def _integer(number: int) -> bytes:
    return INTEGER.pack(number + INTEGER_MIDDLE)


def _double(number: float) -> bytes:
    (bits,) = INTEGER.unpack(DOUBLE.pack(number + 0.0))
    return INTEGER.pack(bits ^ ALL_BITS if bits & INTEGER_MIDDLE else bits | INTEGER_MIDDLE)


def _decimal(number: Decimal, scale: int) -> bytes:
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "a decimal of a view is finite"
    unscaled = int("".join(map(str, digits)) + "0" * (exponent + scale))
    return (DECIMAL_MIDDLE + (-unscaled if sign else unscaled)).to_bytes(16, "big")


def _bytes(content: bytes) -> bytes:
    return content.replace(b"\x00", b"\x00\xff") + END_OF_BYTES


def _moment(moment: datetime) -> bytes:
    in_utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return _integer((in_utc - EPOCH) // MICROSECOND)


SORTING: Mapping[Scalar, Sort] = {
    Scalar.FLOAT: _double,
    Scalar.DOUBLE: _double,
    Scalar.STRING: lambda text: _bytes(text.encode()),
    Scalar.BINARY: _bytes,
    Scalar.DATE: lambda day: _integer((day - EPOCH_DAY).days),
    Scalar.TIMESTAMP: _moment,
    Scalar.TIMESTAMP_NTZ: _moment,
}
