"""The rows of a view as a table of Arrow: its exact columns, and the parts of its key. Pure."""

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.schema import ListOf
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.views.stores.sqlite.values import storing_in
from millstream.views.table_layout import StoredColumn, TableLayout


def fitted_rows(layout: TableLayout, table: pa.Table) -> pa.Table:
    """The view's own columns, in their order and exact types."""
    schema = nullable_arrow_schema(layout.schema)
    return table.select(schema.names).cast(schema).combine_chunks()


def grown_rows(layout: TableLayout, table: pa.Table) -> pa.Table:
    """Rows of before, for columns of now: those that are new are null."""
    for field in nullable_arrow_schema(layout.schema):
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return fitted_rows(layout, table)


def leaf(rows: pa.Table, column: StoredColumn) -> pa.ChunkedArray:
    """The values of a column that may lie within structs."""
    found = rows.column(column.path[0])
    for part in column.path[1:]:
        found = pc.struct_field(found, part)
    return found


def key_table(layout: TableLayout, rows: pa.Table) -> pa.Table:
    """One plain column for each part of the key, named by its place, equal where keys are: a list
    is its text, -0.0 is 0.0."""
    leaves = [_plain(column, leaf(rows, column)) for column in layout.key_columns]
    return pa.table(leaves, names=[str(place) for place in range(len(leaves))])


def _plain(column: StoredColumn, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_floating(values.type):
        return pc.add(values, pa.scalar(0.0, values.type))
    if not isinstance(column.type, ListOf):
        return values
    text = storing_in(column)
    found = (None if value is None else text(value) for value in values.to_pylist())
    return pa.chunked_array([pa.array(found, pa.string())])


def in_python_zone(table: pa.Table) -> pa.Table:
    """Moments become datetimes with datetime.UTC; Arrow makes a ZoneInfo of its "UTC"."""
    schema = pa.schema([field.with_type(_in_python_zone(field.type)) for field in table.schema])
    return table if schema == table.schema else table.cast(schema)


def _in_python_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="+00:00")
    if pa.types.is_list(kind):
        return pa.list_(_field_in_python_zone(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(
            _field_in_python_zone(kind.key_field), _field_in_python_zone(kind.item_field)
        )
    if pa.types.is_struct(kind):
        return pa.struct([_field_in_python_zone(field) for field in kind])
    return kind


def _field_in_python_zone(field: pa.Field) -> pa.Field:
    return field.with_type(_in_python_zone(field.type))
