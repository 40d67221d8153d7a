"""Windows, naively: for each window, look at all events again. The model of `aggregate`.

An event is a time and an amount. The values of a window are count, sum, average, least, greatest,
first, last, all, and how many different ones; of the amounts that are not null.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from millstream.processing.operators.window_kinds import Hopping, Session, Sliding, WindowKind

Row = tuple[int, int, tuple[Any, ...]]
FOREVER = 1 << 62


def naive_rows(kind: WindowKind, events: Sequence[tuple[int, int | None]]) -> list[Row]:
    if not events:
        return []
    return [
        (start, end, naive_values([event for event in events if is_in(kind, event[0], start, end)]))
        for start, end in naive_places(kind, sorted({at for at, _amount in events}))
    ]


def is_in(kind: WindowKind, at: int, start: int, end: int) -> bool:
    return start < at <= end if isinstance(kind, Sliding) else start <= at < end


def naive_places(kind: WindowKind, times: list[int]) -> Iterator[tuple[int, int]]:
    match kind:
        case Sliding(size_us=size):
            yield from ((at - size, at) for at in times)
        case Session(gap_us=gap):
            firsts = [at for at in times if not any(at - gap <= other < at for other in times)]
            for first, following in pairwise([*firsts, FOREVER]):
                yield first, max(at for at in times if first <= at < following) + gap
        case Hopping(size_us=size, every_us=every, start_us=start):
            before = start + (times[0] - size - start) // every * every
            for place in range(before, times[-1] + 1, every):
                if any(place <= at < place + size for at in times):
                    yield place, place + size


def naive_values(events: Sequence[tuple[int, int | None]]) -> tuple[Any, ...]:
    timed = sorted((at, amount) for at, amount in events if amount is not None)
    amounts = [amount for _at, amount in timed]
    if not amounts:
        return (len(events), None, None, None, None, None, None, [], 0)
    average = float(Fraction(sum(amounts), len(amounts)))
    ends = (min(amounts), max(amounts), amounts[0], amounts[-1])
    return (len(events), sum(amounts), average, *ends, amounts, len(set(amounts)))
