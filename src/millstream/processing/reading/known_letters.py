"""Which records of a topic have a dead letter already: looked up before another is written.

One task of this machine at a time looks and writes for a partition, so that jobs that meet a bad
record in the same moment write one letter. Tasks of several machines do not wait for one another:
there two letters are possible, which readers take for one. Nothing is lost by either. Writes
nothing (`dead_letters.py`).
"""

import contextlib
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Message

from millstream.base.dead_letter_headers import (
    GROUP_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TIMESTAMP_HEADER,
    TOPIC_HEADER,
)
from millstream.base.disk import FileLock, Unwritable
from millstream.base.offsets import OffsetRange
from millstream.processing.kafka_clients import TopicNotFound
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_offsets import DEAD_SUFFIX
from millstream.processing.reading.topic_read import TopicRead

Origin = tuple[bytes, bytes, bytes]
ORIGIN_HEADERS = (TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER)
# About 75 MB of memory, and some seconds of reading. Of a record whose letter is older, a job that
# comes later writes another one.
LETTERS_KNOWN_MAX = 500_000
# A task that is frozen holds its turn: after this time the others write without one.
TURN_SECONDS_MAX = 20.0
TURN_PAUSE_SECONDS = 0.005


class LetterKey(NamedTuple):
    """The place of a record, and its time: a topic that was recreated has other records there."""

    topic: bytes
    partition: bytes
    offset: bytes
    written_ms: bytes


class _Seen(NamedTuple):
    """The last letter of a partition that was read."""

    offset: int
    time_ms: int
    key: LetterKey | None


def origin_of(letter: Message) -> Origin | None:
    """The topic, partition and offset that a letter came from; None for what is not a letter.

    A letter that was put back and died again has all its past: its last headers are of its last
    death.
    """
    facts: dict[str, Any] = dict(letter.headers() or ())
    topic, partition, offset = (facts.get(name) for name in ORIGIN_HEADERS)
    if topic is None or partition is None or offset is None:
        return None
    return topic, partition, offset


def letter_key(letter: Message) -> LetterKey | None:
    """None for what is not a letter. Kafka itself does not write the time of the record."""
    if (origin := origin_of(letter)) is None:
        return None
    facts: dict[str, Any] = dict(letter.headers() or ())
    return LetterKey(*origin, facts.get(TIMESTAMP_HEADER) or b"")


def record_key(record: Message) -> LetterKey:
    """The key of the letter that this record has, or would get."""
    _, time_ms = record.timestamp()
    facts = (record.topic(), record.partition(), record.offset(), time_ms)
    return LetterKey(*(str(fact).encode() for fact in facts))


class KnownLetters:
    """The newest letters of a topic by key, with the job or group that wrote each. Each call reads
    only what was written since the last."""

    def __init__(self, read: TopicRead, *, topic: str) -> None:
        # A redrive that is under way hides no letter that was written after it.
        self._read = TopicRead(
            brokers=read.brokers,
            topics=(f"{topic}{DEAD_SUFFIX}",),
            client=read.client,
            read_committed=False,
            on_loss="skip",
        )
        self._writers: dict[bytes, bytes] = {}
        self._last: dict[Partition, _Seen] = {}
        self._lock = threading.Lock()

    def writers(self) -> dict[bytes, bytes]:
        """Who wrote the letter, by `packed` key, as the topic is now."""
        with self._lock:
            ranges = self._ranges()
            if not self._took(ranges):  # trimmed, deleted or recreated
                self._writers.clear()
                self._last.clear()
                self._took(ranges)
            self._forget_oldest()
            return self._writers

    def _ranges(self) -> dict[Partition, OffsetRange]:
        try:
            return dict(batch_ranges(self._read))
        except TopicNotFound:
            return {}

    def _took(self, ranges: dict[Partition, OffsetRange]) -> bool:
        """False if the topic does not continue what was read of it before."""
        for part, last in self._last.items():
            if part not in ranges or last.offset not in ranges[part]:
                return False
        return all(self._took_part(part, within) for part, within in ranges.items())

    def _took_part(self, part: Partition, within: OffsetRange) -> bool:
        last = self._last.get(part)
        newest = max(within.start, within.end - LETTERS_KNOWN_MAX)
        start = newest if last is None else last.offset
        unread = OffsetRange(start=start, end=within.end)
        for records in RangeReader(self._read).read(part, unread):
            if last is not None and _seen(records[0]) != last:
                return False
            last = None
            self._take(records)
            self._last[part] = _seen(records[-1])
        return True

    def _take(self, records: list[Message]) -> None:
        for record in records:
            if (key := letter_key(record)) is not None:
                facts: dict[str, Any] = dict(record.headers() or ())
                self._writers.setdefault(packed(key), facts.get(GROUP_HEADER) or b"")

    def _forget_oldest(self) -> None:
        if (count := len(self._writers)) > LETTERS_KNOWN_MAX:
            kept = islice(self._writers.items(), count - LETTERS_KNOWN_MAX // 2, None)
            self._writers = dict(kept)


def packed(key: LetterKey) -> bytes:
    """Without the topic, as all letters here have the same, and smaller than a tuple."""
    return b"-".join((key.partition, key.offset, key.written_ms))


def _seen(record: Message) -> _Seen:
    _, time_ms = record.timestamp()
    return _Seen(record.offset() or 0, time_ms, letter_key(record))


@cache
def _known(brokers: str, client: frozenset[tuple[str, str]], topic: str) -> KnownLetters:
    """One for each topic and process: a worker of Spark lives for many tasks."""
    read = TopicRead(brokers=brokers, topics=(topic,), client=dict(client))
    return KnownLetters(read, topic=topic)


def known_letters(read: TopicRead, topic: str) -> KnownLetters:
    return _known(read.brokers, frozenset(read.client.items()), topic)


@contextlib.contextmanager
def turn_of(part: Partition) -> Iterator[None]:
    """Wait until no other task of this machine writes letters of this partition."""
    name = hashlib.sha256(str(part).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"millstream-letters-{os.getuid()}-{name}.lock"
    try:
        lock = FileLock(path)
    except Unwritable:  # two letters are better than none
        yield
        return
    try:
        until = time.monotonic() + TURN_SECONDS_MAX
        while not lock.take() and time.monotonic() < until:
            time.sleep(TURN_PAUSE_SECONDS)
        yield
    finally:
        lock.release()
