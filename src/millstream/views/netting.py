"""What the changes of one batch come to, for each key: a row to keep, or none. Pure.

upsert and delete are by key: the last one counts. insert and retract carry whole rows and may come
in any order: what is taken back cancels what is put in, and at most one row of a key is left.
The words, and what is last, are in base/changes.py.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.base.changes import (
    CHANGE,
    CHANGES,
    DELETE,
    GOING,
    INSERT,
    ORDER,
    RETRACT,
    UPSERT,
)
from millstream.base.errors import Rejected

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[Hashable, ...]
StoredRow = tuple[Any, ...]


class BadChange(Rejected):
    """Changes that a view cannot apply."""


@dataclass
class Netted:
    """What is to be done to a table; no key is in both."""

    upserts: list[StoredRow] = field(default_factory=list)
    deletes: list[Key] = field(default_factory=list)


def net(changes: Iterable[str], rows: Iterable[StoredRow], *, key_width: int) -> Netted:
    """`rows` begin with their key, and are in order."""
    last: dict[Key, StoredRow | None] = {}
    weights: dict[Key, Counter[StoredRow]] = {}
    for change, row in zip(changes, rows, strict=True):
        key = row[:key_width]
        if change == UPSERT:
            last[key] = row
        elif change == DELETE:
            last[key] = None
        elif change in (INSERT, RETRACT):
            weights.setdefault(key, Counter())[row] += 1 if change == INSERT else -1
        else:
            raise BadChange(f"the change {change!r} of key {key}: one of {', '.join(CHANGES)}")
    for key, counts in weights.items():
        _settle(last, key, counts)
    return _netted(last)


def _settle(last: dict[Key, StoredRow | None], key: Key, counts: Counter[StoredRow]) -> None:
    put = [row for row, count in counts.items() if count > 0]
    if len(put) > 1:
        raise BadChange(
            f"{len(put)} rows are left for key {key} in one batch: the view's key does not name "
            "its rows. Give it the columns that do"
        )
    if put:
        last[key] = put[0]
    elif any(count < 0 for count in counts.values()):
        last[key] = None


def _netted(last: dict[Key, StoredRow | None]) -> Netted:
    found = Netted()
    for key, row in last.items():
        if row is None:
            found.deletes.append(key)
        else:
            found.upserts.append(row)
    return found


def change_words(changes: "pa.Table") -> list[str]:
    """What each row does; without a word it is an upsert."""
    if CHANGE not in changes.column_names:
        return [UPSERT] * changes.num_rows
    return [word or UPSERT for word in changes.column(CHANGE).to_pylist()]


def change_orders(changes: "pa.Table") -> list[int | None] | None:
    return changes.column(ORDER).to_pylist() if ORDER in changes.column_names else None


def in_order(changes: Sequence[str], orders: Sequence[int | None] | None) -> list[int]:
    """Places of rows, the earliest change first; of one change, what goes before what comes."""

    def rank(place: int) -> tuple[int, bool]:
        order = orders[place] if orders is not None else None
        return (-1 if order is None else order, changes[place] not in GOING)

    return sorted(range(len(changes)), key=rank)
