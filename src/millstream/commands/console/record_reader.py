"""Reads a few records for a page, and follows a topic for a tail. Joins no group, commits nothing.

Only what is committed: as a consumer sees it. The newest are read from the ends of the partitions
backwards, a stretch at a time, as nobody knows how large records are: so what was read when the
time or the bytes are used up are the newest, and not the oldest of the last.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from millstream.base.offsets import OffsetRange
from millstream.base.quantity import KIB, MIB
from millstream.base.record import Header
from millstream.commands.connecting import Partition, bootstrap, client_config, error_from
from millstream.setting_kinds import Address
from millstream.web.console.facts import Look, RecordSeen

READ_SECONDS_MAX = 5.0
POLL_SECONDS = 0.2
# Of one page, or of a search: sixteen at one time hold 256 MiB.
READ_BYTES_MAX = 16 * MIB
# Of a page of the newest: the others are told, and are read when one is chosen.
PARTITIONS_READ_MAX = 256
# Where a stretch has no record (markers of transactions, what compaction took), the next is longer.
EMPTY_GROWTH = 8
TAIL_MESSAGES_MAX = 2_000
TAIL_BYTES_MAX = MIB
# What a consumer holds beside what was taken of it: a fetch of this size, and so much in its queue.
FETCH_BYTES_MAX = MIB
TAIL_FETCH_BYTES_MAX = 256 * KIB
PASSING = ("_PARTITION_EOF", "_ALL_BROKERS_DOWN", "_TRANSPORT", "_AUTO_OFFSET_RESET")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What was read of ranges of offsets; `unread`: partitions whose range was not read whole."""

    found: Sequence[RecordSeen]
    unread: frozenset[Partition] = frozenset()


Ranges = Mapping[Partition, OffsetRange]
# Of ranges, up to so many records and bytes: at least one record, if there is one.
Read = Callable[[Ranges, int, int], Stretch]


def newest_records(
    brokers: tuple[Address, ...],
    available: Ranges,
    *,
    limit: int,
    newest_ms: Callable[[Iterable[Partition]], Mapping[Partition, int | None]],
) -> Look:
    """The newest first. Of more partitions than records are shown, those that were written to last
    have them all."""
    filled = [part for part, within in available.items() if within.end > within.start]
    chosen = filled
    if len(filled) > min(limit, PARTITIONS_READ_MAX):
        times = newest_ms(filled)
        chosen = sorted(filled, key=lambda part: times.get(part) or 0, reverse=True)
        chosen = chosen[: min(limit, PARTITIONS_READ_MAX)]
    if not chosen:
        return Look()
    with closing(RangeReader(brokers)) as reader:
        look = newest_of({part: available[part] for part in chosen}, reader.read, limit=limit)
    left_out = set(filled).difference(chosen) if len(chosen) < limit else ()
    return Look(
        look,
        is_cut=look.is_cut,
        unread=sorted([*look.unread, *(part.number for part in left_out)]),
    )


def newest_of(
    available: Ranges, read: Read, *, limit: int, bytes_max: int = READ_BYTES_MAX
) -> Look:
    """Stretch by stretch, until no partition can have a newer record than those that were found, or
    no more may be held."""
    backwards = Backwards(available, limit=limit, bytes_max=bytes_max)
    while ranges := backwards.ranges():
        bytes_left = bytes_max - sum(map(size_of, backwards.found))
        stretch = read(ranges, limit + len(ranges), bytes_left)
        if not backwards.take(ranges, stretch):
            return Look(backwards.found, is_cut=True, unread=backwards.unseen())
    return Look(backwards.found)


class Backwards:
    """Which offsets to read next, so that the newest records of all partitions are found. Pure.

    Every partition is read from `_starts` on, without a gap. It is read on while what is before may
    be newer than the last of those that will be shown; within a partition time goes on."""

    def __init__(self, available: Ranges, *, limit: int, bytes_max: int) -> None:
        self._available, self._limit, self._bytes_max = available, limit, bytes_max
        self._starts = {part: within.end for part, within in available.items()}
        self._oldest_ms: dict[Partition, int] = {}
        self._empty = dict.fromkeys(available, 1)  # what to read at least, after nothing was found
        self._at_most: int | None = None  # after a stretch was too long
        self._read_bytes, self._read_records = 0, 0
        self.found: list[RecordSeen] = []

    def ranges(self) -> dict[Partition, OffsetRange]:
        """Empty when all is found."""
        parts = [part for part in self._available if self._may_have_newer(part)]
        return {part: self._range(part, self._step(part, len(parts))) for part in parts}

    def _may_have_newer(self, part: Partition) -> bool:
        if self._starts[part] <= self._available[part].start:
            return False
        if len(self.found) < self._limit or part not in self._oldest_ms:
            return True
        return self._oldest_ms[part] > (self.found[-1].timestamp_ms or 0)

    def _step(self, part: Partition, parts: int) -> int:
        """At first one of each, which tells how large they are; then as many as fit."""
        step = self._empty[part]
        if self._read_records:
            bytes_left = self._bytes_max - sum(map(size_of, self.found))
            fitting = bytes_left * self._read_records // (max(1, self._read_bytes) * parts)
            step = max(step, min(-(-self._limit // parts), fitting))
        return step if self._at_most is None else min(step, self._at_most)

    def _range(self, part: Partition, step: int) -> OffsetRange:
        end = self._starts[part]
        return OffsetRange(start=max(self._available[part].start, end - step), end=end)

    def take(self, ranges: Ranges, stretch: Stretch) -> bool:
        """Whether it is of use to read on. Of a range that was not read whole the newest are
        missing: it is left, and a shorter one is tried."""
        self._read_records += len(stretch.found)
        self._read_bytes += sum(map(size_of, stretch.found))
        whole = [part for part in ranges if part not in stretch.unread]
        for part in whole:
            self._note(part, ranges[part], [one for one in stretch.found if _part(one) == part])
        kept = [one for one in stretch.found if _part(one) not in stretch.unread]
        self.found = sorted([*self.found, *kept], key=_age, reverse=True)[: self._limit]
        longest = max((ranges[part].end - ranges[part].start for part in stretch.unread), default=0)
        self._at_most = max(1, longest // 2) if longest else None
        is_full = sum(map(size_of, self.found)) >= self._bytes_max
        return longest != 1 and not (is_full and self.ranges())

    def _note(self, part: Partition, within: OffsetRange, found: Sequence[RecordSeen]) -> None:
        self._starts[part] = within.start
        if found:
            self._oldest_ms[part] = min(one.timestamp_ms or 0 for one in found)
            self._empty[part] = 1
        else:
            self._empty[part] = EMPTY_GROWTH * (within.end - within.start)

    def unseen(self) -> list[int]:
        """Partitions of which nothing was read."""
        starts = self._starts.items()
        return [part.number for part, at in starts if at == self._available[part].end]


def size_of(record: RecordSeen) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers or ())
    return len(record.key or b"") + len(record.value or b"") + headers


def _part(record: RecordSeen) -> Partition:
    return Partition(record.topic, record.partition)


def _age(record: RecordSeen) -> tuple[int, int, int]:
    return record.timestamp_ms or 0, record.partition, record.offset


def records_from(
    brokers: tuple[Address, ...], part: Partition, within: OffsetRange, *, offset: int, limit: int
) -> Look:
    """In order, from an offset or what is left after it."""
    start = max(offset, within.start)
    if start >= within.end:
        return Look()
    with closing(RangeReader(brokers)) as reader:
        wanted = {part: OffsetRange(start=start, end=within.end)}
        stretch = reader.read(wanted, limit, READ_BYTES_MAX)
    return Look(stretch.found, is_cut=bool(stretch.unread) and len(stretch.found) < limit)


class RangeReader:
    """Reads ranges of offsets with one consumer, until its time is up: then what came is all."""

    def __init__(self, brokers: tuple[Address, ...]) -> None:
        self._brokers = brokers
        self._consumer = _consumer(brokers, tail=False)
        self._until = time.monotonic() + READ_SECONDS_MAX

    def read(self, wanted: Ranges, records_max: int, bytes_max: int) -> Stretch:
        """One message at a time: several would be held, however large they are."""
        found: list[RecordSeen] = []
        unread, held_bytes = dict(wanted), 0
        self._consumer.assign([_place(part, within.start) for part, within in wanted.items()])
        while unread and len(found) < records_max and (not found or held_bytes < bytes_max):
            if time.monotonic() >= self._until:
                break
            message = self._consumer.poll(POLL_SECONDS)
            if message is None:
                continue
            part = Partition(str(message.topic()), message.partition() or 0)
            if message.error() is None and part in unread and message.offset() in wanted[part]:
                found.append(_record(message))
                held_bytes += size_of(found[-1])
            _note(message, part, unread, self._brokers)
        return Stretch(found=found, unread=frozenset(unread))

    def close(self) -> None:
        self._consumer.close()


def _note(
    message: Any,
    part: Partition,
    unread: dict[Partition, OffsetRange],
    brokers: tuple[Address, ...],
) -> None:
    """Whether the partition is read to the end of its range."""
    error = message.error()
    if error is not None and error.name() not in PASSING and not error.retriable():
        raise error_from(error, doing=f"read {part}", brokers=bootstrap(brokers))
    is_end = error is not None and error.name() == "_PARTITION_EOF"
    is_last = error is None and part in unread and message.offset() + 1 >= unread[part].end
    if is_end or is_last:
        unread.pop(part, None)


class Tail:
    """From the ends of the partitions on, as they are when it is made."""

    def __init__(self, brokers: tuple[Address, ...], partitions: Sequence[Partition]) -> None:
        from confluent_kafka import OFFSET_END

        self._brokers = brokers
        self._consumer = _consumer(brokers, tail=True)
        self._consumer.assign([_place(part, OFFSET_END) for part in partitions])

    def poll(self, timeout_s: float) -> list[RecordSeen]:
        """What is there, up to so many records and bytes; the rest waits at the broker. A broker
        that is gone for a moment is waited for."""
        found: list[RecordSeen] = []
        held_bytes = 0
        message = self._consumer.poll(timeout_s)
        while message is not None:
            error = message.error()
            if error is None:
                found.append(_record(message))
                held_bytes += size_of(found[-1])
            elif error.name() not in PASSING and not error.retriable():
                raise error_from(error, doing="follow the topic", brokers=bootstrap(self._brokers))
            if len(found) >= TAIL_MESSAGES_MAX or held_bytes >= TAIL_BYTES_MAX:
                break
            message = self._consumer.poll(0)
        return found

    def close(self) -> None:
        self._consumer.close()


def _consumer(brokers: tuple[Address, ...], *, tail: bool) -> Any:
    """Its queue holds as much as one fetch, and is filled again as soon as it is taken."""
    from confluent_kafka import Consumer

    fetch_bytes = TAIL_FETCH_BYTES_MAX if tail else FETCH_BYTES_MAX
    return Consumer(
        client_config(brokers)
        | {
            "group.id": "millstream-console",  # never joined, and never committed to
            "enable.auto.commit": False,
            "enable.partition.eof": not tail,
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest" if tail else "earliest",
            "fetch.wait.max.ms": 100 if tail else 10,
            "fetch.message.max.bytes": fetch_bytes,
            "fetch.max.bytes": MIB,  # librdkafka's least: as much as its message.max.bytes
            "queued.max.messages.kbytes": fetch_bytes // KIB,
            "fetch.queue.backoff.ms": 10,
        }
    )


def _place(part: Partition, offset: int) -> Any:
    from confluent_kafka import TopicPartition

    return TopicPartition(part.topic, part.number, offset)


def _record(message: Any) -> RecordSeen:
    kind, time_ms = message.timestamp()
    return RecordSeen(
        topic=str(message.topic()),
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp_ms=time_ms if kind else None,
        key=message.key(),
        value=message.value(),
        headers=_headers(message),
    )


def _headers(message: Any) -> tuple[Header, ...] | None:
    """A name that is not UTF-8 is an error of the client: the whole record would not be seen. Asked
    for once: the second answer is broken in it."""
    try:
        return tuple(message.headers() or ())
    except (SystemError, UnicodeDecodeError):
        return None
