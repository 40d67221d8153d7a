"""Rows to columns. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

# None where there is nothing to say: a tombstone, or a bad value.
Row: TypeAlias = Mapping[str, Any] | None


def columns_of(rows: Sequence[Row], schema: pa.Schema) -> pa.RecordBatch:
    """A row of nulls for None. Raises what Arrow raises if a value does not fit its column."""
    columns = [
        pa.array([None if row is None else row[field.name] for row in rows], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
