"""Definitions of views as small trees, which three readers take: a naive one, that computes a view
anew from its tables' rows (here), the pure steps (kept_views.py), and Spark (spark_views.py).

The naive one knows nothing of changes; it is what the others must come to.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pyspark.sql.types import DataType, IntegerType, LongType

from millstream.processing.operators.aggregate_state import TableAggregate
from millstream.processing.operators.window_types import result_type

Row = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]
Columns = dict[str, DataType]


class Definition(ABC):
    """A table that is made of others: its columns, its key, and its rows."""

    columns: Columns
    key: tuple[str, ...]

    @abstractmethod
    def rows(self, tables: Tables) -> list[Row]: ...

    def named(self, *types: type[DataType]) -> list[str]:
        """The columns of these types."""
        return [name for name, type_ in self.columns.items() if isinstance(type_, types)]


@dataclass
class Table(Definition):
    name: str
    columns: Columns
    key: tuple[str, ...]

    def rows(self, tables: Tables) -> list[Row]:
        return [dict(row) for row in tables[self.name]]


@dataclass
class AtLeast(Definition):
    """Rows whose whole number in a column is not below `least`."""

    of: Definition
    column: str
    least: int

    def __post_init__(self) -> None:
        self.columns, self.key = self.of.columns, self.of.key

    def keeps(self, row: Row) -> bool:
        return row[self.column] is not None and bool(row[self.column] >= self.least)

    def rows(self, tables: Tables) -> list[Row]:
        return list(filter(self.keeps, self.of.rows(tables)))


@dataclass
class Remainder(Definition):
    """One more column: what is left of another when it is divided by two."""

    of: Definition
    column: str
    name: str

    def __post_init__(self) -> None:
        self.columns = self.of.columns | {self.name: LongType()}
        self.key = self.of.key

    def with_remainder(self, row: Row) -> Row:
        number = row.get(self.column)
        return row | {self.name: None if number is None else int(math.fmod(number, 2))}

    def rows(self, tables: Tables) -> list[Row]:
        return list(map(self.with_remainder, self.of.rows(tables)))


@dataclass
class Renamed(Definition):
    """Every column with an ending of its own, so that a join has no two of one name."""

    of: Definition
    ending: str

    def __post_init__(self) -> None:
        self.columns = {self.new(name): type_ for name, type_ in self.of.columns.items()}
        self.key = tuple(map(self.new, self.of.key))

    def new(self, name: str) -> str:
        return name + self.ending

    def rows(self, tables: Tables) -> list[Row]:
        rows = self.of.rows(tables)
        return [{self.new(name): value for name, value in row.items()} for row in rows]


@dataclass
class Totals(Definition):
    of: Definition
    by: tuple[str, ...]
    aggregates: dict[str, TableAggregate]

    def __post_init__(self) -> None:
        self.columns = {name: self.of.columns[name] for name in self.by} | {
            name: result_type(one, self.of.columns.get(one.column or ""))
            for name, one in self.aggregates.items()
        }
        self.key = self.by

    def rows(self, tables: Tables) -> list[Row]:
        groups: dict[str, list[Row]] = {}
        for row in self.of.rows(tables):
            own = [plain(row[name]) for name in self.by]
            groups.setdefault(repr(own), []).append(row)
        return [self._result(rows) for rows in groups.values()]

    def _result(self, rows: list[Row]) -> Row:
        return {name: plain(rows[0][name]) for name in self.by} | {
            name: self._aggregate(one, rows) for name, one in self.aggregates.items()
        }

    def _aggregate(self, one: TableAggregate, rows: list[Row]) -> Any:
        if one.column is None:
            return len(rows)
        values = [plain(row[one.column]) for row in rows if row[one.column] is not None]
        return NAIVE[one.function](sorted(values, key=naive_order))


@dataclass
class Distinct(Totals):
    def __init__(self, of: Definition, by: tuple[str, ...]) -> None:
        super().__init__(of, by, {})


@dataclass
class Top(Definition):
    of: Definition
    count: int
    by: tuple[str, ...]
    order_by: tuple[str, ...]
    rank: str | None

    def __post_init__(self) -> None:
        more = {} if self.rank is None else {self.rank: IntegerType()}
        self.columns = self.of.columns | more
        self.key = self.of.key

    def rows(self, tables: Tables) -> list[Row]:
        groups: dict[str, list[Row]] = {}
        for row in self._in_order(self.of.rows(tables)):
            groups.setdefault(repr([plain(row[name]) for name in self.by]), []).append(row)
        return [
            row if self.rank is None else row | {self.rank: number}
            for rows in groups.values()
            for number, row in enumerate(rows[: self.count], 1)
        ]

    def _in_order(self, rows: list[Row]) -> list[Row]:
        """The least important column first: sorting keeps the order of equals."""
        for name in reversed((*self.order_by, *self.key)):
            column = name.removeprefix("-")
            rows = sorted(rows, key=_column_order(column), reverse=name.startswith("-"))
        return rows


def _column_order(column: str) -> Callable[[Row], Any]:
    return lambda row: naive_order(row[column])


@dataclass
class Join(Definition):
    """No column of the one is called as one of the other."""

    left: Definition
    right: Definition
    on: tuple[str, str]
    how: str

    def __post_init__(self) -> None:
        self.columns = self.left.columns | self.right.columns
        self.key = self.left.key + self.right.key

    def rows(self, tables: Tables) -> list[Row]:
        lefts, rights = self.left.rows(tables), self.right.rows(tables)
        met = [
            (i, j)
            for i in range(len(lefts))
            for j in range(len(rights))
            if self._meet(lefts[i], rights[j])
        ]
        found = [lefts[i] | rights[j] for i, j in met]
        if self.how in ("left", "full"):
            nothing = dict.fromkeys(self.right.columns)
            alone = set(range(len(lefts))) - {i for i, _ in met}
            found += [lefts[i] | nothing for i in alone]
        if self.how in ("right", "full"):
            nothing = dict.fromkeys(self.left.columns)
            alone = set(range(len(rights))) - {j for _, j in met}
            found += [nothing | rights[j] for j in alone]
        return found

    def _meet(self, left: Row, right: Row) -> bool:
        one, other = left[self.on[0]], right[self.on[1]]
        return one is not None and one == other


def plain(value: Any) -> Any:
    """0.0 and -0.0 are the same value."""
    return value + 0.0 if isinstance(value, float) else value


def naive_order(value: Any) -> Any:
    if value is None:
        return (0, 0, 0)
    if isinstance(value, list):
        return (1, 0, [naive_order(one) for one in value])
    is_nan = isinstance(value, float) and math.isnan(value)
    return (1, 1, 0) if is_nan else (1, 0, value)


def exact_sum(values: Sequence[Any]) -> Any:
    if not values:
        return None
    if all(isinstance(value, int) for value in values):
        return sum(values)
    beyond = [value for value in values if not math.isfinite(value)]
    return sum(beyond) if beyond else as_float(sum(map(Fraction, values)))


def exact_average(values: Sequence[Any]) -> Any:
    if not values:
        return None
    beyond = [value for value in values if not math.isfinite(value)]
    return sum(beyond) if beyond else as_float(Fraction(sum(map(Fraction, values)), len(values)))


def as_float(number: Fraction | int) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


NAIVE: dict[str, Callable[[Sequence[Any]], Any]] = {
    "count": len,
    "sum": exact_sum,
    "avg": exact_average,
    "min": lambda values: values[0] if values else None,
    "max": lambda values: values[-1] if values else None,
    "count_distinct": lambda values: len(set(map(repr, values))),
    "collect": list,
}
