"""Producers whose every call is written down; nothing here decides what is sent."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.faults.consistency.history import Ending, Isolation, Kind, Outcome, Send
from tests.faults.consistency.history_file import HistoryFile
from tests.faults.consistency.patience import CALL_SECONDS_MAX, PATIENT, until_done
from tests.faults.consistency.places import split_name

ABORTED_SHARE = 0.25


class Fenced(Exception):
    """The producer is of no more use: a newer one has its transactional id, or it lost its way."""


class Writer:
    """A producer that remembers where the broker put each value."""

    def __init__(self, bootstrap: str, name: str, **config: Any) -> None:
        self._name = name
        self._count = 0
        self._offsets: dict[str, int] = {}
        self.producer = Producer(
            {
                **PATIENT,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                **config,
            }
        )

    def new_send(self, topic: str, partition: int) -> Send:
        self._count += 1
        return Send(f"{topic}/{partition}", f"{self._name}/{self._count}")

    def produce(self, sends: Iterable[Send]) -> None:
        for send in sends:
            topic, partition = split_name(send.partition)
            self.producer.produce(
                topic, send.value, partition=partition, on_delivery=self._on_delivery
            )

    def flush(self) -> bool:
        """Wait until all is answered for; False if that will never be."""
        try:
            return self.producer.flush(CALL_SECONDS_MAX) == 0
        except (KafkaException, SystemError):  # what the client raises after a fatal error
            return False

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        value, offset = message.value(), message.offset()
        if error is None and value is not None and offset is not None:
            self._offsets[value.decode()] = offset

    def acknowledged(self, sends: Iterable[Send]) -> list[Send]:
        """The same sends, each with its offset if it has one."""
        return [send._replace(offset=self._offsets.get(send.value)) for send in sends]


class Transactions:
    """Begins and ends transactions of a writer, each one an operation of the history."""

    def __init__(self, writer: Writer, history: HistoryFile, random: Random) -> None:
        self._writer = writer
        self._producer = writer.producer
        self._history = history
        self._random = random
        self._sends: list[Send] = []
        self.number = 0

    def begin(self, **facts: Any) -> None:
        self._sends = []
        self.number = self._history.invoke(Kind.TRANSACTION, isolation=Isolation.COMMITTED, **facts)
        self._producer.begin_transaction()

    def produce(self, sends: Sequence[Send], **facts: Any) -> None:
        """What is about to be sent is written down first."""
        self._sends += sends
        self._history.progress(self.number, sends=self._sends, **facts)
        self._writer.produce(sends)

    def end(self) -> bool:
        """Commit, or abort some; True if it is committed. Raises Fenced if nobody knows."""
        if self._random.random() < ABORTED_SHARE:
            self._abort_on_purpose()
            return False
        self._history.ending(self.number, Ending.COMMIT)
        try:
            until_done(lambda: self._producer.commit_transaction(CALL_SECONDS_MAX))
        except KafkaException as error:
            self.fail(error)
        self._complete(Outcome.OK)
        return True

    def _abort_on_purpose(self) -> None:
        """Only when all is answered for.

        librdkafka 2.16 drops what it would have to send again, and gives its sequence numbers to
        the next transaction: a broker that has the dropped records takes those for repeats, and
        acknowledges what it never stores (docs/consistency.md).
        """
        is_answered = self._writer.flush()
        self._history.ending(self.number, Ending.ABORT)
        self._abort()
        if not is_answered:
            raise Fenced

    def fail(self, error: KafkaException) -> NoReturn:
        """A call of this transaction failed: abort it if that is possible, and go no further."""
        if error.args[0].txn_requires_abort():
            self._abort(note=str(error))
        else:
            self._complete(Outcome.INFO, note=str(error))
        raise Fenced from error

    def _abort(self, **facts: Any) -> None:
        try:
            until_done(lambda: self._producer.abort_transaction(CALL_SECONDS_MAX))
        except KafkaException as error:
            self._complete(Outcome.INFO, note=str(error))
            raise Fenced from error
        self._complete(Outcome.FAIL, **facts)

    def _complete(self, outcome: Outcome, **facts: Any) -> None:
        sends = self._writer.acknowledged(self._sends)
        self._history.complete(self.number, outcome, sends=sends, **facts)
