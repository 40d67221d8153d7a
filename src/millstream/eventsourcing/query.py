"""Which events someone means: by type and by tag, over all streams of a partition. Pure.

A query is a list of items, of which one must match. An item matches an event that has one of its
types (any, if it names none) and all of its tags. A condition refuses an append if an event that
the writer had not seen matches: with both, a boundary of consistency is drawn where it is needed,
and not around a stream (dynamic consistency boundary, DCB).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from millstream.base.errors import Rejected


@dataclass(frozen=True, slots=True)
class QueryItem:
    """One of `types`, and all of `tags`."""

    types: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()

    def matches(self, type: str, tags: Collection[str]) -> bool:
        return (not self.types or type in self.types) and self.tags.issubset(tags)


@dataclass(frozen=True, slots=True, init=False)
class Query:
    """`Query(types=..., tags=...)` has one item; `a | b` has those of both; `Query()` is all."""

    items: tuple[QueryItem, ...]

    def __init__(
        self,
        *,
        types: Iterable[str] = (),
        tags: Iterable[str] = (),
        items: Iterable[QueryItem] = (),
    ) -> None:
        one = QueryItem(frozenset(_names(types)), frozenset(_names(tags)))
        found = (*((one,) if one.types or one.tags else ()), *items)
        object.__setattr__(self, "items", found)

    def __or__(self, other: "Query") -> "Query":
        """What one of them matches. All events and some are all events."""
        if self.is_all or other.is_all:
            return Query()
        return Query(items=self.items + other.items)

    @property
    def is_all(self) -> bool:
        return not self.items or any(not one.types and not one.tags for one in self.items)

    def matches(self, type: str, tags: Collection[str]) -> bool:
        return self.is_all or any(one.matches(type, tags) for one in self.items)

    def __str__(self) -> str:
        return " or ".join(_told(one) for one in self.items) or "any event"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Refuse the append if an event of the partition with `seq` above `after` matches."""

    fail_if: Query
    after: int = 0


class BadQuery(Rejected):
    """What nobody can look for."""


class ConditionFailed(Rejected):
    """`seq` is the first event that stands against it."""

    def __init__(self, *, stream: str, condition: Condition, seq: int) -> None:
        super().__init__(
            f"stream {stream}: nothing was appended, as event {seq} of the partition "
            f"matches {condition.fail_if} and is after {condition.after}. "
            "Read again from there, and decide again"
        )
        self.stream, self.condition, self.seq = stream, condition, seq


def _names(given: Iterable[str]) -> Iterable[str]:
    if isinstance(given, str):
        raise BadQuery(f"{given!r}: give a list of names, [{given!r}]")
    return given


def _told(item: QueryItem) -> str:
    types = "/".join(sorted(item.types)) or "any event"
    return types + (f" with {', '.join(sorted(item.tags))}" if item.tags else "")
