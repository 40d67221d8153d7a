"""Dead letters of a read: values that could not be decoded, kept with why and where they were.

The record goes to `<topic>.dead` as it came, key, value and headers, with the headers of KIP-1191
behind its own. It is on disk there before the batch that lacks it can be used. A batch that Spark
repeats writes its letters again: the origin in their headers says that they are one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from millstream.base.dead_letter_headers import (
    GROUP_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TIMESTAMP_HEADER,
    TOPIC_HEADER,
)
from millstream.base.offsets import OffsetRange
from millstream.processing.kafka_clients import TopicNotFound
from millstream.processing.outbox import Outbox
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_offsets import DEAD_SUFFIX
from millstream.processing.reading.topic_read import TopicRead
from millstream.values.decoder import Bad

Header = tuple[str, str | bytes | None]
ORIGIN_HEADERS = (TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER)
Origin = tuple[bytes, ...]
REASON_LENGTH_MAX = 4_000
# With its headers a letter is larger than the record was, which its topic has just taken.
LETTERS_CONFIG = {"retention.ms": "-1", "max.message.bytes": str(2**31 - 1)}


def letter_headers(record: Message, *, reason: str, job: str) -> list[Header]:
    """The record's own headers, then where it was and why nobody could read it."""
    _, time_ms = record.timestamp()
    facts = {
        TOPIC_HEADER: record.topic(),
        PARTITION_HEADER: record.partition(),
        OFFSET_HEADER: record.offset(),
        GROUP_HEADER: job,
        MESSAGE_HEADER: reason[:REASON_LENGTH_MAX],
        TIMESTAMP_HEADER: time_ms,
    }
    own: Any = record.headers() or ()
    return [*own, *((name, str(fact).encode()) for name, fact in facts.items())]


def origin_of(letter: Message) -> Origin | None:
    """The place that a letter came from; None for what is no letter.

    One that was put back and died again tells all its past: its last headers are of its last death.
    """
    facts: dict[str, Any] = dict(letter.headers() or ())
    origin = tuple(facts.get(name) for name in ORIGIN_HEADERS)
    return None if None in origin else origin  # type: ignore[return-value]  # none of them is None


def _written_at(letter: Message) -> bytes:
    """The record's own time: a topic that was made again has other records at its offsets. Kafka
    itself does not write it."""
    facts: dict[str, Any] = dict(letter.headers() or ())
    return facts.get(TIMESTAMP_HEADER) or b""


def count_letters(read: TopicRead, topic: str) -> int:
    """How many records of `topic` have become dead letters; one that was written twice is one."""
    return LetterTally(read.brokers, read.client, topic=topic).count()


class LetterTally:
    """How many records of a topic are dead letters: each once, though several jobs have met it, or
    a batch was repeated. Each call reads only what was written since the last."""

    def __init__(self, brokers: str, client: Mapping[str, str], *, topic: str) -> None:
        self._read = TopicRead(brokers=brokers, topics=(f"{topic}{DEAD_SUFFIX}",), client=client)
        self._origins: set[Origin] = set()
        self._reached: dict[Partition, int] = {}

    def count(self) -> int:
        try:
            ranges = batch_ranges(self._read)
        except TopicNotFound:  # none so far, or since it was deleted
            ranges = []
        if not ranges or any(within.end < self._reached.get(part, 0) for part, within in ranges):
            self._origins.clear()  # deleted, trimmed or recreated
            self._reached.clear()
        for part, within in ranges:
            start = max(within.start, self._reached.get(part, 0))
            self._take(part, OffsetRange(start=start, end=within.end))
        return len(self._origins)

    def _take(self, part: Partition, within: OffsetRange) -> None:
        for records in RangeReader(self._read).read(part, within):
            self._origins.update(
                (*origin, _written_at(record))
                for record in records
                if (origin := origin_of(record)) is not None
            )
        self._reached[part] = within.end


def send_letters(
    read: TopicRead, records: Sequence[Message], bad: Sequence[Bad], *, suffix: str = DEAD_SUFFIX
) -> None:
    """Return when every letter is acknowledged."""
    outbox = Outbox(read.brokers, read.client)
    for letter in bad:
        record = records[letter.row]
        outbox.send(
            f"{record.topic()}{suffix}",
            key=record.key(),
            value=record.value(),
            headers=letter_headers(record, reason=letter.reason, job=read.job),
            topic_config=LETTERS_CONFIG,
        )
    outbox.close(doing=f"write {suffix.removeprefix('.')} letters")
