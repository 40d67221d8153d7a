"""Dead letters of a read: values that could not be decoded, kept with why and where they were.

The record goes to `<topic>.dead` as it came, key, value and headers, with the headers of KIP-1191
behind its own. It is on disk there before the batch that lacks it can be used. A batch that Spark
repeats writes its letters again: the origin in their headers says that they are one.
"""

from collections.abc import Sequence
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
from millstream.processing.kafka_clients import TopicNotFound
from millstream.processing.outbox import Outbox
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_offsets import DEAD_SUFFIX
from millstream.processing.reading.topic_read import TopicRead
from millstream.values.decoder import Bad

Header = tuple[str, str | bytes | None]
ORIGIN_HEADERS = (TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER)
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


def origin_of(letter: Message) -> tuple[bytes, ...] | None:
    """The place that a letter came from; None for what is no letter.

    One that was put back and died again tells all its past: its last headers are of its last death.
    """
    facts = dict(letter.headers() or ())
    origin = tuple(facts.get(name) for name in ORIGIN_HEADERS)
    return None if None in origin else origin  # type: ignore[return-value]  # none of them is None


def count_letters(read: TopicRead, topic: str) -> int:
    """How many records of `topic` have become dead letters; one that was written twice is one."""
    letters = TopicRead(brokers=read.brokers, topics=(f"{topic}{DEAD_SUFFIX}",), client=read.client)
    try:
        ranges = batch_ranges(letters)
    except TopicNotFound:
        return 0
    reader = RangeReader(letters)
    origins = {
        origin_of(record)
        for part, within in ranges
        for records in reader.read(part, within)
        for record in records
    }
    return len(origins - {None})


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
