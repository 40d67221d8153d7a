"""The first rows of each group in an order, which follow rows that come and go. Pure.

A group keeps all its rows in order: when one of the first goes, the next takes its place. A change
costs the pages that it touches, and those of the first rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from millstream.base.identity import identity
from millstream.processing.operators.value_order import RowOrder
from millstream.processing.state.ordered_pages import OrderedPages
from millstream.processing.state.paged_map import PagedMap, PageStore

Row = bytes


class Placed(NamedTuple):
    """A row of `group` that came (+1) or is gone (-1); `place` has what it is ordered by, and last
    what tells it from others."""

    weight: int
    group: str
    place: tuple[Any, ...]
    row: Row


class TopChange(NamedTuple):
    """A row is now among the first, `number`th from 1; or it is not any more: 0."""

    number: int
    row: Row


@dataclass(frozen=True)
class Top:
    """The first `count` rows by `order`; the last `key_width` parts of a place name its row.

    `numbered`: a row that only gets another number is a change too.
    """

    count: int
    order: RowOrder
    key_width: int
    numbered: bool = False

    def changes(self, store: PageStore, rows: Iterable[Placed]) -> Iterator[TopChange]:
        groups = PagedMap(store, "groups")
        for name, same in _by_group(rows).items():
            ordered = OrderedPages(store, f"0{name}", self.order, groups.pop(name, None))
            was = self._first(ordered)
            _apply(ordered, same)
            yield from self._changed(was, self._first(ordered))
            if (root := ordered.save()) is not None:
                groups[name] = root
        groups.save()

    def _first(self, ordered: OrderedPages) -> dict[str, TopChange]:
        return {
            identity(place[-self.key_width :]): TopChange(number, row)
            for number, (place, row) in enumerate(islice(ordered.items(), self.count), 1)
        }

    def _changed(self, was: dict[str, TopChange], now: dict[str, TopChange]) -> Iterator[TopChange]:
        for key, gone in was.items():
            if key not in now:
                yield TopChange(0, gone.row)
        for key, change in now.items():
            before = was.get(key)
            if before is None or before.row != change.row or self._moved(before, change):
                yield change

    def _moved(self, before: TopChange, now: TopChange) -> bool:
        return self.numbered and before.number != now.number


def _by_group(rows: Iterable[Placed]) -> dict[str, list[Placed]]:
    found: dict[str, list[Placed]] = defaultdict(list)
    for row in rows:
        found[row.group].append(row)
    return found


def _apply(ordered: OrderedPages, rows: Iterable[Placed]) -> None:
    """What goes first: a row that is replaced may keep its place."""
    for row in sorted(rows, key=lambda row: row.weight):
        if row.weight < 0:
            del ordered[row.place]
        else:
            ordered[row.place] = row.row
