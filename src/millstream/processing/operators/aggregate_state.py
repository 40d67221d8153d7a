"""Aggregates of a table's rows by group, which follow rows that come and go. Pure.

Count, sum and average are linear: every row adds to them with its weight, +1 when it comes and -1
when it goes, and leaves nothing behind. For the least, the greatest, the distinct and all values of
a column, the group keeps them in order, each with the number of rows that have it: when one goes,
the next is there. Many values are in pages of their own, and a change costs those that it touches.

Either way a result depends on the rows that are there alone, to the last digit.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from millstream.base.identity import identity
from millstream.processing.operators.aggregates import (
    Average,
    Collected,
    Count,
    DistinctCount,
    Greatest,
    Least,
    Sum,
    add_exactly,
    exact_from,
)
from millstream.processing.operators.value_order import rank_of, with_plain_zeros
from millstream.processing.state.ordered_pages import OrderedPages
from millstream.processing.state.paged_map import PagedMap, PageStore

LinearAggregate = Count | Sum | Average
OrderedAggregate = Least | Greatest | DistinctCount | Collected
TableAggregate = LinearAggregate | OrderedAggregate


class Weighted(NamedTuple):
    """A row of `group` that came (+1) or is gone (-1). `by` has the group's values, `values` those
    of the aggregates' columns."""

    weight: int
    group: str
    by: tuple[Any, ...]
    values: tuple[Any, ...]


class GroupResult(NamedTuple):
    """The results of a group; None: it has no rows any more."""

    by: tuple[Any, ...]
    results: tuple[Any, ...] | None


def aggregate_rows(
    store: PageStore, rows: Iterable[Weighted], aggregates: Sequence[TableAggregate]
) -> Iterator[GroupResult]:
    """The groups whose results these rows have changed."""
    groups = Groups(store, aggregates)
    for name, same in _by_group(rows).items():
        group = groups.open(name, same[0].by)
        was = groups.results(group)
        groups.add(group, same)
        now = groups.results(group)
        if identity(was or ()) != identity(now or ()) or (was is None) != (now is None):
            yield GroupResult(group.by, now)
        groups.keep(name, group)
    groups.save()


def _by_group(rows: Iterable[Weighted]) -> Mapping[str, list[Weighted]]:
    found: dict[str, list[Weighted]] = defaultdict(list)
    for row in rows:
        found[row.group].append(row)
    return found


@dataclass
class Group:
    """One group while its rows change: totals of linear aggregates, values of the others."""

    by: tuple[Any, ...]
    rows: int
    totals: list["Total"]
    values: list[OrderedPages]


class Groups:
    """The groups of one slot. Aggregates of one column share its values."""

    def __init__(self, store: PageStore, aggregates: Sequence[TableAggregate]) -> None:
        self._store = store
        self._aggregates = aggregates
        self._kept = PagedMap(store, "groups")
        self._linear = [
            place for place, one in enumerate(aggregates) if isinstance(one, LinearAggregate)
        ]
        self._ordered = {  # one place for each column
            one.column: place
            for place, one in enumerate(aggregates)
            if isinstance(one, OrderedAggregate)
        }

    def open(self, name: str, by: tuple[Any, ...]) -> Group:
        fresh = (
            tuple(map(with_plain_zeros, by)),
            0,
            (Total(),) * len(self._linear),
            (None,) * len(self._ordered),
        )
        by, rows, totals, roots = self._kept.get(name, fresh)
        values = [
            OrderedPages(self._store, f"{place}{name}", rank_of, root)
            for place, root in enumerate(roots)
        ]
        return Group(by, rows, list(totals), values)

    def keep(self, name: str, group: Group) -> None:
        roots = tuple(values.save() for values in group.values)
        if group.rows:
            self._kept[name] = (group.by, group.rows, tuple(group.totals), roots)
        else:
            self._kept.pop(name, None)

    def save(self) -> None:
        self._kept.save()

    def add(self, group: Group, rows: Sequence[Weighted]) -> None:
        group.rows += sum(row.weight for row in rows)
        for number, place in enumerate(self._linear):
            for row in rows:
                if (value := row.values[place]) is not None:
                    group.totals[number] = group.totals[number].plus(value, row.weight)
        for values, place in zip(group.values, self._ordered.values(), strict=True):
            count_values(values, ((row.values[place], row.weight) for row in rows))

    def results(self, group: Group) -> tuple[Any, ...] | None:
        if not group.rows:
            return None
        totals = dict(zip(self._linear, group.totals, strict=True))
        values = dict(zip(self._ordered, group.values, strict=True))
        return tuple(
            linear_result(one, totals[place], group.rows)
            if isinstance(one, LinearAggregate)
            else ordered_result(one, values[one.column])
            for place, one in enumerate(self._aggregates)
        )


# Linear aggregates


class Total(NamedTuple):
    """Of one column: how many values it has, the exact sum of the finite ones, and the others."""

    present: int = 0
    exact: Any = None
    nans: int = 0
    infinities: int = 0
    negative_infinities: int = 0

    def plus(self, value: Any, weight: int) -> "Total":
        other = _total_of(value, weight)
        exact = other.exact if self.exact is None else add_exactly(self.exact, other.exact)
        counts = (one + more for one, more in zip(self[2:], other[2:], strict=True))
        return Total(self.present + weight, exact, *counts)


def _total_of(value: Any, weight: int) -> Total:
    if isinstance(value, float) and not math.isfinite(value):
        signs = (math.isnan(value), value > 0, value < 0)
        return Total(weight, exact_from(0.0), *(weight * sign for sign in signs))
    exact = exact_from(value) if isinstance(value, int | float | Decimal) else 0
    return Total(weight, exact if weight > 0 else _negative(exact))


def _negative(exact: Any) -> Any:
    if isinstance(exact, tuple):
        return -exact[0], exact[1]
    return exact.copy_negate() if isinstance(exact, Decimal) else -exact


def linear_result(aggregate: LinearAggregate, total: Total, rows: int) -> Any:
    if isinstance(aggregate, Count):
        return rows if aggregate.column is None else total.present
    if not total.present:
        return None
    if beyond := _beyond(total):
        return beyond
    if isinstance(aggregate, Sum):
        return aggregate.result(total.exact)
    return aggregate.result((total.exact, total.present))


def _beyond(total: Total) -> float | None:
    """What a sum is that has more in it than finite numbers."""
    if total.nans or (total.infinities and total.negative_infinities):
        return math.nan
    if total.infinities:
        return math.inf
    return -math.inf if total.negative_infinities else None


# Aggregates of values in order


def count_values(values: OrderedPages, changes: Iterable[tuple[Any, int]]) -> None:
    """Each value has the number of rows that have it; nulls are none."""
    weights: dict[str, tuple[Any, int]] = {}
    for value, weight in changes:
        if value is not None:
            same = identity([value])
            weights[same] = value, weights.get(same, (value, 0))[1] + weight
    for value, weight in weights.values():
        if weight:
            _count_value(values, with_plain_zeros(value), weight)


def _count_value(values: OrderedPages, value: Any, weight: int) -> None:
    count = values.get(value, 0) + weight
    if count:
        values[value] = count
    else:
        del values[value]


def ordered_result(aggregate: OrderedAggregate, values: OrderedPages) -> Any:
    match aggregate:
        case DistinctCount():
            return len(values)
        case Collected():
            return [value for value, count in values.items() for _ in range(count)]
        case Least():
            return values.first() if len(values) else None
        case Greatest():
            return values.last() if len(values) else None
