"""Answers what readers ask of a view from its rows in Arrow: for stores that give them whole.

A store says how to load what it serves; what it gives again, the same table, is put in order by
key once. Keys are then found by halving, so a `get` does not look at every row. Knows no store.
"""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.ports import Positions
from millstream.base.schema import Schema
from millstream.views.conditions import (
    NAN_RANK,
    Condition,
    Order,
    Rank,
    conditions_of,
    is_ranked_by_value,
    orders_of,
    rank,
    require_limit,
)
from millstream.views.keys import fitted_bound, key_fitter, key_values
from millstream.views.moment_reads import MomentReads
from millstream.views.store import Row
from millstream.views.stores.arrow_columns import in_python_zone
from millstream.views.table_layout import StoredColumn, TableLayout

COMPARE: Mapping[str, Callable[[pa.ChunkedArray, Any], pa.ChunkedArray]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a store serves: one row for each key, in any order, with the columns of the schema."""

    schema: Schema
    key: tuple[str, ...]
    table: pa.Table
    positions: Positions = field(default_factory=dict)


class ArrowMoment:
    """A view's rows as of one batch of its job."""

    def __init__(self, view: str, loaded: Loaded) -> None:
        self.loaded = loaded
        self.layout = TableLayout(view, loaded.schema, loaded.key)
        self._fit_key = key_fitter(self.layout)

    @property
    def schema(self) -> Schema:
        return self.layout.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self.layout.key

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        return [self._get(self._fit_key(key)) for key in keys]

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        require_limit(limit)
        start = self._place(first, bisect_left, otherwise=0)
        end = self._place(last, bisect_right, otherwise=self.count())
        return rows_of(self.arrow().slice(start, max(0, end - start)).slice(0, limit))

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        require_limit(limit)
        conditions, orders = conditions_of(self.layout, where), orders_of(self.layout, order_by)
        found = self.arrow()
        for condition in conditions:
            found = found.filter(mask_of(condition, found))
        asked = orders[: -len(self.layout.key_columns)]
        return rows_of(in_order(found, asked).slice(0, limit))

    def count(self) -> int:
        return int(self.loaded.table.num_rows)

    def position(self) -> Positions:
        return self.loaded.positions

    def arrow(self) -> pa.Table:
        """All rows, by key, each column as the schema says."""
        return self._by_key

    @cached_property
    def _by_key(self) -> pa.Table:
        table = self.loaded.table.select([one.name for one in self.layout.schema])
        return in_order(table, [Order(column) for column in self.layout.key_columns])

    @cached_property
    def _key_arrays(self) -> list[pa.ChunkedArray]:
        return [values_of(column, self._by_key) for column in self.layout.key_columns]

    def _rank_at(self, place: int) -> Rank:
        return tuple(rank(array[place].as_py()) for array in self._key_arrays)

    def _get(self, key: Row) -> Row | None:
        wanted = tuple(rank(value) for value in key_values(self.layout, key))
        place = bisect_left(range(self.count()), wanted, key=self._rank_at)
        if place == self.count() or self._rank_at(place) != wanted:
            return None
        return rows_of(self._by_key.slice(place, 1))[0]

    def _place(self, given: Any, bisect: Callable[..., int], *, otherwise: int) -> int:
        bound = fitted_bound(self.layout, given)
        if not bound:
            return otherwise
        wanted = tuple(rank(value) for _, value in bound)
        first_parts = lambda place: self._rank_at(place)[: len(wanted)]  # noqa: E731
        return bisect(range(self.count()), wanted, key=first_parts)


class ArrowReads(MomentReads):
    """A `ViewReads`. `load` gives what is served now; the same object if nothing has changed."""

    def __init__(
        self, view: str, load: Callable[[], Loaded], *, close: Callable[[], None] | None = None
    ) -> None:
        self._view, self._load, self._close = view, load, close
        self._lock = threading.Lock()
        self._known: ArrowMoment | None = None

    @contextmanager
    def moment(self) -> Iterator[ArrowMoment]:
        """What is asked of it belongs together."""
        yield self._now()

    def _now(self) -> ArrowMoment:
        with self._lock:
            loaded = self._load()
            if self._known is None or self._known.loaded is not loaded:
                self._known = ArrowMoment(self._view, loaded)
            return self._known

    def arrow(self) -> pa.Table:
        return self._now().arrow()

    def close(self) -> None:
        with self._lock:
            self._known = None
        if self._close is not None:
            self._close()


def rows_of(table: pa.Table) -> list[Row]:
    found: list[Row] = in_python_zone(table).to_pylist(maps_as_pydicts="strict")
    return found


def values_of(column: StoredColumn, table: pa.Table) -> pa.ChunkedArray:
    """Of a column, or of a part of a struct: null where the struct is."""
    values = table.column(column.path[0])
    for part in column.path[1:]:
        values = pc.struct_field(values, part)
    return values


def in_order(table: pa.Table, orders: Sequence[Order]) -> pa.Table:
    """By the last order first: each sort keeps what the ones before it have done."""
    for order in reversed(orders):
        table = table.take(_places(order, values_of(order.column, table)))
    return table


def _places(order: Order, values: pa.ChunkedArray) -> Any:
    if not is_ranked_by_value(order.column.type):
        ranks = [rank(value) for value in values.to_pylist(maps_as_pydicts="strict")]
        return pa.array(sorted(range(len(ranks)), key=ranks.__getitem__), pa.int64())
    descending = order.is_descending
    direction = "descending" if descending else "ascending"
    nulls = "at_start" if descending else "at_end"
    return pc.array_sort_indices(values, order=direction, null_placement=nulls)


def mask_of(condition: Condition, table: pa.Table) -> Any:
    """Which rows meet the condition."""
    values = values_of(condition.column, table)
    if _is_for_python(condition, values):
        return _mask_in_python(condition, values)
    match condition.operator:
        case "in":
            return pc.is_in(values, value_set=pa.array(condition.value, values.type))
        case "starts with":
            return pc.fill_null(pc.starts_with(values, condition.value), False)
        case "=" | "!=" if condition.value is None:
            return pc.is_null(values) if condition.operator == "=" else pc.is_valid(values)
        case operator:
            holds = COMPARE[operator](values, pa.scalar(condition.value, values.type))
            return pc.fill_null(holds, operator == "!=")


def _is_for_python(condition: Condition, values: pa.ChunkedArray) -> bool:
    """What Arrow does not compare, or not as we do: lists, NaN, -0.0 in a list of values."""
    if not is_ranked_by_value(condition.column.type):
        return True
    if not pa.types.is_floating(values.type):
        return False
    has_nan = bool(pc.any(pc.is_nan(values)).as_py())
    return has_nan or condition.operator == "in" or rank(condition.value) == NAN_RANK


def _mask_in_python(condition: Condition, values: pa.ChunkedArray) -> pa.Array:
    plain = values.to_pylist(maps_as_pydicts="strict")
    found = (_nested(condition.column.path, value) for value in plain)
    return pa.array([condition.is_met(row) for row in found], pa.bool_())


def _nested(path: Sequence[str], value: Any) -> Any:
    for part in reversed(path):
        value = {part: value}
    return value
