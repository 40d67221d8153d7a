"""For applications of the `eventsourcing` library: its events are kept in a topic of ours.

    PERSISTENCE_MODULE=millstream.eventsourcing.recorders
    MILLSTREAM_BROKERS=localhost:9092      where the broker is
    MILLSTREAM_TOPIC=bank.events           default: <name of the application>.events
    ORIGINATOR_ID_TYPE=uuid                or text: what the ids of aggregates are

As everywhere in the library, BANK_MILLSTREAM_TOPIC is for the application called Bank alone. The
topic has one partition, so that notification ids are one sequence: `seq`, dense unless tracking is
recorded. Snapshots are in <topic>.snapshots. Let one process write a topic: two take its writer
from each other at each turn, which is correct but slow.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, Final, TypeVar, cast
from uuid import UUID

from millstream.eventsourcing.library_errors import translated  # isort: skip  # tells what is missing

from eventsourcing import persistence as library
from eventsourcing.dcb.api import DCBRecorder
from eventsourcing.dcb.persistence import DCBInfrastructureFactory
from eventsourcing.persistence import InfrastructureFactory, IntegrityError
from eventsourcing.utils import Environment, EnvType, resolve_topic

from millstream.eventsourcing import stored_event as ours
from millstream.eventsourcing.dcb_recorder import MillstreamDCBRecorder
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.followed import Followed
from millstream.eventsourcing.query import Query
from millstream.eventsourcing.recorded import (
    TRACKING_PREFIX,
    TRACKING_TYPE,
    Numbers,
    decode_recorded,
    encode_recorded,
    numbers_by_last,
    numbers_of,
)
from millstream.eventsourcing.staging import StreamHead

TAIL_STEP: Final = 16
EVENTS: Final = "events"
RecorderT = TypeVar("RecorderT")


class MillstreamAggregateRecorder(library.AggregateRecorder):
    """The events of each aggregate are a stream, whose name is the aggregate's id."""

    def __init__(self, store: EventStore, *, has_uuids: bool = True) -> None:
        self.store = store
        self._id_of: Callable[[str], UUID | str] = UUID if has_uuids else str

    def insert_events(
        self, stored_events: Sequence[library.StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        self._insert(stored_events, kwargs.get("tracking"))
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[library.StoredEvent]:
        with translated():
            found = list(self._selected(str(originator_id), gt, lte, desc=desc, limit=limit))
        events = sorted(
            (self._stored(event) for event in found),
            key=lambda event: event.originator_version,
            reverse=desc,
        )
        return [
            event
            for event in events
            if (gt is None or event.originator_version > gt)
            and (lte is None or event.originator_version <= lte)
        ][:limit]

    # --- writing ------------------------------------------------------------------------------

    def _insert(
        self, events: Sequence[library.StoredEvent], tracking: library.Tracking | None
    ) -> Sequence[int]:
        """All or none; their notification ids."""
        if not events and tracking is None:
            return []
        first = _tracking_stream(tracking) if tracking else str(events[0].originator_id)
        with translated():
            receipt = self.store.decide(first, lambda head: self._decided(head, events, tracking))
        return range(receipt.seq - len(events) + 1, receipt.seq + 1)

    def _decided(
        self,
        head: StreamHead,
        events: Sequence[library.StoredEvent],
        tracking: library.Tracking | None,
    ) -> Iterator[ours.NewEvent]:
        """Runs in the writer, and again if that was taken by another: changes nothing here."""
        if tracking is not None:
            yield _tracked(head, tracking)
        numbers: dict[str, Numbers] = {}
        for event in events:
            stream, version = str(event.originator_id), event.originator_version
            before = numbers.get(stream) or _numbers_in(head.of(stream))
            if before.needs_all(version):
                before = numbers_of(head.of(stream).events())
            if before.has(version):
                raise IntegrityError(f"{stream} has an event {version} already")
            after = numbers[stream] = before.with_next(version)
            data = encode_recorded(event.state, version=version, order=after.order)
            yield ours.NewEvent(type=event.topic, data=data, stream=stream)

    # --- reading ------------------------------------------------------------------------------

    def _selected(
        self, stream: str, gt: int | None, lte: int | None, *, desc: bool, limit: int | None
    ) -> Iterator[ours.StoredEvent]:
        """At least those that are asked for, and few others if their order is known."""
        count = self.store.version(stream)
        if count == 0 or limit == 0:
            return iter(())
        last = next(self.store.read(stream, after=count - 1, upto=count))
        numbers = numbers_by_last(last)
        if numbers.order == "dense":
            after, upto = _dense_range(numbers, gt, lte, desc=desc, limit=limit)
            return self.store.read(stream, after=after, upto=upto)
        if numbers.order == "rising" and desc and limit and lte is None:
            return self.store.read(stream, after=max(0, count - limit), upto=count)
        return self.store.read(stream, upto=count)

    def _stored(self, event: ours.StoredEvent) -> library.StoredEvent:
        found = decode_recorded(event)
        return library.StoredEvent(
            originator_id=self._id_of(event.stream),
            originator_version=found.version,
            topic=event.type,
            state=found.bytes,
        )


class MillstreamApplicationRecorder(MillstreamAggregateRecorder, library.ApplicationRecorder):
    """The id of a notification is the event's `seq`."""

    def insert_events(
        self, stored_events: Sequence[library.StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        return list(self._insert(stored_events, kwargs.get("tracking")))

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[library.Notification]:
        after = (start or 0) - (inclusive_of_start and start is not None)
        with translated():
            found = self.store.query(Query(types=topics), after=max(0, after))
            events = (event for event in found if event.type != TRACKING_TYPE)
            upto = takewhile(lambda event: stop is None or event.seq <= stop, events)
            return [self.notification(event) for event in islice(upto, limit)]

    def max_notification_id(self) -> int | None:
        with translated():
            return _last_notification(self.store)

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> library.Subscription[library.ApplicationRecorder]:
        return MillstreamSubscription(self, gt=gt, topics=topics)

    def notification(self, event: ours.StoredEvent) -> library.Notification:
        found = decode_recorded(event)
        return library.Notification(
            id=event.seq,
            originator_id=self._id_of(event.stream),
            originator_version=found.version,
            topic=event.type,
            state=found.bytes,
        )


class MillstreamSubscription(library.Subscription[MillstreamApplicationRecorder]):
    """Waits for what comes, whichever process writes it."""

    def __init__(
        self,
        recorder: MillstreamApplicationRecorder,
        gt: int | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._followed = Followed(recorder.store, gt, Query(types=topics))

    def stop(self) -> None:
        super().stop()
        self._followed.stop()

    def __next__(self) -> library.Notification:
        with translated():
            while (event := self._followed.next()) is not None:
                if event.type != TRACKING_TYPE:
                    return self._recorder.notification(event)
        raise StopIteration


class MillstreamTrackingRecorder(library.TrackingRecorder):
    """How far each application upstream was processed: a stream for each."""

    def __init__(self, store: EventStore) -> None:
        self.store = store

    def insert_tracking(self, tracking: library.Tracking) -> None:
        with translated():
            self.store.decide(_tracking_stream(tracking), lambda head: [_tracked(head, tracking)])

    def max_tracking_id(self, application_name: str) -> int | None:
        stream = TRACKING_PREFIX + application_name
        with translated():
            count = self.store.version(stream)
            events = self.store.read(stream, after=max(0, count - 1))
            return max((decode_recorded(event).version for event in events), default=None)


class MillstreamProcessRecorder(
    MillstreamTrackingRecorder, MillstreamApplicationRecorder, library.ProcessRecorder
):
    """Events and how far was read for them: in one transaction."""

    def __init__(self, store: EventStore, *, has_uuids: bool = True) -> None:
        MillstreamApplicationRecorder.__init__(self, store, has_uuids=has_uuids)


def _tracking_stream(tracking: library.Tracking) -> str:
    return TRACKING_PREFIX + tracking.application_name


def _tracked(head: StreamHead, tracking: library.Tracking) -> ours.NewEvent:
    stream = _tracking_stream(tracking)
    last = _numbers_in(head.of(stream)).last
    if last >= tracking.notification_id:
        raise IntegrityError(f"{tracking} is not above what was recorded before, {last}")
    data = encode_recorded(b"", version=tracking.notification_id, order="rising")
    return ours.NewEvent(type=TRACKING_TYPE, data=data, stream=stream)


def _numbers_in(head: StreamHead) -> Numbers:
    """Of what is there, by the last event."""
    if head.version == 0:
        return Numbers()
    return numbers_by_last(next(head.events(after=head.version - 1)))


def _dense_range(
    numbers: Numbers, gt: int | None, lte: int | None, *, desc: bool, limit: int | None
) -> tuple[int, int]:
    """Which versions of ours, (after, upto], have these numbers of the library's."""
    after = 0 if gt is None else max(0, gt - numbers.first + 1)
    upto = numbers.count if lte is None else min(numbers.count, lte - numbers.first + 1)
    if limit is not None and desc:
        after = max(after, upto - limit)
    elif limit is not None:
        upto = min(upto, after + limit)
    return after, max(after, upto)


def _last_notification(store: EventStore) -> int | None:
    """The last event that is no tracking: the tail is looked at in growing steps."""
    end, step = store.position(), 1
    while end > 0:
        start = max(0, end - step)
        found = [e.seq for e in store.query(Query(), after=start) if e.type != TRACKING_TYPE]
        if found or start == 0:
            return found[-1] if found else None
        step *= TAIL_STEP
    return None


# --- the factory --------------------------------------------------------------------------------


class Factory(
    InfrastructureFactory[MillstreamTrackingRecorder],
    DCBInfrastructureFactory[MillstreamTrackingRecorder],
):
    """What the library asks for recorders. One store for each topic, shared by all of them."""

    MILLSTREAM_BROKERS: Final = "MILLSTREAM_BROKERS"
    MILLSTREAM_TOPIC: Final = "MILLSTREAM_TOPIC"
    ORIGINATOR_ID_TYPE: Final = "ORIGINATOR_ID_TYPE"

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        brokers = self.env.get(self.MILLSTREAM_BROKERS)
        if not brokers:
            keys = ", ".join(self.env.create_keys(self.MILLSTREAM_BROKERS))
            raise OSError(f"Where is the broker? Set {keys}: localhost:9092, or where yours is")
        self._client = {"bootstrap.servers": brokers}
        self._topic = self.env.get(self.MILLSTREAM_TOPIC) or _topic_name(self.env.name)
        self._has_uuids = self._wants_uuids()
        self._stores: dict[str, EventStore] = {}
        self._lock = threading.Lock()

    def aggregate_recorder(self, purpose: str = EVENTS) -> library.AggregateRecorder:
        topic = self._topic if purpose == EVENTS else f"{self._topic}.{purpose}"
        return MillstreamAggregateRecorder(self._store(topic), has_uuids=self._has_uuids)

    def application_recorder(self) -> library.ApplicationRecorder:
        kind = self._chosen(self.APPLICATION_RECORDER_TOPIC, MillstreamApplicationRecorder)
        return kind(self._store(self._topic), has_uuids=self._has_uuids)

    def process_recorder(self) -> library.ProcessRecorder:
        kind = self._chosen(self.PROCESS_RECORDER_TOPIC, MillstreamProcessRecorder)
        return kind(self._store(self._topic), has_uuids=self._has_uuids)

    def tracking_recorder(
        self, tracking_recorder_class: type[MillstreamTrackingRecorder] | None = None
    ) -> MillstreamTrackingRecorder:
        kind = tracking_recorder_class or self._chosen(
            self.TRACKING_RECORDER_TOPIC, MillstreamTrackingRecorder
        )
        return kind(self._store(f"{self._topic}.tracking"))

    def dcb_recorder(self) -> DCBRecorder:
        return MillstreamDCBRecorder(self._store(self._topic))

    def close(self) -> None:
        with self._lock:
            stores, self._stores = self._stores, {}
        for store in stores.values():
            store.close()

    def _store(self, topic: str) -> EventStore:
        with self._lock, translated():
            if topic not in self._stores:
                store = EventStore(self._client, topic, partitions=1)
                if store.partitions != 1:
                    store.close()
                    raise library.ProgrammingError(
                        f"topic {topic} has {store.partitions} partitions, and notification ids "
                        f"need one sequence: name another in {self.MILLSTREAM_TOPIC}"
                    )
                self._stores[topic] = store
            return self._stores[topic]

    def _chosen(self, variable: str, default: type[RecorderT]) -> type[RecorderT]:
        """A class that the environment names, or ours."""
        named = self.env.get(variable)
        return cast(type[RecorderT], resolve_topic(named)) if named else default

    def _wants_uuids(self) -> bool:
        found = self.env.get(self.ORIGINATOR_ID_TYPE, "uuid").lower()
        if found not in ("uuid", "text"):
            raise OSError(f"{self.ORIGINATOR_ID_TYPE} is {found!r}, and must be 'uuid' or 'text'")
        return found == "uuid"


def _topic_name(application: str) -> str:
    """Kafka's names have fewer characters than Python's."""
    return re.sub(r"[^a-zA-Z0-9._-]", "_", application or "eventsourcing") + f".{EVENTS}"
