"""Consecutive offsets, each with a value, held as runs of equal values.

What costs memory and time is how often the value changes, not how many offsets there are. Here
is no meaning: `share_partition.py` says what the values are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Run(NamedTuple, Generic[T]):
    """Offsets [start, end) with one value."""

    start: int
    end: int
    value: T


class OffsetRuns(Generic[T]):
    """Every offset in [start, end) has a value; neighbouring runs have different ones."""

    def __init__(self, start: int) -> None:
        self._starts: list[int] = []
        self._values: list[T] = []
        self.end = start

    @property
    def start(self) -> int:
        return self._starts[0] if self._starts else self.end

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._starts)

    def __iter__(self) -> Iterator[Run[T]]:
        return iter(self.within(self.start, self.end))

    def within(self, start: int, end: int) -> list[Run[T]]:
        """The runs in [start, end), cut to it; a list, so that the caller may put meanwhile."""
        start, end = max(start, self.start), min(end, self.end)
        if start >= end:
            return []
        first = bisect_right(self._starts, start) - 1
        last = bisect_left(self._starts, end)
        starts = [start, *self._starts[first + 1 : last]]
        ends = [*self._starts[first + 1 : last], end]
        return [*map(Run, starts, ends, self._values[first:last])]

    def first(self, is_wanted: Callable[[T], bool], *, start: int) -> int | None:
        """The first offset from `start` on whose value is wanted."""
        if start >= self.end:
            return None
        begin = max(bisect_right(self._starts, start) - 1, 0)
        for index in range(begin, len(self._starts)):
            if is_wanted(self._values[index]):
                return max(self._starts[index], start)
        return None

    def put(self, start: int, end: int, value: T) -> None:
        """Give [start, end) this value; it may go past the end, but leave no hole before it."""
        assert self.start <= start <= self.end, f"{start} is not in [{self.start}, {self.end}]"
        assert start < end
        first = self._cut(start)
        last = self._cut(end) if end < self.end else len(self._starts)
        self.end = max(self.end, end)
        self._starts[first:last] = [start]
        self._values[first:last] = [value]
        self._join(first + 1)
        self._join(first)

    def drop_before(self, offset: int) -> None:
        """Forget what is below `offset`; past the end, nothing is left, and the end is there."""
        if offset >= self.end:
            self._starts, self._values, self.end = [], [], offset
        elif offset > self.start:
            index = self._cut(offset)
            del self._starts[:index], self._values[:index]

    def _cut(self, offset: int) -> int:
        """Make a run begin at `offset`; its index."""
        index = bisect_left(self._starts, offset)
        is_cut = offset == self.end if index == len(self._starts) else self._starts[index] == offset
        if not is_cut:
            self._starts.insert(index, offset)
            self._values.insert(index, self._values[index - 1])
        return index

    def _join(self, index: int) -> None:
        """Make one of the run at `index` and the one before it, if they are alike."""
        if 0 < index < len(self._starts) and self._values[index] == self._values[index - 1]:
            del self._starts[index], self._values[index]
