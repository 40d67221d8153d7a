"""Follows the chains of hashes through a partition, and says where one is broken. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

from millstream.eventsourcing.partition_state import ReadRecords
from millstream.eventsourcing.stored_event import (
    NO_HASH,
    BadEventRecord,
    StoredEvent,
    decode_event,
    hash_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something in the log that is not as it was written."""

    partition: int
    offset: int
    stream: str
    version: int
    reason: str

    def __str__(self) -> str:
        where = f"partition {self.partition}, offset {self.offset}"
        return f"{where}, stream {self.stream}, version {self.version}: {self.reason}"


class ChainWalk:
    """Takes the records of a partition in order, or those of one of its streams. `is_cut`: its
    first ones may be gone. `homes` are the partitions that streams were seen in before."""

    def __init__(
        self,
        partition: int,
        *,
        is_cut: bool,
        is_one_stream: bool = False,
        homes: dict[str, int] | None = None,
    ) -> None:
        self._partition, self._is_cut = partition, is_cut
        self._is_one_stream = is_one_stream
        self._heads: dict[str, tuple[int, bytes]] = {}
        self._homes = {} if homes is None else homes
        self._seq: int | None = None
        self.events = 0

    def take_all(self, records: ReadRecords) -> Iterator[Finding]:
        keys = repeat(None) if records.keys is None else records.keys
        for offset, value, key in zip(records.offsets, records.values, keys, strict=False):
            if finding := self.take(offset, value, key):
                yield finding

    def take(self, offset: int, value: bytes, key: bytes | None = None) -> Finding | None:
        """Without a key, that is not looked at."""
        self.events += 1
        try:
            event = decode_event(value, place=f"offset {offset}")
        except BadEventRecord as error:
            return self._found(offset, "?", 0, f"no event ({error.reason})")
        reason = self._reason_against(event, value) or self._misplaced(event, key)
        self._seq = event.seq
        # What follows is judged by what this record says of itself: one change is one finding.
        self._heads[event.stream] = event.version, _told_hash(event)
        if not reason:
            return None
        return self._found(offset, event.stream, event.version, reason)

    def _reason_against(self, event: StoredEvent, value: bytes) -> str:
        known = self._heads.get(event.stream)
        is_unknown = known is None and self._is_cut and event.version > 1
        version, before = known or (0, NO_HASH)
        is_next = self._seq is None or self._is_one_stream or event.seq == self._seq + 1
        if not is_next:
            return f"number {event.seq} follows {self._seq}"
        if not is_unknown and event.version != version + 1:
            return f"version {event.version} follows {version}"
        if not is_unknown and hash_of(value, before).hex() != event.hash:
            return "its hash is not that of its bytes and of the event before"
        return ""

    def _misplaced(self, event: StoredEvent, key: bytes | None) -> str:
        if key is not None and key != event.stream.encode():
            return "its key is that of another stream"
        home = self._homes.setdefault(event.stream, self._partition)
        if home != self._partition and event.stream not in self._heads:
            return f"the stream is in partition {home} as well: under another scope?"
        return ""

    def _found(self, offset: int, stream: str, version: int, reason: str) -> Finding:
        return Finding(
            partition=self._partition, offset=offset, stream=stream, version=version, reason=reason
        )


def _told_hash(event: StoredEvent) -> bytes:
    try:
        return bytes.fromhex(event.hash)
    except ValueError:
        return NO_HASH
