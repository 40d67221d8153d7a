"""The states of one kind of aggregate: made of snapshots and events, kept while they are used.

A decision runs in the writer of its partition, perhaps more than once; what it has folded counts
when its receipt comes. The result is the same with snapshots and kept states as without.
"""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import datetime
from functools import partial

import msgspec

from millstream.base.errors import Rejected
from millstream.eventsourcing.aggregate import Aggregate, key_ids_of, restored
from millstream.eventsourcing.command_calls import Call, run_command
from millstream.eventsourcing.event_ids import EventIds
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.event_types import EventTypes, KeyIds
from millstream.eventsourcing.fold_print import fold_print
from millstream.eventsourcing.kept_states import KeptState, KeptStates
from millstream.eventsourcing.replay import (
    HistoryGone,
    Read,
    Shunned,
    brought_up,
    replayed,
    require_shunnable,
    shunned_event,
)
from millstream.eventsourcing.snapshot_record import (
    NOTHING,
    BadSnapshot,
    NotKept,
    Snapshot,
    StateCodec,
    decode_snapshot,
    encode_snapshot,
    from_sealed,
    to_sealed,
)
from millstream.eventsourcing.snapshots import SnapshotTopic
from millstream.eventsourcing.staging import StreamHead
from millstream.eventsourcing.stored_event import NewEvent, Receipt, StoredEvent
from millstream.eventsourcing.untold import reason_of

logger = logging.getLogger(__name__)


class NoSuchVersion(Rejected):
    def __init__(self, *, stream: str, asked: int, found: int) -> None:
        super().__init__(f"stream {stream} has versions from 0 to {found}, and not {asked}")
        self.stream, self.asked, self.found = stream, asked, found


class BadTime(Rejected):
    def __init__(self, *, stream: str, at: object) -> None:
        super().__init__(
            f"stream {stream}: at={at!r}: give a datetime with its time zone, "
            "datetime(2026, 11, 18, tzinfo=UTC)"
        )
        self.stream, self.at = stream, at


class States:
    """Thread-safe."""

    def __init__(
        self,
        kind: type[Aggregate],
        types: EventTypes,
        store: EventStore,
        *,
        snapshots: SnapshotTopic | None,
        snapshot_every: int,
        states_max: int,
    ) -> None:
        self.kind, self.types, self._store = kind, types, store
        self.kept = KeptStates(states_max)
        self._snapshots, self._every = snapshots, snapshot_every
        self._print, self._codec = fold_print(kind), StateCodec(kind)
        self._is_told = False

    def deciding(self, id: str, stream: str, call: Call) -> "Deciding":
        return Deciding(self, id, stream, call)

    def shunning(self, id: str, stream: str, event_id: str, *, why: str) -> "Shunning":
        return Shunning(self, id, stream, event_id, why)

    def forget(self) -> None:
        self.kept.clear()

    # --- in the writer ------------------------------------------------------------------------

    def current(self, id: str, head: StreamHead) -> KeptState:
        """The state that a decision decides by. It has it alone until it puts it back."""
        reading = _Reading(head.events)
        kept = self.kept.take(head.stream)
        if kept is None or not self._is_of(kept, head):
            kept = self._loaded(id, head.stream, reading, head.version)
        if kept.aggregate.version != head.version:
            kept.aggregate = brought_up(
                kept.aggregate, self.types, reading, stream=head.stream, head=head.version
            )
        if reading.last_id is not None:
            kept.last_id, kept.is_sure = reading.last_id, False
        return kept

    def _is_of(self, kept: KeptState, head: StreamHead) -> bool:
        """Whether it is a state of this stream: what was staged may have been dropped."""
        version = kept.aggregate.version
        if version > head.version or not self._may_keep(kept.aggregate):
            return False
        if version == 0 or kept.is_sure:
            return True
        return next(ids_in(head.events(version - 1)), None) == kept.last_id

    def _may_keep(self, aggregate: Aggregate) -> bool:
        key_ids, sealing = key_ids_of(aggregate), self.types.sealing
        return not key_ids or (sealing is not None and sealing.are_kept(key_ids))

    # --- snapshots ----------------------------------------------------------------------------

    def _loaded(self, id: str, stream: str, read: Read, head: int) -> KeptState:
        """From a snapshot on, if there is one that fits; else of events alone."""
        found = self._snapshot(id, stream, read, head)
        if found is not None:
            return KeptState(aggregate=found, snapshot_at=found.version)
        made = replayed(self.kind, self.types, read, id=id, stream=stream, head=head)
        return KeptState(aggregate=made)

    def _snapshot(self, id: str, stream: str, read: Read, head: int) -> Aggregate | None:
        value = None if self._snapshots is None else self._snapshots.find(stream)
        if value is None:
            return None
        try:
            snapshot = decode_snapshot(value, stream=stream)
            if snapshot.fold != self._print or snapshot.version > head:
                return None
            return self._restored(id, snapshot, read)
        except BadSnapshot as error:
            logger.warning("%s", error)
            return None

    def _restored(self, id: str, snapshot: Snapshot, read: Read) -> Aggregate | None:
        stream, version = snapshot.stream, snapshot.version
        if next(ids_in(read(version - 1)), None) != snapshot.event:
            raise BadSnapshot(stream=stream, reason="its last event is not in the stream")
        state: bytes | None = bytes(snapshot.state)
        if snapshot.sealed is not None:
            state = self._opened(snapshot, snapshot.sealed)
        if state is None:
            return None
        try:
            keys = frozenset(snapshot.keys)
            return restored(self.kind, id, version, self._codec.decode(state), keys)
        except (ValueError, TypeError) as error:
            reason = reason_of(error, is_personal=self.types.has_personal)
            raise BadSnapshot(stream=stream, reason=reason) from None

    def _opened(self, snapshot: Snapshot, sealed: str) -> bytes | None:
        if self.types.sealing is None:
            return None
        box = from_sealed(sealed, stream=snapshot.stream)
        return self.types.sealing.open_snapshot(box, place=place_of(snapshot))

    def snapshot_due(self, kept: KeptState, stream: str) -> bytes | None:
        """The state as a snapshot, if it is time for one: to be written when it is committed."""
        version = kept.aggregate.version
        if self._snapshots is None or version - kept.snapshot_at < self._every:
            return None
        kept.snapshot_at = version
        try:
            return self._encoded(kept, stream)
        except NotKept as error:
            if not self._is_told:
                logger.warning("%s", error)
            self._is_told = True
            return None

    def _encoded(self, kept: KeptState, stream: str) -> bytes | None:
        aggregate = kept.aggregate
        state, version = self._codec.encode(aggregate), aggregate.version
        keys = key_ids_of(aggregate)
        snapshot = Snapshot(
            stream=stream,
            version=version,
            event=kept.last_id or "",
            fold=self._print,
            state=msgspec.Raw(state),
        )
        if not keys:
            return encode_snapshot(snapshot)
        return self._sealed(snapshot, state, keys)

    def _sealed(self, snapshot: Snapshot, state: bytes, keys: KeyIds) -> bytes | None:
        if self.types.sealing is None:
            return None
        place = place_of(snapshot)
        box = self.types.sealing.seal_snapshot(state, keys, place=place)
        if box is None:
            return None
        sealed = msgspec.structs.replace(
            snapshot, state=NOTHING, sealed=to_sealed(box), keys=tuple(sorted(keys))
        )
        return encode_snapshot(sealed)

    def put_snapshot(self, stream: str, value: bytes) -> None:
        if self._snapshots is not None:
            self._snapshots.put(stream, value)

    # --- for readers --------------------------------------------------------------------------

    def read(self, id: str, stream: str, *, version: int | None, at: datetime | None) -> Aggregate:
        """As of now, or as of a version or a time."""
        if at is not None and (not isinstance(at, datetime) or at.utcoffset() is None):
            raise BadTime(stream=stream, at=at)
        head = self._head(stream, version)

        def reading(after: int) -> Iterator[StoredEvent]:
            return self._store.read(stream, after=after, upto=version, at=at)

        base = None if at is not None else self._base(id, stream, head)
        if base is not None:
            return brought_up(base, self.types, reading, stream=stream, head=head)
        upto = None if at is not None else head
        found = replayed(self.kind, self.types, reading, id=id, stream=stream, head=upto)
        if at is not None and found.version == 0:
            self._require_beginning(stream)
        return found

    def _require_beginning(self, stream: str) -> None:
        """Before a stream's first event it is as new; before the oldest that is left, unknown."""
        oldest = next(self._store.read(stream), None)
        if oldest is not None and oldest.version > 1:
            raise HistoryGone(stream=stream, version=1, found=oldest.version)

    def _head(self, stream: str, version: int | None) -> int:
        found = self._store.version(stream)
        if version is not None and not 0 <= version <= found:
            raise NoSuchVersion(stream=stream, asked=version, found=found)
        return found if version is None else version

    def _base(self, id: str, stream: str, head: int) -> Aggregate | None:
        kept = self.kept.sure_copy(stream)
        if kept is not None and kept.version <= head and self._may_keep(kept):
            return kept
        return self._snapshot(id, stream, partial(self._read, stream), head)

    def _read(self, stream: str, after: int) -> Iterator[StoredEvent]:
        return self._store.read(stream, after=after)


class Deciding:
    """A command on a stream, for the writer to run."""

    def __init__(self, states: States, id: str, stream: str, call: Call) -> None:
        self.stream = stream
        self._states, self._id, self._call = states, id, call
        self._snapshot: bytes | None = None

    def __call__(self, head: StreamHead) -> list[NewEvent]:
        states, self._snapshot = self._states, None
        kept = states.current(self._id, head)
        # If it fails the state is not put back: a fold may have stopped halfway, and a command may
        # have changed a list in place before it refused.
        made = list(
            run_command(kept.aggregate, self._call, states.types, stream=self.stream, new_id=new_id)
        )
        if made:
            kept.last_id, kept.is_sure = made[-1].id, False
            self._snapshot = states.snapshot_due(kept, self.stream)
        states.kept.keep(self.stream, kept)
        return made

    def settle(self, future: "Future[Receipt]") -> None:
        """Its events are committed, or it was refused."""
        if future.cancelled() or future.exception() is not None:
            return
        self._states.kept.confirm(self.stream, future.result().events)
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and not future.result().is_repeat:
            self._states.put_snapshot(self.stream, snapshot)


class Shunning:
    """The decision that an event shall not count."""

    def __init__(self, states: States, id: str, stream: str, event_id: str, why: str) -> None:
        self.stream = stream
        self._states, self._id, self._event_id, self._why = states, id, event_id, why

    def __call__(self, head: StreamHead) -> list[NewEvent]:
        states, stream = self._states, self.stream
        found = require_shunnable(
            states.kind, head.events, self._event_id, stream=stream, head=head.version
        )
        if found is None:
            return []
        replayed(  # the fold must bear it, before it is a fact
            states.kind,
            states.types,
            head.events,
            id=self._id,
            stream=stream,
            head=head.version,
            without=[self._event_id],
        )
        fact = Shunned(event=self._event_id, version=found.version, why=self._why)
        return [shunned_event(fact, event_id=new_id())]


class _ThreadIds(threading.local):
    """Each writer draws from its own."""

    def __init__(self) -> None:
        self.draw = EventIds()


_ids = _ThreadIds()


def new_id() -> str:
    return _ids.draw()


class _Reading:
    """Reads events, and remembers the last one's id."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self.last_id: str | None = None

    def __call__(self, after: int) -> Iterator[StoredEvent]:
        for event in self._read(after):
            self.last_id = event.id
            yield event


def place_of(snapshot: Snapshot) -> str:
    """What a sealed snapshot is bound to."""
    return f"{snapshot.stream} {snapshot.version}"


def ids_in(events: Iterator[StoredEvent]) -> Iterator[str]:
    return (event.id for event in events)
