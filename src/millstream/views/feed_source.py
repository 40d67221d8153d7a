"""What a feed asks of its view's store, and the newest of it, which all subscribers share. Pure.

Changes of a timeline are numbered without gaps; those after `floor` are kept.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.base.errors import Retryable
from millstream.views.feed_changes import RowChange
from millstream.views.store import Row
from millstream.views.table_layout import TableLayout

# Kept in memory for all subscribers together: who is further behind reads from the store.
RECENT_CHANGES_MAX = 4_096


class Forgotten(Retryable):
    """Changes that are not kept any more, or are of another timeline: look where the tail is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Where the changes of a view end; `newest` of them came with the last batch."""

    timeline: str
    version: int
    floor: int
    seq: int
    newest: int
    layout: TableLayout = field(compare=False, repr=False)

    @property
    def is_load(self) -> bool:
        """The last batch had more changes than are kept, or is the first."""
        return self.floor == self.seq


@dataclass(frozen=True, slots=True)
class CurrentRows:
    """Keys and rows as they were at `tail`, to be gone through once."""

    tail: Tail
    rows: Iterator[tuple[Row, Row]]


class ChangeSource(Protocol):
    """Thread-safe."""

    def tail(self) -> Tail | None:
        """None if the view is not there."""

    def current(self, where: Mapping[str, Any] | None) -> CurrentRows | None: ...

    def changes(self, timeline: str, *, since: int, end: int) -> list[RowChange]:
        """Those after `since`, up to `end`, in order; raises `Forgotten`."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Recent:
    """The tail, and the changes that lead to it, as far as they are in memory."""

    tail: Tail | None
    changes: Sequence[RowChange] = ()

    def missing_since(self, tail: Tail) -> int | None:
        """After which change those lack that lead to a newer tail; None if they are too many."""
        is_same = self.tail is not None and self.tail.timeline == tail.timeline
        since = self.tail.seq if self.tail is not None and is_same else tail.seq
        if tail.seq - since > RECENT_CHANGES_MAX or since < tail.floor or since >= tail.seq:
            return None
        return since

    def grown(self, tail: Tail, changes: Sequence[RowChange]) -> "Recent":
        return Recent(tail, [*self.changes, *changes][-RECENT_CHANGES_MAX:])

    def after(self, timeline: str, seq: int) -> Sequence[RowChange] | None:
        """None if some of them are not in memory."""
        if self.tail is None or self.tail.timeline != timeline:
            return None
        waiting = self.tail.seq - seq
        if not 0 < waiting <= len(self.changes):
            return None
        return self.changes[len(self.changes) - waiting :]
