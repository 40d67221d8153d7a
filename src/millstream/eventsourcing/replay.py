"""State from history: which events count, and where to begin. Pure; events are given by a function.

A stream is folded from its last closing event on; what is before may be gone. An event that was
shunned does not count. That is a fact too, which comes later in the stream: when one is met, the
state is made anew without the event. So the state of an earlier version is what it was then.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from millstream.base.errors import Rejected
from millstream.eventsourcing.aggregate import Aggregate, count, fold
from millstream.eventsourcing.event_types import EventTypes, StoredDataDoesNotFit
from millstream.eventsourcing.stored_event import NewEvent, StoredEvent

# The events of a stream behind a version, in order.
Read = Callable[[int], Iterator[StoredEvent]]

# The names of our own facts; those of an application begin with a letter.
OWN_PREFIX: Final = "$"
SHUNNED: Final = "$shunned"
# How far to look back for a closing event at first, and how much farther each time.
LOOK_BACK_EVENTS = 64
LOOK_BACK_GROWTH = 4


class HistoryGone(Rejected):
    """Not a damage: retention took what a closing event had made dispensable."""

    def __init__(self, *, stream: str, version: int, found: int | None = None) -> None:
        oldest = "" if found is None else f" (the next one is {found})"
        super().__init__(
            f"stream {stream}: version {version} is not there any more{oldest}. The state can be "
            "told from the next closing event on"
        )
        self.stream, self.version, self.found = stream, version, found


class CannotShun(Rejected):
    def __init__(self, *, stream: str, event: str, reason: str) -> None:
        super().__init__(f"stream {stream}: event {event} cannot be shunned: {reason}")
        self.stream, self.event, self.reason = stream, event, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Shunned:
    """The fact that an event does not count. `version` is the event's."""

    event: str
    version: int
    why: str = ""


_decode_shunned = msgspec.json.Decoder(Shunned).decode


def shunned_in(stored: StoredEvent) -> Shunned:
    try:
        return _decode_shunned(stored.data)
    except msgspec.MsgspecError as error:
        raise StoredDataDoesNotFit(
            stream=stored.stream,
            version=stored.version,
            type=stored.type,
            type_version=stored.type_version,
            reason=str(error),
        ) from None


def shunned_event(found: Shunned, *, event_id: str) -> NewEvent:
    return NewEvent(type=SHUNNED, data=msgspec.json.encode(found), id=event_id)


class _ShunMet(Exception):
    """An event that was folded already does not count."""


def brought_up(
    aggregate: Aggregate, types: EventTypes, read: Read, *, stream: str, head: int | None = None
) -> Aggregate:
    """The aggregate with all that happened since; another one if something was taken back.

    `head`: the version of the last event that `read` gives, if it is known.
    """
    try:
        if aggregate.version:
            _advance(aggregate, types, read(aggregate.version), stream, ())
            return aggregate
    except _ShunMet:
        pass
    return replayed(type(aggregate), types, read, id=aggregate.id, stream=stream, head=head)


def replayed(
    kind: type[Aggregate],
    types: EventTypes,
    read: Read,
    *,
    id: str,
    stream: str,
    head: int | None = None,
    without: Collection[str] = (),
) -> Aggregate:
    """From nothing but the events. `without`: ids of events that are to be shunned."""
    start = _start(read, kind.__plan__.closing, head)
    shunned = set(without)
    while True:
        aggregate = kind(id)
        count(aggregate, start)
        try:
            _advance(aggregate, types, read(start), stream, shunned)
            break
        except _ShunMet:
            shunned |= shuns(read(start)).keys()
    if head is not None and aggregate.version < head:
        raise HistoryGone(stream=stream, version=head)
    return aggregate


def shuns(events: Iterator[StoredEvent]) -> Mapping[str, Shunned]:
    """The ids of events that do not count, and why."""
    found = (shunned_in(one) for one in events if one.type == SHUNNED)
    return {one.event: one for one in found}


def _advance(
    aggregate: Aggregate,
    types: EventTypes,
    events: Iterator[StoredEvent],
    stream: str,
    shunned: Collection[str],
) -> None:
    closing = aggregate.__plan__.closing
    for stored in events:
        version = stored.version
        if version != aggregate.version + 1:
            _require_beginning(aggregate, stored, closing)
        if stored.id in shunned:
            count(aggregate, version)
        elif stored.type.startswith(OWN_PREFIX):
            _note_own(aggregate, stored, shunned)
        else:
            fold(aggregate, types.opened(stored), version=version, stream=stream)


def _note_own(aggregate: Aggregate, stored: StoredEvent, shunned: Collection[str]) -> None:
    if stored.type == SHUNNED and shunned_in(stored).event not in shunned:
        raise _ShunMet
    count(aggregate, stored.version)


def _require_beginning(aggregate: Aggregate, stored: StoredEvent, closing: Collection[str]) -> None:
    """A gap can only be before a closing event."""
    if stored.type not in closing:
        raise HistoryGone(stream=stored.stream, version=aggregate.version + 1, found=stored.version)


def _start(read: Read, closing: Collection[str], head: int | None) -> int:
    """The version before the last closing event, or 0: looked for from the end backwards."""
    if not closing or not head:
        return 0
    events = LOOK_BACK_EVENTS
    while True:
        start = max(0, head - events)
        found = [one.version for one in read(start) if one.type in closing]
        if found:
            return found[-1] - 1
        if start == 0:
            return 0
        events *= LOOK_BACK_GROWTH


def require_shunnable(
    kind: type[Aggregate], read: Read, event_id: str, *, stream: str, head: int
) -> StoredEvent | None:
    """The event, if to shun it makes a difference; None if it is shunned already."""
    start = _start(read, kind.__plan__.closing, head)
    events = list(read(start))
    found = next((one for one in events if one.id == event_id), None)
    if found is None:
        before = " since its last closing event" if start else ""
        reason = f"the stream has no event of that id{before}"
        raise CannotShun(stream=stream, event=event_id, reason=reason)
    if found.type.startswith(OWN_PREFIX):
        raise CannotShun(stream=stream, event=event_id, reason=f"it is a {found.type} itself")
    if found.type in kind.__plan__.closing:
        reason = "it is a closing event, and what was before it may be gone"
        raise CannotShun(stream=stream, event=event_id, reason=reason)
    return None if event_id in shuns(iter(events)) else found
