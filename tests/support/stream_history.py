"""Whether a history of one stream, as its clients saw it, is linearizable. Pure.

Every event has a name of its own, and the stream only grows: an operation saw, or made, one length
of it. So the order of all operations is that of the lengths; what is left to check is that it
agrees with the stream in the end, and with the clock: what ended before another began was not
later in that order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["append", "read", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`ended` is None if nobody knows what became of it: its client was killed.

    An append made `event` the last of `length` events; a read saw `events`; who was refused was
    told `length`.
    """

    kind: Kind
    began: int
    ended: int | None
    event: str = ""
    length: int = 0
    events: tuple[str, ...] = ()


def violations(history: Sequence[Operation], stream: Sequence[str]) -> list[str]:
    """`stream` is what is in the log in the end."""
    found = list(_against_the_log(history, stream))
    return found or list(_against_the_clock(history, stream))


def _against_the_log(history: Sequence[Operation], stream: Sequence[str]) -> Iterator[str]:
    if len(set(stream)) != len(stream):
        yield "an event is there twice"
    asked = {one.event for one in history if one.kind == "append"}
    for event in set(stream) - asked:
        yield f"{event}: nobody appended it, or it was refused"
    for one in history:
        is_placed = one.length > 0 and list(stream[one.length - 1 : one.length]) == [one.event]
        if one.kind == "append" and one.ended is not None and not is_placed:
            yield f"{one.event}: it was answered with {one.length}, and is not there"
        if one.kind == "read" and list(one.events) != list(stream[: len(one.events)]):
            yield f"a read saw {one.events[-3:]}, which is no beginning of the stream"


def _against_the_clock(history: Sequence[Operation], stream: Sequence[str]) -> Iterator[str]:
    places = {event: place for place, event in enumerate(stream, 1)}
    ends = sorted((one.ended, _after(one, places)) for one in history if one.ended is not None)
    highest, at = 0, 0
    for one in sorted(history, key=lambda operation: operation.began):
        while at < len(ends) and ends[at][0] < one.began:
            highest, at = max(highest, ends[at][1]), at + 1
        seen = _before(one, places)
        if seen is not None and seen < highest:
            yield f"{one}: {highest} events were known before it began, and it saw {seen}"


def _after(one: Operation, places: dict[str, int]) -> int:
    return places[one.event] if one.kind == "append" else _length(one)


def _before(one: Operation, places: dict[str, int]) -> int | None:
    """None of an append that never happened, as far as anyone knows."""
    if one.kind == "append":
        return places[one.event] - 1 if one.event in places else None
    return _length(one)


def _length(one: Operation) -> int:
    return len(one.events) if one.kind == "read" else one.length
