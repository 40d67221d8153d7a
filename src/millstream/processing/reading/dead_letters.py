"""Dead letters of a read: values that could not be decoded, kept with why and where they were.

The record goes to `<topic>.dead` as it came, key, value and headers, with the headers of KIP-1191
behind its own. It is on disk there before the batch that lacks it can be used. A record that has a
letter already, of another job or of a batch that Spark repeats, gets no second one
(`known_letters.py`); where two are written all the same, their origin says that they are one.
"""

import logging
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
from millstream.base.letter_notes import (
    NOTES_CONFIG,
    LetterNote,
    note_key,
    note_value,
    notes_topic,
)
from millstream.base.offsets import OffsetRange
from millstream.processing.kafka_clients import RefusedByBroker, TopicNotFound
from millstream.processing.outbox import Outbox
from millstream.processing.reading.known_letters import (
    LetterKey,
    known_letters,
    letter_key,
    origin_of,
    packed,
    record_key,
    turn_of,
)
from millstream.processing.reading.offset_plan import Partition
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_offsets import DEAD_SUFFIX
from millstream.processing.reading.topic_read import TopicRead
from millstream.values.decoder import Bad

__all__ = ["LetterTally", "count_letters", "letter_headers", "origin_of", "send_letters"]
logger = logging.getLogger(__name__)

Header = tuple[str, str | bytes | None]
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


def count_letters(read: TopicRead, topic: str) -> int:
    """How many records of `topic` have become dead letters; one that was written twice is one."""
    return LetterTally(read.brokers, read.client, topic=topic).count()


class LetterTally:
    """How many records of a topic are dead letters: each once, though several jobs have met it, or
    a batch was repeated. Each call reads only what was written since the last."""

    def __init__(self, brokers: str, client: Mapping[str, str], *, topic: str) -> None:
        self._read = TopicRead(brokers=brokers, topics=(f"{topic}{DEAD_SUFFIX}",), client=client)
        self._origins: set[LetterKey] = set()
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
            keys = map(letter_key, records)
            self._origins.update(key for key in keys if key is not None)
        self._reached[part] = within.end


def send_letters(
    read: TopicRead, records: Sequence[Message], bad: Sequence[Bad], *, suffix: str = DEAD_SUFFIX
) -> None:
    """Return when every letter is acknowledged. `records` are of one partition.

    A record has one dead letter, whichever job wrote it; each other job is in a note beside it.
    """
    if not bad or suffix != DEAD_SUFFIX:
        return _send(read, records, bad, suffix=suffix)
    first = records[bad[0].row]
    part = Partition(first.topic() or "", first.partition() or 0)
    with turn_of(part):
        writers = _writers(read, part.topic)
        wrote = [writers.get(packed(record_key(records[letter.row]))) for letter in bad]
        new = [letter for letter, job in zip(bad, wrote, strict=True) if job is None]
        _send(read, records, new, suffix=suffix)
    own = read.job.encode()
    met = [letter for letter, job in zip(bad, wrote, strict=True) if job not in (None, own)]
    if met and read.job:
        _note(read, part.topic, records, met)
    return None


def _writers(read: TopicRead, topic: str) -> Mapping[bytes, bytes]:
    """None at all for a job that may write letters and not read them."""
    try:
        return known_letters(read, topic).writers()
    except RefusedByBroker as error:
        logger.warning(
            "dead letters of %s are written without a look at those there: %s", topic, error
        )
        return {}


def _send(read: TopicRead, records: Sequence[Message], bad: Sequence[Bad], *, suffix: str) -> None:
    if not bad:
        return
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


def _note(read: TopicRead, topic: str, records: Sequence[Message], met: Sequence[Bad]) -> None:
    """Name this job beside the letters of others. The letters are there: a job does not stop
    because it may not write notes."""
    to = notes_topic(topic)
    if to is None:
        return
    outbox = Outbox(read.brokers, read.client)
    try:
        for letter in met:
            note = _note_of(records[letter.row], job=read.job)
            value = note_value(letter.reason[:REASON_LENGTH_MAX])
            outbox.send(to, key=note_key(note), value=value, topic_config=NOTES_CONFIG)
        outbox.close(doing=f"name the job in {to}")
    except RefusedByBroker as error:
        logger.warning("job %s is not named beside dead letters of %s: %s", read.job, topic, error)


def _note_of(record: Message, *, job: str) -> LetterNote:
    _, time_ms = record.timestamp()
    letter_id = f"{record.topic()}-{record.partition()}-{record.offset()}"
    return LetterNote(id=letter_id, written_ms=time_ms, job=job)
