"""Applications that read, process and write in transactions, and go on where the last one ended.

`copier_arguments` is Kafka's own, TransactionalMessageCopier (Java, the newer flow): it copies one
partition and aborts a third of its transactions if told to. `CopyingWorker` does the same with
librdkafka (the older flow). Killed, fenced or cut off, another one with the same transactional id
and group takes over, and every message is in the target once.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.steady_load import PATIENT

NAME = "copier"
# With its default, librdkafka 2.16 forgets its brokers when all are away, and a call that waits
# for one of them may wait for ever.
STEADFAST = {**PATIENT, "metadata.recovery.strategy": "none"}
CALL_SECONDS_MAX = 20.0


def copier_arguments(
    bootstrap: str, source: str, target: str, transactional_id: str = NAME
) -> tuple[str, ...]:
    return (
        *("--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--transactional-id", transactional_id),
        *("--consumer-group", transactional_id, "--transaction-size", "50"),
    )


class CopyingWorker:
    """Copies partition 0 to all partitions of the target in turn, in a thread, until `count`."""

    def __init__(
        self,
        bootstrap: str,
        source: str,
        target: str,
        *,
        count: int,
        partitions: int,
        random: Random,
    ) -> None:
        self.copied = self.aborts = 0
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self._count = count
        self._partitions = partitions
        self._random = random
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="copying worker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while self.copied < self._count:
                with suppress(KafkaException):
                    self._work()
        except BaseException as error:
            self._failure = error

    def _work(self) -> None:
        """The life of one producer: until all is copied, or it has to give up."""
        producer, consumer = self._open()
        try:
            while self.copied < self._count:
                messages = consumer.consume(20, timeout=0.2)
                if any(message.error() is not None for message in messages):
                    self._rewind(consumer)
                elif messages:
                    self._copy(producer, consumer, messages)
        finally:
            consumer.close()

    def _open(self) -> tuple[Producer, Consumer]:
        producer = Producer(
            {
                **STEADFAST,
                "bootstrap.servers": self._bootstrap,
                "transactional.id": NAME,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(CALL_SECONDS_MAX)
        consumer = Consumer(
            {
                **STEADFAST,
                "bootstrap.servers": self._bootstrap,
                "group.id": NAME,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            }
        )
        [start] = consumer.committed([TopicPartition(self._source, 0)], CALL_SECONDS_MAX)
        self.copied = max(start.offset, 0)
        consumer.assign([TopicPartition(self._source, 0, self.copied)])
        return producer, consumer

    def _copy(self, producer: Producer, consumer: Consumer, messages: Sequence[Message]) -> None:
        end = (messages[-1].offset() or 0) + 1
        producer.begin_transaction()
        try:
            for message in messages:
                partition = int(message.value() or 0) % self._partitions
                producer.produce(self._target, message.value(), partition=partition)
            position = TopicPartition(self._source, 0, end)
            reader = consumer.consumer_group_metadata()
            self._insist(producer.send_offsets_to_transaction, [position], reader)
            if self._random.random() < 1 / 4:
                self._abort(producer, consumer)
                return
            self._insist(producer.commit_transaction)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self._abort(producer, consumer)
            return
        self.copied = end

    def _abort(self, producer: Producer, consumer: Consumer) -> None:
        self._insist(producer.abort_transaction)
        self._rewind(consumer)
        self.aborts += 1

    def _rewind(self, consumer: Consumer) -> None:
        consumer.seek(TopicPartition(self._source, 0, self.copied))

    def _insist(self, call: Callable[..., object], *arguments: object) -> None:
        """Ask again as long as that makes sense."""
        while True:
            try:
                call(*arguments, CALL_SECONDS_MAX)
                return
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise

    def wait(self, *, within_s: float) -> None:
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"{self.copied} of {self._count} copied in {within_s} s"
        if self._failure is not None:
            raise self._failure

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()
