"""What a changelog comes to: the net change of a batch, the rows replaced, the totals. Pure.

Rows are dictionaries, or opaque bytes where nothing looks into them. Totals are linear: every row
adds to them with its weight, +1 when it comes and -1 when it goes, and leaves nothing behind.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from millstream.base.changes import CHANGE, COMING, DELETE, INSERT, ORDER, RETRACT, UPSERT
from millstream.base.errors import Rejected
from millstream.base.identity import identity
from millstream.processing.operators.aggregates import (
    Average,
    Count,
    Sum,
    add_exactly,
    exact_from,
)
from millstream.processing.operators.table_join_state import RowChange, last_changes
from millstream.processing.state.paged_map import PagedMap, PageStore

Row = dict[str, Any]
LinearAggregate = Count | Sum | Average


class KeyNamesTwoRows(Rejected):
    def __init__(self, *, key: Mapping[str, Any]) -> None:
        super().__init__(
            f"one batch has two rows with the key {dict(key)}: the key must be the columns that "
            "tell rows apart"
        )
        self.key = key


# Net changes


def net_changes(changes: Iterable[Row], key: Sequence[str]) -> list[Row]:
    """At most one upsert or delete of each key, in whatever order the changes are."""
    by_key: dict[str, list[Row]] = defaultdict(list)
    for change in changes:
        by_key[identity(change[name] for name in key)].append(change)
    return [net for same in by_key.values() for net in _net(same, key)]


def _net(changes: list[Row], key: Sequence[str]) -> Iterator[Row]:
    by_value = all(change.get(CHANGE) in (INSERT, RETRACT) for change in changes)
    left = _uncancelled(changes) if by_value else changes
    if not left:
        return
    coming = [change for change in left if _is_coming(change)]
    if by_value and len(coming) > 1:
        raise KeyNamesTwoRows(key={name: coming[0][name] for name in key})
    last = max(coming if by_value and coming else left, key=_rank)
    if _is_coming(last):
        yield last | {CHANGE: UPSERT}
    else:
        yield {name: last[name] for name in key} | {CHANGE: DELETE}


def _uncancelled(changes: list[Row]) -> list[Row]:
    """Without the rows that both came and went."""
    left: dict[str, list[Row]] = defaultdict(list)
    for change in changes:
        same = left[_value_of(change)]
        if same and same[-1][CHANGE] != change[CHANGE]:
            same.pop()
        else:
            same.append(change)
    return [change for same in left.values() for change in same]


def _value_of(change: Row) -> str:
    return identity(value for name, value in change.items() if name not in (CHANGE, ORDER))


def _is_coming(change: Row) -> bool:
    return (change.get(CHANGE) or UPSERT) in COMING


def _rank(change: Row) -> tuple[int, bool]:
    return change.get(ORDER) or 0, _is_coming(change)


# Rows that replace others


class Replaced(NamedTuple):
    """A row that is gone, or one that came."""

    gone: bool
    row: bytes


def replaced_rows(store: PageStore, changes: Iterable[RowChange]) -> Iterator[Replaced]:
    """What each change takes away and brings; nothing when the row is as it was."""
    rows = PagedMap(store, "rows")
    for change in last_changes(changes):
        was = rows.pop(change.key, None)
        if change.row is not None:
            rows[change.key] = change.row
        if was == change.row:
            continue
        if was is not None:
            yield Replaced(True, was)
        if change.row is not None:
            yield Replaced(False, change.row)
    rows.save()


# Totals


class Total(NamedTuple):
    """Of one column: how many values it has, the exact sum of the finite ones, and the others."""

    present: int = 0
    exact: Any = None
    nans: int = 0
    infinities: int = 0
    negative_infinities: int = 0


class Weighted(NamedTuple):
    """A row of `group`; `values` are those of the aggregates' columns, and `by` the group's."""

    weight: int
    group: str
    by: tuple[Any, ...]
    values: tuple[Any, ...]


class GroupTotals(NamedTuple):
    by: tuple[Any, ...]
    rows: int
    totals: tuple[Total, ...]


class GroupResult(NamedTuple):
    """The results of a group; None: it has no rows any more."""

    by: tuple[Any, ...]
    results: tuple[Any, ...] | None


def aggregate_rows(
    store: PageStore, rows: Iterable[Weighted], aggregates: Sequence[LinearAggregate]
) -> Iterator[GroupResult]:
    """The groups whose results these rows have changed."""
    groups = PagedMap(store, "groups")
    before: dict[str, GroupTotals | None] = {}
    for row in rows:
        known = groups.get(row.group)
        before.setdefault(row.group, known)
        groups[row.group] = _with_row(known or _nothing(row.by, aggregates), row)
    for group, was in before.items():
        yield from _changed(aggregates, was, groups[group])
        if not groups[group].rows:
            del groups[group]
    groups.save()


def _nothing(by: tuple[Any, ...], aggregates: Sequence[LinearAggregate]) -> GroupTotals:
    return GroupTotals(by, 0, (Total(),) * len(aggregates))


def _with_row(group: GroupTotals, row: Weighted) -> GroupTotals:
    totals = (
        total if value is None else _add(total, _total_of(value, row.weight))
        for total, value in zip(group.totals, row.values, strict=True)
    )
    return GroupTotals(group.by, group.rows + row.weight, tuple(totals))


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


def _add(one: Total, other: Total) -> Total:
    exact = other.exact if one.exact is None else add_exactly(one.exact, other.exact)
    counts = (a + b for a, b in zip(one[2:], other[2:], strict=True))
    return Total(one.present + other.present, exact, *counts)


def _changed(
    aggregates: Sequence[LinearAggregate], was: GroupTotals | None, now: GroupTotals
) -> Iterator[GroupResult]:
    if not now.rows:
        if was is not None:
            yield GroupResult(now.by, None)
        return
    results = _results(aggregates, now)
    if was is None or identity(_results(aggregates, was)) != identity(results):
        yield GroupResult(now.by, results)


def _results(aggregates: Sequence[LinearAggregate], group: GroupTotals) -> tuple[Any, ...]:
    return tuple(
        _result(aggregate, total, group.rows)
        for aggregate, total in zip(aggregates, group.totals, strict=True)
    )


def _result(aggregate: LinearAggregate, total: Total, rows: int) -> Any:
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
