"""One subscriber's way through the changes of a view: what it gets next, and when it is too slow.

Moves only when it is asked to: a subscriber costs a place in the changes, and no memory for those
that wait for it. Waits for nothing: `feeds.py` does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

from millstream.base.errors import Rejected, Retryable
from millstream.views.conditions import conditions_of
from millstream.views.feed_changes import Change, Query
from millstream.views.feed_source import (
    RECENT_CHANGES_MAX,
    ChangeSource,
    Forgotten,
    Recent,
    Tail,
)
from millstream.views.feed_tokens import Place, tokens_of
from millstream.views.history import FEED_CHANGES_MAX

Slow = Literal["buffer", "latest", "disconnect"]
# Changes that may wait for a subscriber, if it does not say how many.
WAITING_MAX: Mapping[Slow, int] = {
    "buffer": FEED_CHANGES_MAX,
    "latest": FEED_CHANGES_MAX,
    "disconnect": RECENT_CHANGES_MAX,
}
# Read from the store at a time.
CHUNK_CHANGES = 1_000


class TooSlow(Retryable):
    """`token` goes on after the last change that the subscriber got."""

    def __init__(self, *, view: str, waiting: int | None, limit: int, token: str) -> None:
        fact = (
            "its next changes are no longer kept"
            if waiting is None
            else f"{waiting} changes wait for it, of {limit} that may"
        )
        super().__init__(
            f"view {view}: a subscriber is too slow ({fact}). Come back with since={token!r}, "
            'or with slow="latest"'
        )
        self.view, self.waiting, self.limit, self.token = view, waiting, limit, token


class BadSubscription(Rejected):
    """What nobody can subscribe with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a subscriber asks for, as it was then: `where` is a copy."""

    where: Mapping[str, Any] | None = None
    since: str | None = None
    slow: Slow = "buffer"
    buffer_max: int | None = None

    def __post_init__(self) -> None:
        if self.slow not in get_args(Slow):
            known = ", ".join(get_args(Slow))
            raise BadSubscription(f"slow={self.slow!r}: one of {known}")
        if self.buffer_max is not None and self.buffer_max < 1:
            raise BadSubscription(f"buffer_max={self.buffer_max}: at least one change must wait")
        if self.where is not None:
            kept = {text: _kept(value) for text, value in self.where.items()}
            object.__setattr__(self, "where", kept)

    @property
    def waiting_max(self) -> int:
        return WAITING_MAX[self.slow] if self.buffer_max is None else self.buffer_max


def _kept(value: Any) -> Any:
    """What can be gone through once only is asked of every row."""
    if isinstance(value, Iterable) and not isinstance(value, Sequence | Mapping):
        return tuple(deepcopy(one) for one in value)
    return deepcopy(value)


class Follower:
    """`place` is after all that was handed out; None before that."""

    def __init__(self, view: str, wish: Wish, source: ChangeSource) -> None:
        self.view, self._wish, self._source = view, wish, source
        self._tokens = tokens_of(view, wish.where)
        self.place = None if wish.since is None else self._tokens.read(wish.since)
        # Rows that the subscriber has, or may have from before.
        self._has_rows = self._is_resumed = wish.since is not None
        self._allowed = 0

    @property
    def token(self) -> str | None:
        return None if self.place is None else self._tokens.write(self.place)

    def is_behind(self, recent: Recent) -> bool:
        if recent.tail is None:
            return self._has_rows
        return self.place != Place(recent.tail.timeline, recent.tail.seq)

    def needs_store(self, recent: Recent) -> bool:
        """Whether the next step has to read, and so may take its time."""
        place = self.place
        return place is None or recent.after(place.timeline, place.seq) is None

    def step(self, recent: Recent) -> Iterator[Change]:
        """What comes next, which may be nothing: it is then not behind any more, or by less."""
        tail, place = recent.tail, self.place
        if tail is None:
            return self._lost()
        if place is None or place.timeline != tail.timeline or place.seq > tail.seq:
            return self._start_over()
        if place.seq < tail.floor:
            return self._forgotten(tail, place)
        self._require_pace(tail, place)
        return self._go_on(recent, tail, place)

    def bookmark(self, recent: Recent) -> Change | None:
        """A token for who has seen nothing for long, though the view has changed."""
        if recent.tail is None or self.is_behind(recent):
            return None
        return self._query(recent.tail).bookmark(seq=recent.tail.seq, version=recent.tail.version)

    def _lost(self) -> Iterator[Change]:
        if not self._has_rows:
            return iter(())
        self.place, self._has_rows = None, False
        return iter([Change(kind="reset")])

    def _start_over(self) -> Iterator[Change]:
        current = self._source.current(self._wish.where)
        if current is None:
            return self._lost()
        tail, had_rows = current.tail, self._has_rows
        self.place, self._has_rows = Place(tail.timeline, tail.seq), True
        self._allowed, self._is_resumed = 0, False
        rows = self._query(tail).current(current.rows, seq=tail.seq, version=tail.version)
        return chain([Change(kind="reset")], rows) if had_rows else rows

    def _forgotten(self, tail: Tail, place: Place) -> Iterator[Change]:
        """A subscriber that comes back, and one that no change could reach, are not too slow."""
        if self._is_resumed or tail.is_load or self._wish.slow == "latest":
            return self._start_over()
        raise self._too_slow(None, place)

    def _require_pace(self, tail: Tail, place: Place) -> None:
        """The newest batch does not count, however large; nor what waited at the beginning, as
        long as it becomes less."""
        if self._wish.slow == "latest":
            return
        waiting, limit = tail.seq - place.seq, self._wish.waiting_max
        self._allowed = max(limit, min(self._allowed, waiting) if self._allowed else waiting)
        if waiting - tail.newest > self._allowed:
            raise self._too_slow(waiting, place)

    def _go_on(self, recent: Recent, tail: Tail, place: Place) -> Iterator[Change]:
        changes = recent.after(place.timeline, place.seq)
        if changes is None:
            whole = self._wish.slow == "latest"
            end = tail.seq if whole else min(tail.seq, place.seq + CHUNK_CHANGES)
            changes = self._source.changes(place.timeline, since=place.seq, end=end)
        if not changes:
            raise Forgotten
        self.place, was_resumed = Place(place.timeline, changes[-1].seq), self._is_resumed
        self._is_resumed = False
        query = self._query(tail)
        if self._wish.slow == "latest":
            return query.latest(changes, since=place.seq, is_resumed=was_resumed)
        return query.every(changes)

    def _query(self, tail: Tail) -> Query:
        return Query(self._tokens, tail.timeline, conditions_of(tail.layout, self._wish.where))

    def _too_slow(self, waiting: int | None, place: Place) -> TooSlow:
        token = self._tokens.write(place)
        limit = self._wish.waiting_max
        return TooSlow(view=self.view, waiting=waiting, limit=limit, token=token)
