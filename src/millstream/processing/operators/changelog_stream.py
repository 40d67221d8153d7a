"""Steps of changelogs in a stream: the shell around changelog_state.py.

replaced_stream    by key                     the row that is gone, the row that came
net_stream         by key, without a state    one upsert or delete of each key
aggregate_stream   by key, then by group      results of the groups that changed
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from millstream.base.changes import CHANGE, DELETE, INSERT, RETRACT, UPSERT
from millstream.base.identity import identity
from millstream.processing.operators.changelog_columns import columns_of, quoted
from millstream.processing.operators.changelog_state import (
    LinearAggregate,
    Weighted,
    aggregate_rows,
    net_changes,
    replaced_rows,
)
from millstream.processing.operators.row_changes import (
    CHANGE_FIELDS,
    RowsToBytes,
    batch_of,
    changes_of,
    from_bytes,
    to_bytes,
)
from millstream.processing.operators.table_join_state import RowChange
from millstream.processing.state.paged_map import PageStore
from millstream.processing.state.paged_state import SLOT, in_slots, slot_of

REPLACED = StructType([StructField("gone", BooleanType()), StructField("row", BinaryType())])
WEIGHTED = StructType(
    [
        StructField(SLOT, IntegerType()),
        StructField("weight", IntegerType()),
        StructField("group", StringType()),
        StructField("row", BinaryType()),
    ]
)

Row = dict[str, Any]
Rows = Iterator[tuple[Any, ...]]


def changelog_schema(frame: DataFrame) -> StructType:
    """All may be null: a delete has only its key."""
    own = [StructField(name, frame.schema[name].dataType) for name in columns_of(frame)]
    return StructType([*own, *CHANGE_FIELDS])


def replaced_stream(frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
    replaced = in_slots(changes_of(frame, (), RowsToBytes(key)), replace, REPLACED, "rows by", key)
    schema = changelog_schema(frame)
    return replaced.mapInArrow(FromBytes(schema, came=INSERT, gone=RETRACT), schema)


def replace(store: PageStore, rows: Rows) -> Iterable[tuple[Any, ...]]:
    return replaced_rows(store, map(RowChange._make, rows))


@dataclass(frozen=True)
class FromBytes:
    """Runs in tasks: rows that came and are gone as changes."""

    schema: StructType
    came: str
    gone: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [self._row(**row) for row in batch.to_pylist()]
            yield from batch_of(rows, self.schema)

    def _row(self, gone: bool, row: bytes) -> Row:
        return from_bytes(row) | {CHANGE: self.gone if gone else self.came}


def net_stream(frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """Of static frames too: all of one is a batch."""
    schema = changelog_schema(frame)
    together = frame.repartition(*map(quoted, key))
    return together.mapInArrow(NetOfKeys(schema, key), schema)


@dataclass(frozen=True)
class NetOfKeys:
    """Runs in tasks: all changes of a key are in one."""

    schema: StructType
    key: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        changes = (row for batch in batches for row in batch.to_pylist())
        yield from batch_of(net_changes(changes, self.key), self.schema)


def aggregate_stream(
    frame: DataFrame,
    key: tuple[str, ...],
    by: tuple[str, ...],
    of: Mapping[str, LinearAggregate],
    schema: StructType,
) -> DataFrame:
    rows = changes_of(frame, (), RowsToBytes(key))
    weighted = in_slots(rows, Weigh(by), WEIGHTED, "rows by", key, "in groups by", by)
    changed = in_slots(weighted, Aggregate(by, dict(of)), REPLACED, *of.values(), "by", by)
    return changed.mapInArrow(FromBytes(schema, came=UPSERT, gone=DELETE), schema)


@dataclass(frozen=True)
class Weigh:
    """The step by key: a row that came adds to its group, one that is gone takes from it."""

    by: tuple[str, ...]

    def __call__(self, store: PageStore, rows: Rows) -> Rows:
        for gone, row in replaced_rows(store, map(RowChange._make, rows)):
            values = from_bytes(row)
            group = identity(values.get(name) for name in self.by)
            yield slot_of(group), -1 if gone else 1, group, row


@dataclass(frozen=True)
class Aggregate:
    """The step by group."""

    by: tuple[str, ...]
    of: dict[str, LinearAggregate]

    def __call__(self, store: PageStore, rows: Rows) -> Rows:
        weighted = (self._weighted(*row) for row in rows)
        for by, results in aggregate_rows(store, weighted, list(self.of.values())):
            found = dict(zip(self.of, results or (), strict=results is not None))
            yield results is None, to_bytes(dict(zip(self.by, by, strict=True)) | found)

    def _weighted(self, weight: int, group: str, row: bytes) -> Weighted:
        values = from_bytes(row)
        by = tuple(values.get(name) for name in self.by)
        own = tuple(values.get(one.column) if one.column else 1 for one in self.of.values())
        return Weighted(weight, group, by, own)
