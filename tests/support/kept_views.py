"""Views as streams keep them, step by step and without Spark: changes in, changes out.

Each definition (view_definitions.py) runs the steps that tasks of its stream run, over pages in
dictionaries.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from millstream.base.changes import CHANGE, COMING, DELETE, ORDER, UPSERT
from millstream.base.identity import identity
from millstream.processing.operators.changelog_state import net_changes
from millstream.processing.operators.changelog_stream import (
    REPLACED,
    WEIGHTED,
    AggregateRows,
    FromBytes,
    TopPlan,
    TopRows,
    Weigh,
)
from millstream.processing.operators.row_changes import CHANGE_FIELDS, COMES, RowsToBytes
from millstream.processing.operators.table_join_plan import KEPT, JoinPlan
from tests.support.joined_tables import JoinedTables, Row, side_of, slots, stepped
from tests.support.page_dictionary import PageDictionary
from tests.support.view_definitions import (
    AtLeast,
    Columns,
    Definition,
    Join,
    Remainder,
    Renamed,
    Table,
    Top,
    Totals,
)

Changes = Mapping[str, Sequence[Row]]


class KeptView(Protocol):
    def take(self, changes: Changes) -> list[Row]:
        """What a batch of changes, by table, changes in the view."""

    def pages(self) -> int:
        """How many are kept."""


def kept(definition: Definition) -> KeptView:
    match definition:
        case Table(name):
            return KeptTable(name)
        case AtLeast(of) | Remainder(of) | Renamed(of):
            return KeptRows(kept(of), definition)
        case Totals(of):
            step = AggregateRows(definition.by, definition.aggregates)
            return KeptGroups(kept(of), of, definition.columns, definition.by, step)
        case Top(of):
            rows = KeptGroups(
                kept(of), of, definition.columns, definition.by, TopRows(top_plan(definition))
            )
            return NetOfKeys(rows, definition.key)
        case Join(left, right):
            return KeptJoin(kept(left), kept(right), JoinedTables(join_plan(definition)))
    raise AssertionError(definition)


@dataclass
class KeptTable:
    name: str

    def take(self, changes: Changes) -> list[Row]:
        return [dict(row) for row in changes.get(self.name, ())]

    def pages(self) -> int:
        return 0


@dataclass
class KeptRows:
    """What Spark's expressions do with each row alone."""

    of: KeptView
    definition: Definition

    def take(self, changes: Changes) -> list[Row]:
        return [made for row in self.of.take(changes) for made in self._changes(row)]

    def pages(self) -> int:
        return self.of.pages()

    def _changes(self, row: Row) -> Iterator[Row]:
        match self.definition:
            case Renamed():
                signs = {CHANGE: row.pop(CHANGE), ORDER: row.pop(ORDER, 0)}
                yield {self.definition.new(name): value for name, value in row.items()} | signs
            case Remainder():
                yield self.definition.with_remainder(row)
            case AtLeast() if row[CHANGE] != DELETE and self.definition.keeps(row):
                yield row
            case _ if row[CHANGE] in (UPSERT, DELETE):
                signs = {CHANGE: DELETE, ORDER: row.get(ORDER, 0)}
                yield {name: row[name] for name in self.definition.key} | signs


@dataclass
class KeptGroups:
    """Rows by key, then by group: aggregates and first rows."""

    of: KeptView
    table: Definition
    columns: Columns
    by: tuple[str, ...]
    step: Any
    rows: list[PageDictionary] = field(default_factory=slots)
    groups: list[PageDictionary] = field(default_factory=slots)

    def take(self, changes: Changes) -> list[Row]:
        coded = RowsToBytes(self.table.key)([coming_rows(self.table, self.of.take(changes))])
        rows = [row for batch in coded for row in batch.to_pylist()]
        weighted = stepped(self.rows, rows, Weigh(self.by), WEIGHTED.names)
        replaced = stepped(self.groups, weighted, self.step, REPLACED.names)
        batch = pa.RecordBatch.from_pylist(replaced, to_arrow_schema(REPLACED))
        schema = StructType([*fields(self.columns), *CHANGE_FIELDS])
        made = FromBytes(schema, came=UPSERT, gone=DELETE)([batch])
        return [row for batch in made for row in batch.to_pylist()]

    def pages(self) -> int:
        return self.of.pages() + sum(len(one.pages) for one in (*self.rows, *self.groups))


@dataclass
class NetOfKeys:
    of: KeptView
    key: tuple[str, ...]

    def take(self, changes: Changes) -> list[Row]:
        return net_changes(self.of.take(changes), self.key)

    def pages(self) -> int:
        return self.of.pages()


@dataclass
class KeptJoin:
    left: KeptView
    right: KeptView
    joined: JoinedTables

    def take(self, changes: Changes) -> list[Row]:
        return self.joined.take(self.left.take(changes), self.right.take(changes))

    def pages(self) -> int:
        own = sum(len(one.pages) for one in (*self.joined.moves, *self.joined.groups))
        return own + self.left.pages() + self.right.pages()


def coming_rows(table: Definition, changes: Iterable[Row]) -> pa.RecordBatch:
    """As a frame is before its rows become bytes."""
    signs = [StructField(COMES, BooleanType()), StructField(ORDER, LongType())]
    schema = to_arrow_schema(StructType([*fields(table.columns), *signs]), timezone="UTC")
    rows = [
        row | {COMES: row.get(CHANGE, UPSERT) in COMING, ORDER: row.get(ORDER, 0)}
        for row in changes
    ]
    return pa.RecordBatch.from_pylist(rows, schema)


def fields(columns: Columns) -> list[StructField]:
    return [StructField(name, type_) for name, type_ in columns.items()]


def top_plan(top: Top) -> TopPlan:
    return TopPlan(
        count=top.count,
        by=top.by,
        order_by=tuple(name.removeprefix("-") for name in top.order_by),
        descending=tuple(name.startswith("-") for name in top.order_by),
        key=top.key,
        rank=top.rank,
    )


def join_plan(join: Join) -> JoinPlan:
    sides = zip((join.left, join.right), join.on, KEPT[join.how], strict=True)
    left, right = (
        side_of(StructType(fields(side.columns)), key=side.key, on=[on], kept=is_kept)
        for side, on, is_kept in sides
    )
    return JoinPlan(join.how, left, right, (LongType(),), join.key)


@dataclass
class Answer:
    """The rows that changes have made."""

    key: tuple[str, ...]
    rows: dict[str, Row] = field(default_factory=dict)

    def take(self, changes: Iterable[Row]) -> None:
        for change in sorted(changes, key=lambda one: (one.get(ORDER) or 0, one[CHANGE] in COMING)):
            key = identity(change.get(name) for name in self.key)
            self.rows.pop(key, None)
            if change[CHANGE] in COMING:
                signs = (CHANGE, ORDER)
                self.rows[key] = {n: value for n, value in change.items() if n not in signs}
