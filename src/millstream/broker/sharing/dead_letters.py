"""Dead letters: records that a share group has given up on, kept in a topic with their history.

The names of the headers are those of KIP-1191, and two of our own. A letter is durable before the
record counts as done: a crash in between repeats the letter, and never loses it. If it cannot be
written, the record stays in its queue.
"""

import asyncio
import contextlib
import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import NamedTuple

from millstream.base.clock import Clock
from millstream.base.dead_letter_headers import (
    DELIVERY_COUNT_HEADER,
    GROUP_HEADER,
    MEMBER_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TIMESTAMP_HEADER,
    TOPIC_HEADER,
)
from millstream.base.errors import MillstreamError
from millstream.base.record import Header, Record
from millstream.broker.config import BrokerConfig
from millstream.broker.group_commit import GroupCommit
from millstream.broker.share.share_partition import DeadLetter, DeadLetters
from millstream.broker.share.share_state_records import SharePartitionKey
from millstream.broker.topics import Topic, TopicExists, Topics
from millstream.log.partition_log import OffsetOutOfRange, PartitionLog
from millstream.log.record_batch import decode_records, encode_batch, read_header

logger = logging.getLogger(__name__)


READ_BYTES = 1 << 20
# A letter is its record and its headers: names and ids, which are at most a few hundred bytes.
HEADERS_BYTES_MAX = 64 << 10


class DeadLetterOffice:
    """Writes dead letters. Owned by the broker's loop."""

    def __init__(
        self,
        topics: Topics,
        commit: GroupCommit,
        config: BrokerConfig,
        *,
        read_threads: Executor,
        now_ms: Clock,
    ) -> None:
        self._topics = topics
        self._commit = commit
        self._config = config
        self._read_threads = read_threads
        self._now_ms = now_ms
        self._failing: set[str] = set()
        self.written_count = 0

    async def write(self, name: str, key: SharePartitionKey, letters: DeadLetters) -> None:
        """Put them into the topic `name`; returns when they are durable."""
        try:
            await self._write(name, key, letters)
        except MillstreamError as error:
            self._note_failure(name, key.group_id, error)
            raise
        self._failing.discard(key.group_id)

    async def _write(self, name: str, key: SharePartitionKey, letters: DeadLetters) -> None:
        source = self._topics.with_id(key.topic_id)
        log = source.partition(key.partition).log
        loop = asyncio.get_running_loop()
        now_ms = self._now_ms()
        ordered = sorted(letters, key=lambda letter: letter.offsets.start)
        offset = _next_offset(ordered, 0)
        while offset is not None:
            read = await loop.run_in_executor(self._read_threads, _read, log, ordered, offset)
            records = [_letter_of(*one, source.name, key, now_ms) for one in read.given_up]
            if records:
                target = await self._target(name, log.config.message_bytes_max)
                await self._append(target, key.partition, records)
                self.written_count += len(records)
            offset = _next_offset(ordered, read.end)

    async def _target(self, name: str, record_bytes_max: int) -> Topic:
        """Made if it is not there and may be made; its letters stay until somebody deletes them."""
        if name not in self._topics and self._config.auto_create_topics:
            overrides = {
                "retention.ms": "-1",
                "max.message.bytes": str(record_bytes_max + HEADERS_BYTES_MAX),
            }
            with contextlib.suppress(TopicExists):
                await self._topics.create(
                    name,
                    self._config.default_partitions,
                    overrides,
                    partitions_max=self._config.auto_create_partitions_max,
                )
        return self._topics.named(name)

    async def _append(self, target: Topic, source_partition: int, records: list[Record]) -> None:
        partition = target.partition(source_partition % len(target.partitions))
        bytes_max = partition.log.config.message_bytes_max
        for batch in _batches_of(records, bytes_max):
            appended = partition.append(batch, now_ms=self._now_ms())
            await self._commit.durable(partition, appended)

    def _note_failure(self, name: str, group_id: str, error: MillstreamError) -> None:
        if group_id not in self._failing:  # it is tried again and again: said once
            self._failing.add(group_id)
            logger.error(
                "share group %s: its dead letters cannot be written to topic %s, so the records "
                "stay in the queue and come again: %s",
                group_id, name, error,
            )  # fmt: skip


class GivenUp(NamedTuple):
    """Records that letters are about, and where to read on."""

    given_up: list[tuple[Record, DeadLetter]]
    end: int


def _next_offset(letters: Sequence[DeadLetter], offset: int) -> int | None:
    """The first offset from `offset` on that a letter is about; they are in order."""
    for letter in letters:
        if letter.offsets.end > offset:
            return max(letter.offsets.start, offset)
    return None


def _read(log: PartitionLog, letters: Sequence[DeadLetter], offset: int) -> GivenUp:
    """Of the next mebibyte, what is still there. It may wait for the device: call it in a
    thread."""
    try:
        span = log.read(offset, bytes_max=READ_BYTES)
    except OffsetOutOfRange:  # deleted meanwhile; what lies behind may still be there
        return GivenUp([], max(offset + 1, log.start_offset))
    given_up: list[tuple[Record, DeadLetter]] = []
    starts = [letter.offsets.start for letter in letters]
    end = offset + 1
    for batch in _batches(span):
        header = read_header(batch)
        end = max(end, header.last_offset + 1)
        if not header.is_control and header.base_offset < letters[-1].offsets.end:
            there = (one for one in decode_records(batch) if one.offset >= offset)
            given_up += _in_letters(there, letters, starts)
    return GivenUp(given_up, end if span else letters[-1].offsets.end)


def _in_letters(
    records: Iterable[Record], letters: Sequence[DeadLetter], starts: Sequence[int]
) -> Iterator[tuple[Record, DeadLetter]]:
    for record in records:
        letter = letters[bisect_right(starts, record.offset) - 1]
        if record.offset in letter.offsets:
            yield record, letter


def _batches(span: memoryview) -> Iterator[memoryview]:
    position = 0
    while position < len(span):
        end = position + read_header(span, position).size_bytes
        yield span[position:end]
        position = end


def _letter_of(
    record: Record, letter: DeadLetter, topic: str, key: SharePartitionKey, now_ms: int
) -> Record:
    """What came with the record stays in front: a letter that was sent again tells all its past."""
    history = _headers(
        (TOPIC_HEADER, topic),
        (PARTITION_HEADER, key.partition),
        (OFFSET_HEADER, record.offset),
        (GROUP_HEADER, key.group_id),
        (DELIVERY_COUNT_HEADER, letter.delivery_count),
        (MESSAGE_HEADER, letter.reason.value),
        (MEMBER_HEADER, letter.member_id),
        (TIMESTAMP_HEADER, record.timestamp_ms),
    )
    return replace(record, headers=(*record.headers, *history), timestamp_ms=now_ms)


def _batches_of(letters: Iterable[Record], bytes_max: int) -> Iterator[memoryview]:
    """As few as the topic allows; a letter that is too large is for the topic to refuse."""
    together: list[Record] = []
    size_bytes = 0
    for letter in letters:
        letter_bytes = _size_bytes(letter)
        if together and size_bytes + letter_bytes > bytes_max:
            yield memoryview(encode_batch(together))
            together, size_bytes = [], 0
        together.append(letter)
        size_bytes += letter_bytes
    if together:
        yield memoryview(encode_batch(together))


def _size_bytes(letter: Record) -> int:
    """At most so much in a batch, with a share of its header."""
    headers_bytes = sum(len(name) * 4 + len(value or b"") + 10 for name, value in letter.headers)
    return len(letter.key or b"") + len(letter.value or b"") + headers_bytes + 100


def _headers(*facts: tuple[str, object]) -> Iterable[Header]:
    return ((name, str(fact).encode()) for name, fact in facts)
