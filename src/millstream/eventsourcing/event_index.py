"""Where the events of a partition are: by stream, type and tag, as numbers in arrays. Pure.

An event costs eight bytes for its stream, its type and each of its tags. Its offset follows from
its `seq`: events of one transaction are side by side, so that only the first of each is kept.
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator
from heapq import merge
from typing import TypeAlias

from millstream.eventsourcing.query import Query, QueryItem

Seqs: TypeAlias = "array[int]"  # of 'q': rising


class EventIndex:
    """Lists of `seq`, rising. `first_versions` has the streams whose first events are gone."""

    def __init__(self) -> None:
        self.streams: dict[str, Seqs] = {}
        self.types: dict[str, Seqs] = {}
        self.tags: dict[str, Seqs] = {}
        self.first_versions: dict[str, int] = {}

    def add(self, seq: int, stream: str, type: str, tags: Collection[str]) -> None:
        _list_of(self.streams, stream).append(seq)
        _list_of(self.types, type).append(seq)
        for tag in tags:
            _list_of(self.tags, tag).append(seq)

    def extend(self, later: "EventIndex") -> None:
        """Take over what comes after all that is here."""
        for mine, theirs in (
            (self.streams, later.streams),
            (self.types, later.types),
            (self.tags, later.tags),
        ):
            for name, seqs in theirs.items():
                _list_of(mine, name).extend(seqs)

    def version(self, stream: str) -> int:
        seqs = self.streams.get(stream)
        return 0 if seqs is None else len(seqs) + self.first_versions.get(stream, 1) - 1

    def version_at(self, stream: str, seq: int) -> int:
        """Of the stream when the partition was at `seq`."""
        seqs = self.streams.get(stream, _NONE)
        return bisect_right(seqs, seq) + self.first_versions.get(stream, 1) - 1

    def of_stream(self, stream: str, *, after: int, upto: int | None, position: int | None) -> Seqs:
        """Versions in (after, upto], `seq` not above `position`."""
        seqs = self.streams.get(stream, _NONE)
        before = self.first_versions.get(stream, 1) - 1
        end = len(seqs) if upto is None else max(0, min(len(seqs), upto - before))
        if position is not None:
            end = min(end, bisect_right(seqs, position))
        return seqs[max(0, after - before) : end]

    def matching(self, query: Query, *, after: int, upto: int) -> Iterator[int]:
        """In order, each once, in (after, upto]. `upto` is the last event there is."""
        if query.is_all:
            yield from range(max(after + 1, self._first()), upto + 1)
            return
        before = after
        for seq in merge(*(self._matching(item, after) for item in query.items)):
            if seq > upto:
                return
            if seq != before:
                yield seq
            before = seq

    def _first(self) -> int:
        return min((seqs[0] for seqs in self.types.values()), default=1)

    def _matching(self, item: QueryItem, after: int) -> Iterator[int]:
        """Walks along the shortest list that it can be in, and looks it up in the others."""
        types = [self.types[type] for type in item.types if type in self.types]
        tags = [self.tags.get(tag, _NONE) for tag in item.tags]
        if not tags:
            yield from merge(*(_after(seqs, after) for seqs in types))
            return
        shortest, *others = sorted(tags, key=lambda seqs: len(seqs) - bisect_right(seqs, after))
        for seq in _after(shortest, after):
            if all(_has(seqs, seq) for seqs in others) and (
                not item.types or any(_has(seqs, seq) for seqs in types)
            ):
                yield seq


class OffsetRuns:
    """The offset of each `seq`: where a run begins, offsets and numbers rise together."""

    def __init__(self) -> None:
        self.seqs: Seqs = array("q")
        self.offsets: Seqs = array("q")
        self._ahead = -1  # of the offset to the seq in the last run

    def add(self, seq: int, offset: int) -> None:
        if offset - seq != self._ahead or not self.seqs:
            self.seqs.append(seq)
            self.offsets.append(offset)
            self._ahead = offset - seq

    def load(self, seqs: Seqs, offsets: Seqs) -> None:
        self.seqs, self.offsets = seqs, offsets
        self._ahead = offsets[-1] - seqs[-1] if seqs else -1

    def offset_of(self, seq: int) -> int:
        at = bisect_right(self.seqs, seq) - 1
        return self.offsets[at] + seq - self.seqs[at]

    @property
    def first_seq(self) -> int:
        return self.seqs[0] if self.seqs else 1


_NONE: Seqs = array("q")


def _list_of(lists: dict[str, Seqs], name: str) -> Seqs:
    seqs = lists.get(name)
    if seqs is None:
        seqs = lists[name] = array("q")
    return seqs


def _after(seqs: Seqs, after: int) -> Iterator[int]:
    for at in range(bisect_right(seqs, after), len(seqs)):
        yield seqs[at]


def _has(seqs: Seqs, seq: int) -> bool:
    at = bisect_right(seqs, seq)
    return at > 0 and seqs[at - 1] == seq
