"""Rows of SQLite as columns of Arrow: the way back of `stored_columns`, all rows at once. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from millstream.base.schema import DataType, DecimalOf, ListOf, MapOf, Scalar, Struct
from millstream.schemas.arrow_types import nullable_arrow_schema, type_to_arrow
from millstream.views.stores.sqlite.values import FLOATS, TIMES, Stored, null_of, reading
from millstream.views.table_layout import StoredColumn, TableLayout

Columns = Iterator[tuple[StoredColumn, Sequence[Stored]]]


def arrow_table(layout: TableLayout, rows: Sequence[Sequence[Stored]]) -> pa.Table:
    """With the columns of the view's schema, in its order; every one may be null."""
    found = list(zip(*rows, strict=True)) if rows else [()] * len(layout.columns)
    columns: Columns = iter(list(zip(layout.columns, found, strict=True)))
    arrays = {
        field.name: _array(field.type, columns, in_key=field.name in layout.key)
        for field in layout.fields
    }
    wanted = nullable_arrow_schema(layout.schema)
    return pa.Table.from_arrays([arrays[name] for name in wanted.names], schema=wanted)


def _array(kind: DataType, columns: Columns, *, in_key: bool) -> pa.Array:
    """Takes from `columns` what belongs to it, in the order of the layout."""
    if not isinstance(kind, Struct):
        return _values(*next(columns))
    absent = None
    if not in_key:
        _, presence = next(columns)
        absent = pa.array([here is None for here in presence], pa.bool_())
    parts = [_array(field.type, columns, in_key=in_key) for field in kind]
    arrow = type_to_arrow(kind, relaxed=True)
    return pa.StructArray.from_arrays(parts, fields=list(arrow), mask=absent)


def _values(column: StoredColumn, stored: Sequence[Stored]) -> pa.Array:
    null = null_of(column)
    values = stored if null is None else [None if one == null else one for one in stored]
    return _converted(column.type, values)


def _converted(kind: DataType, values: Sequence[Any]) -> pa.Array:
    arrow = type_to_arrow(kind, relaxed=True)
    if kind in TIMES:
        return pa.array(values, pa.int64()).cast(arrow)
    if kind is Scalar.DATE:
        return pa.array(values, pa.int32()).cast(arrow)
    if kind is Scalar.BOOLEAN:
        return pa.array(values, pa.int8()).cast(arrow)
    if isinstance(kind, ListOf | MapOf | DecimalOf) or kind in FLOATS:  # NaN is a text
        read = reading(kind)
        return pa.array([None if one is None else read(one) for one in values], arrow)
    return pa.array(values, arrow)
