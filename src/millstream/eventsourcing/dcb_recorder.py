"""The library's recorder for dynamic consistency boundaries (`eventsourcing.dcb`): all events are
one stream, found by type and tag; an append is refused if an event matches that was not seen."""

from collections.abc import Iterator, Sequence
from itertools import islice

from eventsourcing.dcb import api
from eventsourcing.persistence import ProgrammingError

from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.followed import Followed
from millstream.eventsourcing.library_errors import translated
from millstream.eventsourcing.query import Condition, Query, QueryItem
from millstream.eventsourcing.recorded import DCB_STREAM, decode_recorded, encode_recorded
from millstream.eventsourcing.stored_event import NewEvent, StoredEvent


class MillstreamDCBRecorder(api.DCBRecorder):
    """Positions are `seq`."""

    def __init__(self, store: EventStore) -> None:
        self.store = store

    def read(
        self,
        query: api.DCBQuery | None = None,
        *,
        after: int | None = None,
        limit: int | None = None,
    ) -> "ReadResponse":
        with translated():
            head = self.store.position() if limit is None else None
            events = self.store.query(_query(query), after=after or 0)
            upto = (event for event in events if head is None or event.seq <= head)
            return ReadResponse(islice(upto, limit), head or None)

    def append(
        self, events: Sequence[api.DCBEvent], condition: api.DCBAppendCondition | None = None
    ) -> int:
        if not events:
            raise ProgrammingError("there is no event to append")
        new = [
            NewEvent(type=one.type, data=encode_recorded(one.data), tags=tuple(one.tags))
            for one in events
        ]
        with translated():
            return self.store.append(DCB_STREAM, new, condition=_condition(condition)).seq

    def subscribe(
        self, query: api.DCBQuery | None = None, *, after: int | None = None
    ) -> "DCBSubscription":
        return DCBSubscription(self, query=query, after=after)


class ReadResponse(api.DCBReadResponse):
    """`head` is that of the store when it was asked; with a limit, the last that was read."""

    def __init__(self, events: Iterator[StoredEvent], head: int | None) -> None:
        self._events, self._head, self._is_head_known = events, head, head is not None

    @property
    def head(self) -> int | None:
        return self._head

    def __next__(self) -> api.DCBSequencedEvent:
        with translated():
            event = next(self._events)
        if not self._is_head_known:
            self._head = event.seq
        return _sequenced(event)


class DCBSubscription(api.DCBSubscription[MillstreamDCBRecorder]):
    """Waits for what comes, whichever process writes it."""

    def __init__(
        self,
        recorder: MillstreamDCBRecorder,
        query: api.DCBQuery | None = None,
        after: int | None = None,
    ) -> None:
        super().__init__(recorder=recorder, query=query, after=after)
        self._followed = Followed(recorder.store, after, _query(query))

    def stop(self) -> None:
        super().stop()
        self._followed.stop()

    def __next__(self) -> api.DCBSequencedEvent:
        with translated():
            event = self._followed.next()
        if event is None:
            raise StopIteration
        return _sequenced(event)


def _query(query: api.DCBQuery | None) -> Query:
    items = () if query is None else query.items
    return Query(items=[QueryItem(frozenset(one.types), frozenset(one.tags)) for one in items])


def _condition(condition: api.DCBAppendCondition | None) -> Condition | None:
    if condition is None:
        return None
    return Condition(fail_if=_query(condition.fail_if_events_match), after=condition.after or 0)


def _sequenced(event: StoredEvent) -> api.DCBSequencedEvent:
    data = decode_recorded(event).bytes
    found = api.DCBEvent(type=event.type, data=data, tags=list(event.tags))
    return api.DCBSequencedEvent(event=found, position=event.seq)
