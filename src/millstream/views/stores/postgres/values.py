"""Values as PostgreSQL keeps them, and back, without loss. Pure.

Each column has PostgreSQL's own type; ARRAY and MAP are JSONB, in which every part is such that
`->>` and a cast give its value:

    a struct                 an object by the names of its fields
    MAP<STRING, ...>         an object; a map with other keys is a list of pairs
    DECIMAL, DATE, times     text: "12.50", "2026-07-01", "2026-07-01T12:00:00+00:00"
    BINARY                   text as of bytea: "\\xff"
    NaN and infinities       text: "NaN", "Infinity", "-Infinity"

Columns of Arrow become columns of COPY's text in one sweep each, null as \\N. Two values of a type
are the same if their texts are: netting compares these. A text with the character 0 is refused:
PostgreSQL has no such text.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.errors import Rejected
from millstream.base.schema import DataType, DecimalOf, ListOf, MapOf, Scalar, Struct
from millstream.views.store import BadQuestion
from millstream.views.stores.conversions import Convert, or_none, pairs_of, same
from millstream.views.table_layout import StoredColumn, TableLayout, row_nesting

NULL = r"\N"
TEXT = pa.large_string()  # a batch may have more than 2 GiB of it
FLOATS = (Scalar.FLOAT, Scalar.DOUBLE)
TIMES = (Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ)
# As JSON writes it. After a backslash that is itself escaped it is six plain characters.
ZERO_IN_JSON = r"(^|[^\\])(\\\\)*\\u0000"
# The backslash first: the others bring one.
ESCAPES = (("\\", r"\\"), ("\t", r"\t"), ("\n", r"\n"), ("\r", r"\r"))

TYPES = {
    Scalar.BOOLEAN: "boolean",
    Scalar.TINYINT: "smallint",
    Scalar.SMALLINT: "smallint",
    Scalar.INT: "integer",
    Scalar.BIGINT: "bigint",
    Scalar.FLOAT: "real",
    Scalar.DOUBLE: "double precision",
    Scalar.STRING: "text",
    Scalar.BINARY: "bytea",
    Scalar.DATE: "date",
    Scalar.TIMESTAMP: "timestamptz",
    Scalar.TIMESTAMP_NTZ: "timestamp",
}


class CharacterZero(Rejected):
    def __init__(self, *, view: str, column: str, rows: int) -> None:
        super().__init__(
            f"view {view}: {rows} rows have the character U+0000 in {column}, which PostgreSQL has "
            "no text for. Remove it in the view's function, with translate"
        )
        self.view, self.column, self.rows = view, column, rows


def type_of(column: StoredColumn) -> str:
    if column.says_presence:
        return "boolean"
    match column.type:
        case Scalar():
            return TYPES[column.type]
        case DecimalOf(precision, scale):
            return f"numeric({precision},{scale})"
        case _:
            return "jsonb"


# --- columns of Arrow to COPY's text


def copy_texts(layout: TableLayout, table: pa.Table) -> list[pa.Array]:
    """For every column of the layout its values in all rows, as COPY reads them; null is null."""
    arrays = {name: _whole(table.column(name)) for name in table.column_names}
    return [
        _copy_text(layout.view, column, _at_path(arrays[column.path[0]], column.path[1:]))
        for column in layout.columns
    ]


def copy_lines(texts: Sequence[pa.Array]) -> memoryview:
    """Lines of COPY's text format, of columns that are null where `NULL` is to stand."""
    filled = [pc.fill_null(text, NULL) for text in texts]
    rows = pc.binary_join_element_wise(*filled, pa.scalar("\t", TEXT))
    lines = pc.binary_join_element_wise(rows, pa.scalar("\n", TEXT), pa.scalar("", TEXT))
    return _bytes_of(lines)


def _bytes_of(lines: pa.LargeStringArray) -> memoryview:
    """Texts of an array stand one behind the other in its memory."""
    if not len(lines):
        return memoryview(b"")
    offsets = memoryview(lines.buffers()[1]).cast("q")
    first, last = offsets[lines.offset], offsets[lines.offset + len(lines)]
    return memoryview(lines.buffers()[2])[first:last]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _at_path(array: pa.Array, path: Sequence[str]) -> pa.Array:
    for part in path:
        array = pc.struct_field(array, part)  # null where the struct is
    return array


def _copy_text(view: str, column: StoredColumn, array: pa.Array) -> pa.Array:
    kind = column.type
    if column.says_presence:
        return pc.if_else(array.is_valid(), pa.scalar("t", TEXT), pa.scalar(None, TEXT))
    if kind in TIMES:
        return _clock(array).cast(TEXT)
    if kind in FLOATS and column.in_key:
        array = pc.add(array, pa.scalar(0.0, array.type))  # -0.0 and 0.0 are one key
    if kind is Scalar.BINARY:
        return pa.array((_hex(value, escape="\\") for value in array.to_pylist()), TEXT)
    if kind is Scalar.STRING or not isinstance(kind, Scalar | DecimalOf):
        text = array if kind is Scalar.STRING else _json_text(kind, array)
        return _escaped(view, column, text.cast(TEXT))
    return array.cast(TEXT)


def _clock(array: pa.Array) -> pa.Array:
    """Without a zone: the connection's is UTC."""
    in_us = array.cast(pa.timestamp("us", tz=array.type.tz))
    return in_us.cast(pa.int64()).cast(pa.timestamp("us"))


def _escaped(view: str, column: StoredColumn, text: pa.Array) -> pa.Array:
    if column.type is Scalar.STRING:
        found = pc.match_substring(text, "\x00")
    else:
        found = pc.match_substring_regex(text, ZERO_IN_JSON)
    if with_zero := pc.sum(found).as_py():
        raise CharacterZero(view=view, column=column.name, rows=with_zero)
    for character, written in ESCAPES:
        text = pc.replace_substring(text, character, written)
    return text


def _json_text(kind: DataType, array: pa.Array) -> pa.Array:
    plain = to_json(kind)
    texts = (
        None if value is None else json.dumps(plain(value), ensure_ascii=False)
        for value in array.to_pylist()
    )
    return pa.array(texts, TEXT)


def _hex(value: bytes | None, *, escape: str = "") -> str | None:
    return None if value is None else f"{escape}\\x{value.hex()}"


# --- JSON


def to_json(kind: DataType) -> Convert:
    """What makes a value, not null, into one that JSON has."""
    match kind:
        case ListOf(element, _):
            of = or_none(to_json(element))
            return lambda values: [of(value) for value in values]
        case MapOf(Scalar.STRING, value, _):
            of = or_none(to_json(value))
            return lambda pairs: {name: of(found) for name, found in pairs_of(pairs)}
        case MapOf(key, value, _):
            of_key, of_value = to_json(key), or_none(to_json(value))
            return lambda pairs: [[of_key(k), of_value(v)] for k, v in pairs_of(pairs)]
        case Struct():
            parts = [(field.name, or_none(to_json(field.type))) for field in kind]
            return lambda row: {name: of(row.get(name)) for name, of in parts}
        case DecimalOf(_, scale):
            return lambda number: f"{Decimal(number):.{scale}f}"
        case Scalar():
            return TO_JSON.get(kind, same)


def from_json(kind: DataType) -> Convert:
    match kind:
        case ListOf(element, _):
            of = or_none(from_json(element))
            return lambda values: [of(value) for value in values]
        case MapOf(Scalar.STRING, value, _):
            of = or_none(from_json(value))
            return lambda found: {name: of(one) for name, one in found.items()}
        case MapOf(key, value, _):
            of_key, of_value = from_json(key), or_none(from_json(value))
            return lambda pairs: {of_key(k): of_value(v) for k, v in pairs}
        case Struct():
            parts = [(field.name, or_none(from_json(field.type))) for field in kind]
            # A field that was added later is missing in older rows.
            return lambda row: {name: of(row.get(name)) for name, of in parts}
        case DecimalOf():
            return Decimal
        case Scalar():
            return FROM_JSON.get(kind, same)


def _float_to_json(number: float) -> float | str:
    if math.isfinite(number):
        return number + 0.0  # -0.0, which jsonb does not know, is 0.0
    return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")


TO_JSON: Mapping[Scalar, Convert] = {
    Scalar.FLOAT: _float_to_json,
    Scalar.DOUBLE: _float_to_json,
    Scalar.BINARY: _hex,
    Scalar.DATE: date.isoformat,
    Scalar.TIMESTAMP: datetime.isoformat,
    Scalar.TIMESTAMP_NTZ: datetime.isoformat,
}
FROM_JSON: Mapping[Scalar, Convert] = {
    Scalar.FLOAT: float,
    Scalar.DOUBLE: float,
    Scalar.BINARY: lambda text: bytes.fromhex(text[2:]),
    Scalar.DATE: date.fromisoformat,
    Scalar.TIMESTAMP: datetime.fromisoformat,
    Scalar.TIMESTAMP_NTZ: datetime.fromisoformat,
}


# --- rows and parameters


def row_reader(layout: TableLayout) -> Callable[[Sequence[Any]], dict[str, Any]]:
    return row_nesting(layout, _column_reader)


def _column_reader(column: StoredColumn) -> Convert:
    if isinstance(column.type, ListOf | MapOf):
        return or_none(from_json(column.type))
    return same


def parameter(column: StoredColumn, value: Any) -> Any:
    """A value that fits the column, to be cast to the column's type."""
    if value is None:
        return None
    if isinstance(column.type, ListOf | MapOf):
        return json.dumps(to_json(column.type)(value), ensure_ascii=False)
    if isinstance(value, str) and "\x00" in value:
        raise BadQuestion(f"{column.name}: no text in PostgreSQL has the character U+0000")
    return value
