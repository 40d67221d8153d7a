"""Arrow tables as rows of plain values, and back. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa


def rows_of(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    columns = [table.column(place).to_pylist() for place in range(table.num_columns)]
    return zip(*columns, strict=True)


def table_of(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.Table:
    arrays = [
        pa.array([row[place] for row in rows], type=field.type)
        for place, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)
