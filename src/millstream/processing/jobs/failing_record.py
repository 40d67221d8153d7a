"""Finds the record that an application's code fails on, by halving the batch that failed. Pure.

A worker that raises says where in the code, not for which row. A job is a function of frames, so
it can be run again over any part of the batch: half of what is left, each time.
"""

from collections.abc import Callable, Sequence

from millstream.base.offsets import OffsetRange
from millstream.processing.reading.offset_plan import Partition

Ranges = Sequence[tuple[Partition, OffsetRange]]


def find_failing(
    ranges: Ranges, fails: Callable[[Ranges], bool], *, tries_max: int
) -> tuple[Partition, int] | None:
    """The first record that fails alone; None if none does, or it was not found in so many tries.

    Where only several together fail, one half fails no more than the other: then it is none.
    """
    left = list(ranges)
    if not left or not fails(left):
        return None
    for _ in range(tries_max):
        if _count(left) == 1:
            break
        first, second = _halves(left)
        if fails(first):
            left = first
        elif fails(second):
            left = second
        else:
            return None
    if _count(left) != 1:
        return None
    ((part, within),) = left
    return part, within.start


def _count(ranges: Ranges) -> int:
    return sum(len(within) for _, within in ranges)


def _halves(ranges: Ranges) -> tuple[list[tuple[Partition, OffsetRange]], ...]:
    """Both not empty, for two records or more."""
    wanted = _count(ranges) // 2
    first: list[tuple[Partition, OffsetRange]] = []
    second: list[tuple[Partition, OffsetRange]] = []
    for part, within in ranges:
        cut = within.start + min(len(within), wanted - _count(first))
        first += [(part, OffsetRange(start=within.start, end=cut))] * (cut > within.start)
        second += [(part, OffsetRange(start=cut, end=within.end))] * (cut < within.end)
    return first, second
