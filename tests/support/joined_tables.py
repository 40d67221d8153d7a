"""A join of tables as its stream runs it, step by step, without Spark: pages in dictionaries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from millstream.base.changes import CHANGE, COMING, ORDER, UPSERT
from millstream.processing.operators.row_changes import COMES, ON, RowsToBytes
from millstream.processing.operators.table_join_plan import KEPT, JoinPlan, TableSide
from millstream.processing.operators.table_join_stream import (
    PAIR_CHANGES,
    Join,
    NetRows,
    PairShape,
    follow,
)
from millstream.processing.state.paged_state import SLOT, SLOTS
from tests.support.page_dictionary import PageDictionary

Row = dict[str, Any]


def slots() -> list[PageDictionary]:
    return [PageDictionary() for _ in range(SLOTS)]


@dataclass
class JoinedTables:
    plan: JoinPlan
    moves: list[PageDictionary] = field(default_factory=slots)
    groups: list[PageDictionary] = field(default_factory=slots)

    def take(self, left: Sequence[Row] = (), right: Sequence[Row] = ()) -> list[Row]:
        """The changes that one batch of both sides makes."""
        placed: list[Row] = []
        for number, (side, rows) in enumerate(zip(self.plan.sides, (left, right), strict=True)):
            changes = self._bytes_of(number, side, rows)
            placed += self._followed(changes) if side.moves else changes
        shape = PairShape.of(self.plan)
        join = Join(shape, (self.plan.left.kept, self.plan.right.kept))
        pairs = stepped(self.groups, placed, join, PAIR_CHANGES.names)
        batch = pa.RecordBatch.from_pylist(pairs, to_arrow_schema(PAIR_CHANGES))
        return [row for made in NetRows(shape)([batch]) for row in made.to_pylist()]

    def _bytes_of(self, number: int, side: TableSide, rows: Iterable[Row]) -> list[Row]:
        on = [StructField(f"{ON}{place}", type_) for place, type_ in enumerate(self.plan.types)]
        signs = [StructField(COMES, BooleanType()), StructField(ORDER, LongType())]
        schema = to_arrow_schema(StructType([*side.columns, *on, *signs]), timezone="UTC")
        whole = [
            {name: value for name, value in row.items() if name not in (CHANGE, ORDER)}
            | {f"{ON}{place}": row.get(name) for place, name in enumerate(side.on)}
            | {COMES: row.get(CHANGE, UPSERT) in COMING, ORDER: row.get(ORDER, 0)}
            for row in rows
        ]
        coded = RowsToBytes(side.key, number, by_key=side.moves, kept=side.kept)
        made = coded([pa.RecordBatch.from_pylist(whole, schema)])
        return [change for batch in made for change in batch.to_pylist()]

    def _followed(self, changes: list[Row]) -> list[Row]:
        names = [SLOT, "side", "key", "join", "row", "order"]
        return stepped(self.moves, changes, follow, names)


def stepped(
    slots: list[PageDictionary], rows: list[Row], step: Any, names: Sequence[str]
) -> list[Row]:
    """What a step makes of the rows of every slot."""
    made: list[Row] = []
    for slot in {row[SLOT] for row in rows}:
        own = (
            tuple(value for name, value in row.items() if name != SLOT)
            for row in rows
            if row[SLOT] == slot
        )
        made += [dict(zip(names, out, strict=True)) for out in step(slots[slot], own)]
    return made


def side_of(schema: StructType, *, key: Sequence[str], on: Sequence[str], kept: bool) -> TableSide:
    return TableSide(tuple(schema.fields), tuple(key), tuple(on), kept)


def plan_of(left: TableSide, right: TableSide, how: str) -> JoinPlan:
    """Columns of the join have the left side's types."""
    fields = {column.name: column.dataType for column in left.columns}
    types = tuple(fields[name] for name in left.on)
    assert (left.kept, right.kept) == KEPT[how]
    return JoinPlan(how, left, right, types, tuple(dict.fromkeys(left.key + right.key)))
