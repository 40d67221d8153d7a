"""What a writer knows of its partition: heads of streams, command ids, where events are. Pure.

All of it is derived from the log, event by event in the order of `seq`: by who reads it and by who
has just written it alike. Does not decide anything: `staging.py` does.
"""

from collections import OrderedDict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec

from millstream.base.quantity import MIB
from millstream.eventsourcing.event_index import EventIndex, OffsetRuns
from millstream.eventsourcing.stored_event import (
    NO_HASH,
    UNREADABLE,
    BadEventRecord,
    Command,
    decode_event,
)

COMMAND_IDS_MAX = 100_000
# Events that were written or read last are read again from memory.
RECENT_BYTES_MAX = 16 * MIB


class IndexedEvent(msgspec.Struct, frozen=True, gc=False):
    """As much of an event as the index needs: to skip the rest takes half the time."""

    seq: int
    stream: str
    version: int
    type: str
    hash: str
    tags: tuple[str, ...] = ()
    command: Command | None = None
    id: str = ""


class SeenCommand(NamedTuple):
    """Its events are `length` from `first_seq` on."""

    print: str
    stream: str
    first_seq: int
    length: int

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.length - 1


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Records of a partition in order, as they were read: offsets, and values beside them."""

    offsets: Sequence[int]
    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None  # only if someone asked for them

    def only(self, offsets: Container[int]) -> "ReadRecords":
        places = [at for at, offset in enumerate(self.offsets) if offset in offsets]
        return ReadRecords([self.offsets[at] for at in places], [self.values[at] for at in places])


class RecentEvents:
    """The values of the last events, up to so many bytes."""

    def __init__(self, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._values: list[bytes] = []
        self._bytes = 0
        self.first_seq = 1

    def add(self, last_seq: int, values: Sequence[bytes]) -> None:
        """`last_seq` is that of the last of them."""
        self._values += values
        self._bytes += sum(map(len, values))
        while self._bytes > self._bytes_max:
            gone = self._values[: len(self._values) // 2 + 1]
            del self._values[: len(gone)]
            self._bytes -= sum(map(len, gone))
        self.first_seq = last_seq + 1 - len(self._values)

    def value(self, seq: int) -> bytes:
        return self._values[seq - self.first_seq]


class PartitionState:
    """`seq` is the last event's, `end` the first offset of which nothing is known yet."""

    def __init__(
        self,
        place: str,
        *,
        command_ids_max: int = COMMAND_IDS_MAX,
        recent_bytes_max: int = RECENT_BYTES_MAX,
    ) -> None:
        self.place = place  # topic[partition], for messages
        self.command_ids_max = command_ids_max
        self.index, self.runs = EventIndex(), OffsetRuns()
        self.hashes: dict[str, bytes] = {}
        self.commands: OrderedDict[str, SeenCommand] = OrderedDict()
        self.event_ids: OrderedDict[str, None] = OrderedDict()
        self.recent = RecentEvents(recent_bytes_max)
        self.seq, self.end = 0, 0
        self.at: datetime | None = None
        self.last_hash = NO_HASH

    # --- look up ------------------------------------------------------------------------------

    def version(self, stream: str) -> int:
        return self.index.version(stream)

    def hash_of(self, stream: str) -> bytes:
        return self.hashes.get(stream, NO_HASH)

    def offset_of(self, seq: int) -> int:
        return self.runs.offset_of(seq)

    def offset_behind(self, seq: int) -> int:
        """Where to read on; at the oldest event, if this one is gone."""
        if not self.seq:
            return 0
        first = self.runs.first_seq
        return self.offset_of(first) if seq < first else self.offset_of(seq) + 1

    # --- take in ------------------------------------------------------------------------------

    def take_read(self, records: ReadRecords, *, end: int) -> None:
        """What was read from the log behind all that is known, up to the offset `end`. Of no use
        any more if it raises: half of the records may be taken."""
        if records.values:
            events = decode_for_index(records, self.place)
            if not self.seq:  # the oldest event need not be the first: those before may be gone
                self.seq = max(0, events[0].seq - 1)
            for event, offset in zip(events, records.offsets, strict=True):
                self._take(event, offset)
            self._take_hashes(events)
            self.note_events(event.id for event in events)
            self.recent.add(self.seq, records.values)
            self._take_last(records)
        self.end = max(self.end, end)

    def _take_hashes(self, events: Sequence[IndexedEvent]) -> None:
        for stream, hash in {event.stream: event.hash for event in events}.items():
            try:
                self.hashes[stream] = bytes.fromhex(hash)
            except ValueError:
                self.hashes[stream] = b""
            if len(self.hashes[stream]) != len(NO_HASH):
                place = f"{self.place}, stream {stream}"
                raise BadEventRecord(place=place, reason=f"its hash is {hash!r}")

    def _take_last(self, records: ReadRecords) -> None:
        place = f"{self.place}, offset {records.offsets[-1]}"
        last = decode_event(records.values[-1], place=place)
        if last.at.tzinfo is None:
            raise BadEventRecord(place=place, reason="its time has no zone")
        self.at, self.last_hash = last.at, bytes.fromhex(last.hash)

    def _take(self, event: IndexedEvent, offset: int) -> None:
        seq = self.seq + 1
        if event.seq != seq:
            self._fail(offset, f"number {event.seq} follows {self.seq}")
        index, stream = self.index, event.stream
        index.add(seq, stream, event.type, event.tags)
        if event.version != index.version(stream):
            self._take_version(event, offset)
        self.runs.add(seq, offset)
        if event.command is not None:
            self.note_command(event.command, stream, seq)
        self.seq = seq

    def _take_version(self, event: IndexedEvent, offset: int) -> None:
        """A stream may begin later than with its first event, if that is gone."""
        if len(self.index.streams[event.stream]) > 1 or event.version < 1:
            before = self.index.version(event.stream) - 1
            self._fail(offset, f"version {event.version} of {event.stream} follows {before}")
        self.index.first_versions[event.stream] = event.version

    def note_command(self, command: Command, stream: str, seq: int, length: int = 1) -> None:
        """Events of one command are side by side."""
        seen = self.commands.get(command.id)
        if seen is not None and seen.first_seq + seen.length == seq and seen.stream == stream:
            self.commands[command.id] = seen._replace(length=seen.length + length)
            return
        self.commands[command.id] = SeenCommand(command.print, stream, seq, length)
        self.commands.move_to_end(command.id)
        while len(self.commands) > self.command_ids_max:
            self.commands.popitem(last=False)

    def note_events(self, ids: Iterable[str]) -> None:
        """So many of the last ones are known again as are command ids."""
        self.event_ids.update(dict.fromkeys(ids))
        while len(self.event_ids) > self.command_ids_max:
            self.event_ids.popitem(last=False)

    def _fail(self, offset: int, reason: str) -> None:
        raise BadEventRecord(place=f"{self.place}, offset {offset}", reason=reason)


_decode = msgspec.json.Decoder(IndexedEvent).decode


def decode_for_index(records: ReadRecords, place: str) -> list[IndexedEvent]:
    """Raises BadEventRecord for the first that is none."""
    try:
        return list(map(_decode, records.values))
    except UNREADABLE:  # one of them is none: which, and why?
        return [
            _decode_at(value, f"{place}, offset {offset}")
            for offset, value in zip(records.offsets, records.values, strict=True)
        ]


def _decode_at(value: bytes, place: str) -> IndexedEvent:
    try:
        return _decode(value)
    except UNREADABLE as error:
        raise BadEventRecord(place=place, reason=str(error)) from None
