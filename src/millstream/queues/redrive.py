"""Reads a queue's dead letters, and puts them back: each once, whatever is repeated or crashes.

The job and the record that remembers it go into their topics in one transaction, under one
transactional id for each queue: a second redrive at the same time fences the first, and then reads
what that one has done.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.letter_notes import LetterNote, note_from, notes_topic
from millstream.base.record import Record
from millstream.queues.client_trouble import ClientTrouble
from millstream.queues.letters import DeadLetter, job_record, letters_in, redriven_record
from millstream.queues.terms import QueueTerms, topics_seen

ANSWER_SECONDS_MAX = 30.0
LETTERS_PER_TRANSACTION = 500
# A redrive that is killed leaves its transaction open, and the queue's workers, who read committed
# jobs only, get nothing that was put behind it until then.
TRANSACTION_MS_MAX = 15_000
# Of a consumer that joins no group and commits nothing librdkafka still wants a name.
READER = "millstream-dead-letters"


class NoSuchLetter(Rejected):
    def __init__(self, *, queue: str, ids: Sequence[str]) -> None:
        super().__init__(f"queue {queue} has no dead letter {', '.join(ids)}")
        self.queue, self.ids = queue, ids


class NoDeadLetterTopic(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"there is no dead-letter topic {topic}, so there is no such queue")
        self.topic = topic


class LetterTooLarge(Rejected):
    """With the history of its deaths a job can be larger than it was when it was put."""

    def __init__(self, *, queue: str, letter_id: str, reason: str) -> None:
        super().__init__(
            f"queue {queue}: dead letter {letter_id} cannot be put back ({reason}); raise "
            "message.max.bytes of the client and max.message.bytes of the topic, or name the others"
        )
        self.queue, self.letter_id = queue, letter_id


class RedriveFailed(Retryable):
    def __init__(self, *, queue: str, reason: str) -> None:
        super().__init__(
            f"queue {queue}: work on its dead letters stopped ({reason}); start it again"
        )
        self.queue, self.reason = queue, reason


def read_letters(terms: QueueTerms, config: Mapping[str, Any]) -> list[DeadLetter]:
    from confluent_kafka import KafkaException

    trouble = ClientTrouble(f"queue {terms.name}", config)
    try:
        return letters_in(_records(terms.dead_topic, trouble), _notes(terms, trouble))
    except KafkaException as error:
        raise _translated(error.args[0], trouble, terms) from error


def redrive(terms: QueueTerms, config: Mapping[str, Any], ids: list[str] | None) -> list[str]:
    """The ids of the letters that were put back now."""
    from confluent_kafka import KafkaException, Producer

    trouble = ClientTrouble(f"queue {terms.name}", config)
    producer = Producer(
        {
            **trouble.config,
            "transactional.id": f"{terms.group}.redrive",
            "transaction.timeout.ms": TRANSACTION_MS_MAX,
        }
    )
    try:
        topics_seen(producer, trouble)  # whether anything can be asked is known sooner so
        producer.init_transactions(ANSWER_SECONDS_MAX)
        wanted = _wanted(terms, read_letters(terms, config), ids)
        for start in range(0, len(wanted), LETTERS_PER_TRANSACTION):
            _put_back(producer, terms, wanted[start : start + LETTERS_PER_TRANSACTION])
    except KafkaException as error:
        raise _translated(error.args[0], trouble, terms) from error
    return [letter.id for letter in wanted]


def _translated(fault: Any, trouble: ClientTrouble, terms: QueueTerms) -> MillstreamError:
    unreached = trouble.error_from(fault)
    return unreached or RedriveFailed(queue=terms.name, reason=fault.str())


def _wanted(
    terms: QueueTerms, letters: list[DeadLetter], ids: list[str] | None
) -> list[DeadLetter]:
    unknown = {*(ids or ())} - {letter.id for letter in letters}
    if unknown:
        raise NoSuchLetter(queue=terms.name, ids=sorted(unknown))
    return [
        letter
        for letter in letters
        if letter.redriven_ms is None and (ids is None or letter.id in ids)
    ]


def _put_back(producer: Any, terms: QueueTerms, letters: Sequence[DeadLetter]) -> None:
    """All of them, or none."""
    from confluent_kafka import KafkaException

    producer.begin_transaction()
    try:
        for letter in letters:
            _put_back_one(producer, terms, letter)
        producer.commit_transaction(ANSWER_SECONDS_MAX)
    except BaseException:  # Ctrl-C, too
        with contextlib.suppress(KafkaException):  # fenced: it is over already
            producer.abort_transaction(ANSWER_SECONDS_MAX)
        raise


def _put_back_one(producer: Any, terms: QueueTerms, letter: DeadLetter) -> None:
    from confluent_kafka import KafkaException

    try:
        _send(producer, terms.name, job_record(letter))
    except KafkaException as error:
        if error.args[0].name() != "MSG_SIZE_TOO_LARGE":
            raise
        reason = error.args[0].str()
        raise LetterTooLarge(queue=terms.name, letter_id=letter.id, reason=reason) from error
    _send(producer, terms.dead_topic, redriven_record(letter.id))


def _send(producer: Any, topic: str, record: Record) -> None:
    producer.produce(topic, key=record.key, value=record.value, headers=list(record.headers))


def _records(topic: str, trouble: ClientTrouble) -> Iterator[Record]:
    """All that is in the topic now, partition by partition, transactions that ended only."""
    from confluent_kafka import Consumer

    reader = Consumer(
        {
            **trouble.config,
            "group.id": READER,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # the end is only told by an answer without records
        }
    )
    try:
        known = topics_seen(reader, trouble)
        if topic not in known:  # asked for by its name it would be made
            raise NoDeadLetterTopic(topic=topic)
        for number in sorted(known[topic].partitions):
            yield from _partition_records(reader, topic, number)
    finally:
        reader.close()


def _notes(terms: QueueTerms, trouble: ClientTrouble) -> Iterator[LetterNote]:
    """None at all if no second job has met a letter, or if they may not be read."""
    topic = notes_topic(terms.name)
    if topic is None:
        return
    with contextlib.suppress(NoDeadLetterTopic, RedriveFailed):
        for record in _records(topic, trouble):
            if (note := note_from(record.key)) is not None:
                yield note


def _partition_records(reader: Any, topic: str, number: int) -> Iterator[Record]:
    from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

    reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
    while True:
        message = reader.poll(ANSWER_SECONDS_MAX)
        if message is None:
            raise RedriveFailed(queue=topic, reason="no answer in time")
        if message.error() is None:
            yield _record_from(message)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return
        elif not message.error().retriable():
            raise RedriveFailed(queue=topic, reason=message.error().str())


def _record_from(message: Any) -> Record:
    _, timestamp_ms = message.timestamp()
    return Record(
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp_ms=timestamp_ms,
        offset=message.offset(),
    )
