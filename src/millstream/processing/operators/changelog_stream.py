"""Steps of changelogs: the shell around changelog_state.py, aggregate_state.py and top_state.py.

replaced_stream   by key                     the row that is gone, the row that came
net_stream        by key, without a state    one upsert or delete of each key
aggregated        by key, then by group      results of the groups that changed
first_rows        by key, then by group      rows that are among the first now, or no longer
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
from millstream.processing.operators.aggregate_state import (
    TableAggregate,
    Weighted,
    aggregate_rows,
)
from millstream.processing.operators.changelog_columns import columns_of, quoted
from millstream.processing.operators.changelog_state import net_changes, replaced_rows
from millstream.processing.operators.row_changes import (
    CHANGE_FIELDS,
    RowsToBytes,
    batch_of,
    changes_of,
    from_bytes,
    to_bytes,
)
from millstream.processing.operators.table_join_state import RowChange
from millstream.processing.operators.top_state import Placed, Top
from millstream.processing.operators.value_order import RowOrder
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


def aggregated(
    frame: DataFrame,
    key: tuple[str, ...],
    by: tuple[str, ...],
    of: Mapping[str, TableAggregate],
    schema: StructType,
) -> DataFrame:
    weighted = _weighted(frame, key, by)
    changed = in_slots(weighted, AggregateRows(by, dict(of)), REPLACED, *of.values(), "by", by)
    return changed.mapInArrow(FromBytes(schema, came=UPSERT, gone=DELETE), schema)


def _weighted(frame: DataFrame, key: tuple[str, ...], by: tuple[str, ...]) -> DataFrame:
    rows = changes_of(frame, (), RowsToBytes(key))
    return in_slots(rows, Weigh(by), WEIGHTED, "rows by", key, "in groups by", by)


@dataclass(frozen=True)
class Weigh:
    """The step by key: a row that came adds to its group, one that is gone takes from it."""

    by: tuple[str, ...]

    def __call__(self, store: PageStore, rows: Rows) -> Rows:
        for gone, row in replaced_rows(store, map(RowChange._make, rows)):
            group = identity(_values(from_bytes(row), self.by))
            yield slot_of(group), -1 if gone else 1, group, row


@dataclass(frozen=True)
class AggregateRows:
    """The step by group."""

    by: tuple[str, ...]
    of: dict[str, TableAggregate]

    def __call__(self, store: PageStore, rows: Rows) -> Rows:
        weighted = (self._weighted(*row) for row in rows)
        for by, results in aggregate_rows(store, weighted, list(self.of.values())):
            found = dict(zip(self.of, results or (), strict=results is not None))
            yield results is None, to_bytes(dict(zip(self.by, by, strict=True)) | found)

    def _weighted(self, weight: int, group: str, row: bytes) -> Weighted:
        values = from_bytes(row)
        own = tuple(values.get(one.column) if one.column else 1 for one in self.of.values())
        return Weighted(weight, group, _values(values, self.by), own)


def first_rows(frame: DataFrame, plan: "TopPlan", schema: StructType) -> DataFrame:
    """A row that moves to another group may be among the first of both: only its last is left."""
    weighted = _weighted(frame, plan.key, plan.by)
    changed = in_slots(weighted, TopRows(plan), REPLACED, *plan.terms)
    found = changed.mapInArrow(FromBytes(schema, came=UPSERT, gone=DELETE), schema)
    return found if set(plan.by) <= set(plan.key) else net_stream(found, plan.key)


@dataclass(frozen=True)
class TopPlan:
    """The first `count` rows of each group; `rank` is the column that says which it is."""

    count: int
    by: tuple[str, ...]
    order_by: tuple[str, ...]
    descending: tuple[bool, ...]
    key: tuple[str, ...]
    rank: str | None

    @property
    def terms(self) -> tuple[object, ...]:
        order = zip(self.order_by, self.descending, strict=True)
        named = tuple(f"-{name}" if descending else name for name, descending in order)
        return f"first {self.count} by", self.by, "in order of", named, self.key, self.rank


@dataclass(frozen=True)
class TopRows:
    """The step by group."""

    plan: TopPlan

    def __call__(self, store: PageStore, rows: Rows) -> Rows:
        plan = self.plan
        order = RowOrder(plan.descending + (False,) * len(plan.key))
        top = Top(plan.count, order, len(plan.key), numbered=plan.rank is not None)
        for number, row in top.changes(store, (self._placed(*row) for row in rows)):
            yield not number, self._shown(number, from_bytes(row))

    def _placed(self, weight: int, group: str, row: bytes) -> Placed:
        place = _values(from_bytes(row), (*self.plan.order_by, *self.plan.key))
        return Placed(weight, group, place, row)

    def _shown(self, number: int, row: Row) -> bytes:
        if not number:
            return to_bytes({name: row[name] for name in self.plan.key})
        return to_bytes(row if self.plan.rank is None else row | {self.plan.rank: number})


def _values(row: Row, names: Iterable[str]) -> tuple[Any, ...]:
    """A row that was kept before a column came has null in it."""
    return tuple(row.get(name) for name in names)
