"""A join of two tables, kept up to date change by change. Pure: table_join.py runs it in Spark.

Rows are opaque bytes; keys are texts (base/identity.py). Two steps, each with a state of its own:

  follow_moves   by primary key: which join key did this row have? A row that moves to another
                 leaves its old place (row None) and comes to the new one.
  join_changes   by join key: the rows of both sides. A change meets the other side's rows, and
                 the pairs that came or went are the answer: the net change of the batch.

A side whose join key is part of its primary key needs no first step: its rows never move.
Nothing here knows columns, and pairs are not yet netted across join keys: a pair that leaves one
and comes to another is there twice, once `gone`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import NamedTuple

from millstream.processing.state.paged_map import PagedMap, PageStore

LEFT, RIGHT = 0, 1
# Rows of one join key and side beside those of others; with more they have pages of their own.
SHARED_ROWS_MAX = 8

Row = bytes
Rows = MutableMapping[str, Row]
# A row before and after a batch.
Versions = tuple[Row | None, Row | None]


class RowChange(NamedTuple):
    """The row of `key` on one side is now `row`, or there is none; `join` is None with it
    where the join key is known only from the row that was."""

    side: int
    key: str
    join: str | None
    row: Row | None
    order: int = 0


class PairChange(NamedTuple):
    """A row of the answer: it is now this one, or it is `gone`. A missing side is None."""

    gone: bool
    left: Row | None
    right: Row | None


def last_changes(changes: Iterable[RowChange]) -> list[RowChange]:
    """The last change of each row by order; of one order, what comes wins over what goes."""
    last: dict[tuple[int, str], RowChange] = {}
    for change in changes:
        known = last.setdefault((change.side, change.key), change)
        if (change.order, change.row is not None) >= (known.order, known.row is not None):
            last[change.side, change.key] = change
    return list(last.values())


def follow_moves(store: PageStore, changes: Iterable[RowChange]) -> Iterator[RowChange]:
    """Every change with the join key that it is about."""
    places = (PagedMap(store, "left"), PagedMap(store, "right"))
    for change in last_changes(changes):
        yield from _moves(places[change.side], change)
    for place in places:
        place.save()


def _moves(places: MutableMapping[str, str | None], change: RowChange) -> Iterator[RowChange]:
    was = places.pop(change.key, None)
    if was is not None and (change.row is None or was != change.join):
        yield change._replace(join=was, row=None)
    if change.row is not None:
        places[change.key] = change.join
        yield change


def join_changes(
    store: PageStore, changes: Iterable[RowChange], *, kept: tuple[bool, bool]
) -> Iterator[PairChange]:
    """`kept` says of each side whether its rows without a match are in the answer."""
    by_join: dict[str, list[RowChange]] = defaultdict(list)
    for change in changes:
        by_join[str(change.join)].append(change)
    groups = JoinGroups(store)
    for join, changed in by_join.items():
        sides = groups.rows_of(join)
        yield from change_pairs(sides, last_changes(changed), kept=kept)
        groups.keep(join, sides)
    groups.save()


class JoinGroups:
    """The rows of both sides by join key: few of them beside others', many on their own pages."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._groups = PagedMap(store, "groups")

    def rows_of(self, join: str) -> tuple[Rows, Rows]:
        shared = self._groups.get(join, ({}, {}))
        return self._side(join, LEFT, shared[LEFT]), self._side(join, RIGHT, shared[RIGHT])

    def _side(self, join: str, side: int, shared: dict[str, Row] | None) -> Rows:
        return PagedMap(self._store, f"{side}{join}") if shared is None else dict(shared)

    def keep(self, join: str, sides: tuple[Rows, Rows]) -> None:
        shared = tuple(
            self._keep_side(join, side, rows)
            for side, rows in zip((LEFT, RIGHT), sides, strict=True)
        )
        if shared == ({}, {}):
            self._groups.pop(join, None)
        elif shared != self._groups.get(join):
            self._groups[join] = shared

    def _keep_side(self, join: str, side: int, rows: Rows) -> dict[str, Row] | None:
        """What stands among the groups: the rows themselves, or None when they have own pages."""
        if isinstance(rows, dict) and len(rows) <= SHARED_ROWS_MAX:
            return rows
        pages = rows if isinstance(rows, PagedMap) else PagedMap(self._store, f"{side}{join}")
        if pages is not rows:
            pages.update(rows)
        pages.save()
        return None if pages else {}

    def save(self) -> None:
        self._groups.save()


def change_pairs(
    sides: tuple[Rows, Rows], changes: Iterable[RowChange], *, kept: tuple[bool, bool]
) -> Iterator[PairChange]:
    """Apply the changes of one join key; what becomes of its pairs, and of rows without one."""
    had_rows = bool(sides[LEFT]), bool(sides[RIGHT])
    changed = _apply(sides, changes)
    for left in changed[LEFT].values():
        for right in _versions(sides[RIGHT], changed[RIGHT]):
            yield from _pair(left, right)
    for right in changed[RIGHT].values():
        for left in _unchanged(sides[LEFT], changed[LEFT]):
            yield from _pair(left, right)
    for side, other in ((LEFT, RIGHT), (RIGHT, LEFT)):
        if kept[side]:
            alone = _Alone(was=not had_rows[other], now=not sides[other])
            yield from _lonely(side, alone, sides[side], changed[side])


def _apply(
    sides: tuple[Rows, Rows], changes: Iterable[RowChange]
) -> tuple[dict[str, Versions], dict[str, Versions]]:
    """The rows that became others, before and after."""
    changed: tuple[dict[str, Versions], dict[str, Versions]] = ({}, {})
    for change in changes:
        rows = sides[change.side]
        was = rows.get(change.key)
        if was == change.row:
            continue
        changed[change.side][change.key] = was, change.row
        if change.row is None:
            del rows[change.key]
        else:
            rows[change.key] = change.row
    return changed


def _versions(rows: Rows, changed: Mapping[str, Versions]) -> Iterator[Versions]:
    yield from changed.values()
    yield from _unchanged(rows, changed)


def _unchanged(rows: Rows, changed: Mapping[str, Versions]) -> Iterator[Versions]:
    return ((row, row) for key, row in rows.items() if key not in changed)


def _pair(left: Versions, right: Versions) -> Iterator[PairChange]:
    (left_was, left_now), (right_was, right_now) = left, right
    if left_now is not None and right_now is not None:
        yield PairChange(False, left_now, right_now)
    elif left_was is not None and right_was is not None:
        yield PairChange(True, left_was, right_was)


class _Alone(NamedTuple):
    """Whether the other side had no row, and has none."""

    was: bool
    now: bool


def _lonely(
    side: int, alone: _Alone, rows: Rows, changed: Mapping[str, Versions]
) -> Iterator[PairChange]:
    """All rows of a side when the other became empty or no longer is; changed ones while it is."""
    if alone.was != alone.now:
        touched: Iterable[Versions] = _versions(rows, changed)
    else:
        touched = changed.values() if alone.now else ()
    for was, now in touched:
        if alone.now and now is not None:
            yield _without_other(side, now, gone=False)
        elif alone.was and was is not None:
            yield _without_other(side, was, gone=True)


def _without_other(side: int, row: Row, *, gone: bool) -> PairChange:
    return PairChange(gone, row, None) if side == LEFT else PairChange(gone, None, row)
