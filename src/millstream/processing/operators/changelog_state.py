"""What a changelog comes to: the net change of a batch, and the rows replaced. Pure.

Rows are dictionaries, or opaque bytes where nothing looks into them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from millstream.base.changes import CHANGE, COMING, DELETE, INSERT, ORDER, RETRACT, UPSERT
from millstream.base.errors import Rejected
from millstream.base.identity import identity
from millstream.processing.operators.table_join_state import RowChange, last_changes
from millstream.processing.state.paged_map import PagedMap, PageStore

Row = dict[str, Any]


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
