"""What a writer knows of its partition: heads of streams, command ids, where events are. Pure.

All of it is derived from the log, event by event in the order of `seq`: by who reads it and by who
has just written it alike. Does not decide anything: `staging.py` does.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec

from millstream.base.quantity import MIB
from millstream.eventsourcing.event_index import EventIndex, OffsetRuns
from millstream.eventsourcing.stored_event import (
    NO_HASH,
    BadEventRecord,
    Command,
    StoredEvent,
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


class SeenCommand(NamedTuple):
    """Its events are `count` from `first_seq` on."""

    print: str
    stream: str
    first_seq: int
    count: int


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Records of a partition in order, as they were read: offsets, and values beside them."""

    offsets: Sequence[int]
    values: Sequence[bytes]


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
        self.recent = RecentEvents(recent_bytes_max)
        self.seq, self.end = 0, 0
        self.at: datetime | None = None

    # --- look up ------------------------------------------------------------------------------

    def version(self, stream: str) -> int:
        return self.index.version(stream)

    def hash_of(self, stream: str) -> bytes:
        return self.hashes.get(stream, NO_HASH)

    def offset_of(self, seq: int) -> int:
        return self.runs.offset_of(seq)

    def recent_event(self, seq: int) -> StoredEvent:
        return decode_event(self.recent.value(seq), place=f"{self.place}, event {seq}")

    # --- take in ------------------------------------------------------------------------------

    def take_read(self, records: ReadRecords, *, end: int) -> None:
        """What was read from the log behind all that is known, up to the offset `end`."""
        if records.values:
            events = decode_for_index(records, self.place)
            last = decode_event(records.values[-1], place=self.place)
            if not self.seq:  # the oldest event need not be the first: those before may be gone
                self.seq = events[0].seq - 1
            for event, offset in zip(events, records.offsets, strict=True):
                self._take(event, offset)
            self.hashes.update({event.stream: bytes.fromhex(event.hash) for event in events})
            self.recent.add(self.seq, records.values)
            self.at = last.at
        self.end = max(self.end, end)

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

    def note_command(self, command: Command, stream: str, seq: int, count: int = 1) -> None:
        """Events of one command are side by side."""
        seen = self.commands.get(command.id)
        if seen is not None and seen.first_seq + seen.count == seq and seen.stream == stream:
            self.commands[command.id] = seen._replace(count=seen.count + count)
            return
        self.commands[command.id] = SeenCommand(command.print, stream, seq, count)
        self.commands.move_to_end(command.id)
        while len(self.commands) > self.command_ids_max:
            self.commands.popitem(last=False)

    def _fail(self, offset: int, reason: str) -> None:
        raise BadEventRecord(place=f"{self.place}, offset {offset}", reason=reason)


_decode_many = msgspec.json.Decoder(list[IndexedEvent]).decode
_decode_one = msgspec.json.Decoder(IndexedEvent).decode


def decode_for_index(records: ReadRecords, place: str) -> list[IndexedEvent]:
    """At once: a call for each takes half as long again. One that is none is found then."""
    try:
        events = _decode_many(b"[" + b",".join(records.values) + b"]")
        if len(events) == len(records.values):
            return events
    except (msgspec.MsgspecError, TypeError):
        pass  # which one it is is found below
    for offset, value in zip(records.offsets, records.values, strict=True):
        try:
            _decode_one(value if value is not None else b"")
        except msgspec.MsgspecError as error:
            raise BadEventRecord(place=f"{place}, offset {offset}", reason=str(error)) from None
    raise BadEventRecord(place=f"{place}, offsets {records.offsets[0]} on", reason="not one each")
