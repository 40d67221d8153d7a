"""The changes of a view as one subscriber gets them: filtered, numbered, netted. Pure.

    row, row, ..., current          what is there, then a token
    upsert, delete, upsert, ...     every change since, in order, each with a token
    reset, row, row, ..., current   forget all of the above: what is there now

A subscriber that applies them by key, upsert and row as "is now so" and delete as "is gone", has
the rows that meet its conditions. One that starts to meet them comes as an upsert, one that ceases
to as a delete.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from millstream.views.conditions import Condition, are_met
from millstream.views.feed_tokens import Place, Tokens
from millstream.views.store import Row

Kind = Literal["row", "upsert", "delete", "reset", "current"]


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change of a view: the row of a key before (None: it came) and after (None: it went)."""

    seq: int
    version: int
    key: Row
    was: Row | None
    now: Row | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a subscriber gets. `key` and `row` are None in reset and current, `row` in a delete.

    `version` is the view's, which a change led to, or as of which a row was read.
    """

    kind: Kind
    key: Row | None = None
    row: Row | None = None
    version: int | None = None
    place: Place | None = field(default=None, repr=False)
    tokens: Tokens | None = field(default=None, repr=False, compare=False)

    @property
    def token(self) -> str | None:
        """To go on after this one. None in the midst of current rows: there is no going on."""
        if self.place is None or self.tokens is None:
            return None
        return self.tokens.write(self.place)


@dataclass(frozen=True, slots=True)
class Query:
    """What one subscriber asks for, against the view's columns of today."""

    tokens: Tokens
    timeline: str
    conditions: tuple[Condition, ...] = ()

    def matches(self, row: Row | None) -> bool:
        return row is not None and are_met(self.conditions, row)

    def current(
        self, rows: Iterable[tuple[Row, Row]], *, seq: int, version: int
    ) -> Iterator[Change]:
        """`rows` are keys with their rows, which meet the conditions."""
        for key, row in rows:
            yield Change(kind="row", key=key, row=row, version=version)
        yield self.bookmark(seq=seq, version=version)

    def bookmark(self, *, seq: int, version: int) -> Change:
        return Change(kind="current", version=version, place=self._at(seq), tokens=self.tokens)

    def every(self, changes: Iterable[RowChange]) -> Iterator[Change]:
        """Each change that a subscriber can see."""
        for change in changes:
            if self.matches(change.now):
                yield self._seen(change, "upsert", change.seq)
            elif self.matches(change.was):
                yield self._seen(change, "delete", change.seq)

    def latest(
        self, changes: Sequence[RowChange], *, since: int, is_resumed: bool = False
    ) -> Iterator[Change]:
        """For each key what it came to; they are one step: only the last one moves the token.

        Who had a part of them and comes back with the token before (`is_resumed`) gets them again.
        Rows that came and went since are told of then, too: they may be in that part.
        """
        last: dict[str, RowChange] = {}
        had: set[str] = set()
        for change in changes:
            name = repr(change.key)
            is_first = last.pop(name, None) is None  # in the order of last changes
            last[name] = change
            if (is_first or is_resumed) and self.matches(change.was):
                had.add(name)
        told = [one for name, one in last.items() if name in had or self.matches(one.now)]
        for change in told:
            seq = changes[-1].seq if change is told[-1] else since
            yield self._seen(change, "upsert" if self.matches(change.now) else "delete", seq)

    def _seen(self, change: RowChange, kind: Kind, seq: int) -> Change:
        row = change.now if kind == "upsert" else None
        return Change(
            kind=kind,
            key=change.key,
            row=row,
            version=change.version,
            place=self._at(seq),
            tokens=self.tokens,
        )

    def _at(self, seq: int) -> Place:
        return Place(self.timeline, seq)


def key_of(row: Mapping[str, Any], key: Sequence[str]) -> Row:
    return {name: row[name] for name in key}
