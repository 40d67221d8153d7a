"""The rows that the changes of a job have left so far, in memory. Pure.

With a key it is a table: one row for each. Without one it is a bag: every row counts. A batch that
is repeated changes nothing, as in a view: the last one is the receipt.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from millstream.base.changes import CHANGE, CHANGES, COMING, DELETE, GOING, INSERT, ORDER, UPSERT
from millstream.base.errors import Rejected

Row = dict[str, Any]


class BadChanges(Rejected):
    """Changes of one batch that have no one meaning; the message says what the job did."""


class Results:
    """`changes` are those of every batch that was written, in the order of their meaning.

    `batch` is the number of the last one, `batches` how many had changes.
    """

    def __init__(self, key: Sequence[str] = ()) -> None:
        self.key = tuple(key)
        self.batch = -1
        self.batches = 0
        self.changes: list[Row] = []
        self._rows: dict[Hashable, list[Row]] = {}

    def rows(self) -> list[Row]:
        return [row for rows in self._rows.values() for row in rows]

    def write(self, batch: int, changes: Iterable[Row]) -> bool:
        """Apply the changes of a batch; False if they were applied before."""
        if batch <= self.batch:
            return False
        ordered = sorted(changes, key=_place)
        self._require_one_row_a_key(ordered)
        for change in ordered:
            self._apply(change)
        self.changes += ordered
        self.batches += bool(ordered)
        self.batch = batch
        return True

    def _apply(self, change: Row) -> None:
        kind, row = kind_of(change), row_of(change)
        rows = self._rows.setdefault(self._key_of(change), [])
        if self.key and kind in (UPSERT, DELETE):
            rows.clear()
        if kind in COMING:
            rows.append(row)
        elif row in rows:
            rows.remove(row)
        elif kind != DELETE:
            raise BadChanges(f"the job takes back a row that is not there: {row}")
        if self.key and len(rows) > 1:
            raise BadChanges(f"the job puts in {row}, and has not taken back {rows[0]}")

    def _key_of(self, change: Row) -> tuple[Hashable, ...]:
        """Rows of a bag are all under one key."""
        if missing := [name for name in self.key if name not in change]:
            raise BadChanges(f"the key {missing[0]} is no column of {change}")
        if self.key and all(change[name] is None for name in self.key):
            raise BadChanges(f"the key {', '.join(self.key)} is null in {change}")
        if not self.key and kind_of(change) == DELETE:
            raise BadChanges(f"without a key nothing can be deleted: {change}")
        return tuple(frozen(change[name]) for name in self.key)

    def _require_one_row_a_key(self, changes: Iterable[Row]) -> None:
        """What a view asks of a batch: of whole rows the net change, one new row at most."""
        seen: set[Hashable] = set()
        for change in changes:
            key = self._key_of(change)
            if self.key and kind_of(change) == INSERT:
                if key in seen:
                    named = {name: change[name] for name in self.key}
                    raise BadChanges(
                        f"two rows of one batch have the key {named}: it does not name the job's "
                        "rows. Give it the columns that do"
                    )
                seen.add(key)


def kind_of(change: Mapping[str, Any]) -> str:
    kind = change.get(CHANGE, UPSERT)
    if kind not in CHANGES:
        raise BadChanges(f"{CHANGE}={kind!r}: one of {', '.join(CHANGES)}")
    return str(kind)


def row_of(change: Mapping[str, Any]) -> Row:
    return {name: value for name, value in change.items() if name not in (CHANGE, ORDER)}


def _place(change: Row) -> tuple[int, bool]:
    """Earlier changes first; of one change, what goes before what comes."""
    return change.get(ORDER) or 0, kind_of(change) not in GOING


def frozen(value: Any) -> Hashable:
    """The value as one that can be looked up."""
    if isinstance(value, Mapping):
        return tuple((name, frozen(part)) for name, part in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(frozen(part) for part in value)
    found: Hashable = value
    return found
