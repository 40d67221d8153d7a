"""Values as SQLite keeps them, and back, without loss. Pure.

integers, STRING, BINARY    as they are; BOOLEAN is 0 or 1
FLOAT, DOUBLE               REAL; NaN, which SQLite would make null, is the text NaN
TIMESTAMP, TIMESTAMP_NTZ    microseconds since 1970; DATE days since then
DECIMAL                     text with all digits of its scale: "12.50"
ARRAY, MAP                  JSON of the same; a map is a list of pairs, BINARY base64
a null in a key             an empty blob, or the text null where the column is BINARY: SQLite
                            takes two nulls for different keys
"""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.schema import DataType, DecimalOf, ListOf, MapOf, Scalar, Struct
from millstream.views.stores.conversions import Convert, or_none, pairs_of, same
from millstream.views.stores.stored_keys import settled
from millstream.views.table_layout import StoredColumn, TableLayout, row_nesting

Stored = int | float | str | bytes | None

NAN = "NaN"
NULL_IN_KEY, NULL_IN_BINARY_KEY = b"", "null"
EPOCH_DAY = date(1970, 1, 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLOCK_EPOCH = datetime(1970, 1, 1)  # TIMESTAMP_NTZ has no zone
MICROSECOND = timedelta(microseconds=1)
FLOATS = (Scalar.FLOAT, Scalar.DOUBLE)
TIMES = (Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ)


def null_of(column: StoredColumn) -> Stored:
    """What stands for null in this column."""
    if not column.in_key:
        return None
    return NULL_IN_BINARY_KEY if column.type is Scalar.BINARY else NULL_IN_KEY


# --- columns of Arrow to columns of SQLite


def stored_columns(layout: TableLayout, table: pa.Table) -> list[list[Stored]]:
    """For every column of the layout, its values in all rows."""
    arrays = {name: _whole(table.column(name)) for name in table.column_names}
    return [_stored_column(column, arrays[column.path[0]]) for column in layout.columns]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _stored_column(column: StoredColumn, array: pa.Array) -> list[Stored]:
    for part in column.path[1:]:
        array = pc.struct_field(array, part)  # null where the struct is
    if column.says_presence:
        return [1 if here else None for here in array.is_valid().to_pylist()]
    values = _plain_values(column, array)
    if column.in_key and array.null_count:
        instead = null_of(column)
        return [instead if value is None else value for value in values]
    return values


def _plain_values(column: StoredColumn, array: pa.Array) -> list[Any]:
    kind = column.type
    if kind in TIMES:
        return list(array.cast(pa.timestamp("us", tz=array.type.tz)).cast(pa.int64()).to_pylist())
    if kind is Scalar.DATE:
        return list(array.cast(pa.int32()).to_pylist())
    values: list[Any] = array.to_pylist()
    if kind in FLOATS and not pc.any(pc.is_nan(array)).as_py():
        return values
    if isinstance(kind, Scalar) and kind not in FLOATS:
        return values
    store = storing_in(column)
    return [None if value is None else store(value) for value in values]


# --- Python's values, one by one


def storing(kind: DataType) -> Convert:
    """What makes a value of this type, not null, into what SQLite keeps."""
    if isinstance(kind, ListOf | MapOf):
        plain = _plain(kind)
        return lambda value: json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    if kind is Scalar.BINARY:
        return bytes
    return _plain(kind)


def storing_in(column: StoredColumn) -> Convert:
    """The same; -0.0, which SQLite keeps as 0.0, is so in the text of a list, too, in a key."""
    store = storing(column.type)
    if not (column.in_key and isinstance(column.type, ListOf)):
        return store
    return lambda value: store(settled(column.type, value))


def reading(kind: DataType) -> Convert:
    """The way back."""
    if isinstance(kind, ListOf | MapOf):
        unplain = _unplain(kind)
        return lambda text: unplain(json.loads(text))
    if kind is Scalar.BINARY:
        return bytes
    return _unplain(kind)


def _plain(kind: DataType) -> Convert:
    """As a value of JSON."""
    match kind:
        case ListOf(element, _):
            of = or_none(_plain(element))
            return lambda values: [of(value) for value in values]
        case MapOf(key, value, _):
            of_key, of_value = _plain(key), or_none(_plain(value))
            return lambda pairs: [[of_key(k), of_value(v)] for k, v in pairs_of(pairs)]
        case Struct():
            parts = [(field.name, or_none(_plain(field.type))) for field in kind]
            return lambda row: [of(row.get(name)) for name, of in parts]
        case DecimalOf():
            return lambda number: _decimal_text(number, kind)
        case Scalar():
            return PLAIN.get(kind, same)


def _unplain(kind: DataType) -> Convert:
    match kind:
        case ListOf(element, _):
            of = or_none(_unplain(element))
            return lambda values: [of(value) for value in values]
        case MapOf(key, value, _):
            of_key, of_value = _unplain(key), or_none(_unplain(value))
            return lambda pairs: {of_key(k): of_value(v) for k, v in pairs}
        case Struct():
            parts = [(field.name, or_none(_unplain(field.type))) for field in kind]
            # A field that was added later is missing at the end of older rows.
            return lambda row: {
                name: of(row[place]) if place < len(row) else None
                for place, (name, of) in enumerate(parts)
            }
        case DecimalOf():
            return Decimal
        case Scalar():
            return UNPLAIN.get(kind, same)


def _decimal_text(number: Any, kind: DecimalOf) -> str:
    text = f"{Decimal(number):.{kind.scale}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.") else text


def _float(number: float) -> float | str:
    return NAN if math.isnan(number) else number


def _time_us(moment: datetime) -> int:
    return (moment - (EPOCH if moment.tzinfo else CLOCK_EPOCH)) // MICROSECOND


def _days(day: date) -> int:
    return (day - EPOCH_DAY).days


PLAIN: Mapping[Scalar, Convert] = {
    Scalar.FLOAT: _float,
    Scalar.DOUBLE: _float,
    Scalar.BINARY: lambda found: base64.b64encode(found).decode(),
    Scalar.DATE: _days,
    Scalar.TIMESTAMP: _time_us,
    Scalar.TIMESTAMP_NTZ: _time_us,
}
UNPLAIN: Mapping[Scalar, Convert] = {
    Scalar.BOOLEAN: bool,
    Scalar.FLOAT: float,
    Scalar.DOUBLE: float,
    Scalar.BINARY: base64.b64decode,
    Scalar.DATE: lambda days: EPOCH_DAY + timedelta(days=days),
    Scalar.TIMESTAMP: lambda time_us: EPOCH + time_us * MICROSECOND,
    Scalar.TIMESTAMP_NTZ: lambda time_us: CLOCK_EPOCH + time_us * MICROSECOND,
}


# --- whole rows


def row_reader(layout: TableLayout) -> Callable[[Sequence[Stored]], dict[str, Any]]:
    return row_nesting(layout, _column_reader)


def _column_reader(column: StoredColumn) -> Convert:
    if column.says_presence:
        return bool
    null, of = null_of(column), reading(column.type)
    return lambda value: None if value is None or value == null else of(value)


def stored_key(layout: TableLayout, key: Mapping[str, Any]) -> list[Stored]:
    """The values of the key's columns, for a key that fits them."""
    return [stored_value(column, _at(key, column.path)) for column in layout.key_columns]


def stored_value(column: StoredColumn, value: Any) -> Stored:
    kept: Stored = null_of(column) if value is None else storing_in(column)(value)
    return kept


def _at(row: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if row is None:
            return None
        row = row[part]
    return row
