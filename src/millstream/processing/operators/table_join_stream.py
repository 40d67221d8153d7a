"""A join of tables as a stream: rows become bytes, pass the steps of table_join_state.py, and
become rows again, of which only the net change of each key is left.

  changes_of       a side's rows as bytes    (row_changes.py)
  follow_moves     by primary key            leave and come, where the join key changed
  join_changes     by join key               pairs that came, pairs that are gone
  NetRows          by output key             a pair that moved is not gone
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructField, StructType

from millstream.base.changes import CHANGE, DELETE, UPSERT
from millstream.base.identity import identity
from millstream.processing.operators.changelog_columns import quoted
from millstream.processing.operators.changelog_state import KeyNamesTwoRows
from millstream.processing.operators.row_changes import (
    CHANGE_FIELDS,
    ROW_CHANGES,
    Row,
    RowsToBytes,
    batch_of,
    changes_of,
    from_bytes,
)
from millstream.processing.operators.table_join_plan import JoinPlan
from millstream.processing.operators.table_join_state import RowChange, follow_moves, join_changes
from millstream.processing.state.paged_map import PageStore
from millstream.processing.state.paged_state import in_slots, slot_of

PAIR_CHANGES = StructType(
    [
        StructField("key", StringType()),
        StructField("gone", BooleanType()),
        StructField("left", BinaryType()),
        StructField("right", BinaryType()),
    ]
)


def stream_join(left: DataFrame, right: DataFrame, plan: JoinPlan) -> DataFrame:
    followed: list[DataFrame] = []
    fixed: list[DataFrame] = []
    for number, frame in enumerate((left, right)):
        (followed if plan.sides[number].moves else fixed).append(_changes(frame, plan, number))
    if followed:
        keys = [side.key for side in plan.sides if side.moves]
        fixed.append(in_slots(_union(followed), follow, ROW_CHANGES, "rows by", *keys))
    shape = PairShape.of(plan)
    kept = plan.left.kept, plan.right.kept
    terms = "pairs by", *(side.on for side in plan.sides), *(side.key for side in plan.sides), kept
    pairs = in_slots(_union(fixed), Join(shape, kept), PAIR_CHANGES, *terms)
    # A row that moves is gone from one slot and comes in another: bring both to one place.
    met = pairs.repartition("key") if plan.moves else pairs
    return met.mapInArrow(NetRows(shape), shape.schema)


def _union(frames: list[DataFrame]) -> DataFrame:
    return frames[0] if len(frames) == 1 else frames[0].union(frames[1])


def _changes(frame: DataFrame, plan: JoinPlan, number: int) -> DataFrame:
    side = plan.sides[number]
    on = [quoted(name).cast(type_) for name, type_ in zip(side.on, plan.types, strict=True)]
    coder = RowsToBytes(side.key, number, by_key=side.moves, kept=side.kept)
    return changes_of(frame, on, coder)


def follow(store: PageStore, rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    for change in follow_moves(store, map(RowChange._make, rows)):
        yield slot_of(str(change.join)), *change


@dataclass(frozen=True)
class PairShape:
    """How two rows make one of the answer."""

    schema: StructType
    key: tuple[str, ...]

    @classmethod
    def of(cls, plan: JoinPlan) -> "PairShape":
        return cls(StructType([*plan.columns, *CHANGE_FIELDS]), plan.key)

    def row(self, left: bytes | None, right: bytes | None) -> Row:
        """Columns that both sides have are the left one's, if it is there."""
        row = from_bytes(right) if right is not None else {}
        return row | from_bytes(left) if left is not None else row

    def key_of(self, row: Row) -> Row:
        return {name: row.get(name) for name in self.key}


@dataclass(frozen=True)
class Join:
    """The step by join key; its pairs carry the key of the row that they are."""

    shape: PairShape
    kept: tuple[bool, bool]

    def __call__(
        self, store: PageStore, rows: Iterator[tuple[Any, ...]]
    ) -> Iterator[tuple[Any, ...]]:
        for pair in join_changes(store, map(RowChange._make, rows), kept=self.kept):
            key = self.shape.key_of(self.shape.row(pair.left, pair.right))
            yield identity(key.values()), *pair


@dataclass(frozen=True)
class NetRows:
    """Runs in tasks: rows that came at once; those that are gone at the end, if none came."""

    shape: PairShape

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in self._net(batches):
            yield from batch_of(rows, self.shape.schema)

    def _net(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[Row]]:
        came: set[str] = set()
        gone: dict[str, Row] = {}
        for batch in batches:
            pairs = batch.to_pylist()
            yield [self._came(pair, came) for pair in pairs if not pair["gone"]]
            gone |= {pair["key"]: self._gone(pair) for pair in pairs if pair["gone"]}
        yield [row for key, row in gone.items() if key not in came]

    def _came(self, pair: Row, came: set[str]) -> Row:
        row = self.shape.row(pair["left"], pair["right"])
        if pair["key"] in came:
            raise KeyNamesTwoRows(key=self.shape.key_of(row))
        came.add(pair["key"])
        return row | {CHANGE: UPSERT}

    def _gone(self, pair: Row) -> Row:
        key = self.shape.key_of(self.shape.row(pair["left"], pair["right"]))
        return key | {CHANGE: DELETE}
