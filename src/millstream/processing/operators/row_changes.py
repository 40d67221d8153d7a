"""Rows of a changelog as bytes, on their way into a state that knows no columns.

A row is a pickled dictionary by column name, so that a table may get more columns and keep its
state (docs/formats/table_state.md). Its key, and what it is joined or grouped by, are texts
(base/identity.py), and decide in which slot of the state (paged_state.py) it is looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from millstream.base.changes import CHANGE, ORDER
from millstream.base.identity import identity
from millstream.processing.operators.changelog_columns import (
    columns_of,
    is_coming,
    order_of,
    quoted,
)
from millstream.processing.operators.table_join_state import RowChange
from millstream.processing.state.paged_state import SLOT, slot_of
from millstream.processing.state.plain_pickles import dump_plain, load_plain

ROW_CHANGES = StructType(
    [
        StructField(SLOT, IntegerType()),
        StructField("side", IntegerType()),
        StructField("key", StringType()),
        StructField("join", StringType()),
        StructField("row", BinaryType()),
        StructField("order", LongType()),
    ]
)
# What is beside a row on its way into bytes: names that no application gives.
ON, COMES = "on ", "comes "
CHANGE_FIELDS = [StructField(CHANGE, StringType()), StructField(ORDER, LongType())]
# The number of the batch, as Spark tells its tasks.
BATCH_PROPERTY = "streaming.sql.batchId"

Row = dict[str, Any]


def changes_of(frame: DataFrame, on: Sequence[Column], to_bytes: "RowsToBytes") -> DataFrame:
    """The rows as bytes, in the slot of their next step."""
    compared = [column.alias(f"{ON}{place}") for place, column in enumerate(on)]
    own = [quoted(name) for name in columns_of(frame)]
    whole = frame.select(
        *own, *compared, is_coming(frame).alias(COMES), order_of(frame).alias(ORDER)
    )
    return whole.mapInArrow(to_bytes, ROW_CHANGES)


@dataclass(frozen=True)
class RowsToBytes:
    """Runs in tasks. `by_key`: the next step is by primary key, else by join key.

    Rows of a side that is not `kept` are nothing without a whole join key, which matches none.
    """

    key: tuple[str, ...]
    side: int = 0
    by_key: bool = True
    kept: bool = True

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(ROW_CHANGES)
        for batch in batches:
            rows = [_slotted(*self._change(row)) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema)

    def _change(self, row: Row) -> tuple[RowChange, str]:
        """And what decides its slot."""
        key = identity(row[name] for name in self.key)
        on = [row.pop(name) for name in list(row) if name.startswith(ON)]
        coming, order = row.pop(COMES), row.pop(ORDER)
        join = identity(on)
        if None in on:
            join, coming = f"{self.side} {key}", coming and self.kept
        change = RowChange(self.side, key, join, to_bytes(row) if coming else None, order)
        return change, f"{self.side} {key}" if self.by_key else join


def _slotted(change: RowChange, key: str) -> Row:
    return {SLOT: slot_of(key), **change._asdict()}


def to_bytes(row: Row) -> bytes:
    return dump_plain(row)


def from_bytes(row: bytes) -> Row:
    found: Row = load_plain(row)
    return found


def batch_of(rows: Iterable[Row], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Rows with `_change` as columns; `_order` is the number of the batch, which rises, and no key
    changes twice in one."""
    task = TaskContext.get()
    order = int(task.getLocalProperty(BATCH_PROPERTY) or 0) if task else 0
    whole = [row | {ORDER: order} for row in rows]
    if whole:
        yield pa.RecordBatch.from_pylist(whole, to_arrow_schema(schema, timezone="UTC"))
