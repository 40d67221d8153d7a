"""Steps that the transaction tests share: take part in one, end it, and see who sees what."""

import time
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    OffsetSpec,
)

from tests.clients.steps import WITHIN_S, eventually, open_consumer, unique_name, values_of

COMMITTED = {"isolation.level": "read_committed"}
UNCOMMITTED = {"isolation.level": "read_uncommitted"}


def open_producer(bootstrap: str, transactional_id: str, **config: Any) -> Producer:
    """A producer that has its epoch; whoever had the id before is fenced."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 0,
            **config,
        }
    )
    producer.init_transactions(WITHIN_S)
    return producer


def send(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """Put records into the open transaction, and wait until the broker has them."""
    for value in values:
        producer.produce(topic, value, partition=partition)
    left = producer.flush(WITHIN_S)
    assert left == 0, f"{left} records of {topic} were not delivered"


def commit(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    """One whole transaction."""
    producer.begin_transaction()
    send_and_commit(producer, topic, *values, partition=partition)


def send_and_commit(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    send(producer, topic, *values, partition=partition)
    producer.commit_transaction(WITHIN_S)


def abort(producer: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    producer.begin_transaction()
    send(producer, topic, *values, partition=partition)
    producer.abort_transaction(WITHIN_S)


def assigned(bootstrap: str, topic: str, config: dict[str, str], partitions: int = 1) -> Consumer:
    """A consumer at the start of every partition, that says where one ends for now."""
    consumer = open_consumer(
        bootstrap, unique_name("reader"), {"enable.partition.eof": True, **config}
    )
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
    )
    return consumer


def read_to_end(consumer: Consumer, partitions: int = 1) -> list[Message]:
    """What there is to be read up to the present end of each partition."""
    messages: list[Message] = []
    still_open = set(range(partitions))
    deadline = time.monotonic() + WITHIN_S
    while still_open:
        assert time.monotonic() < deadline, f"partitions {still_open} have no end"
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            messages.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            still_open.discard(message.partition() or 0)
        else:
            raise KafkaException(error)
    return messages


def visible(
    bootstrap: str, topic: str, config: dict[str, str], partitions: int = 1
) -> list[bytes | None]:
    """The values that a new reader finds now, sorted by partition."""
    consumer = assigned(bootstrap, topic, config, partitions)
    try:
        messages = read_to_end(consumer, partitions)
    finally:
        consumer.close()
    return values_of(sorted(messages, key=lambda one: one.partition() or 0))


def kept(bootstrap: str, topic: str, partitions: int = 1) -> list[bytes | None]:
    """The values that count once every transaction has ended: Kafka writes the markers later."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def have_all_ended() -> bool:
        return all(
            latest(admin, topic, IsolationLevel.READ_COMMITTED, partition)
            == latest(admin, topic, IsolationLevel.READ_UNCOMMITTED, partition)
            for partition in range(partitions)
        )

    eventually(have_all_ended, what=f"the end of every transaction in {topic}")
    return visible(bootstrap, topic, COMMITTED, partitions)


def committed_offset(bootstrap: str, group: str, topic: str, config: dict[str, str]) -> int:
    """What a member of the group would start from; -1001 if nothing is committed."""
    consumer = open_consumer(bootstrap, group, config)
    try:
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=WITHIN_S)
    finally:
        consumer.close()
    return found.offset


def latest(admin: AdminClient, topic: str, isolation: IsolationLevel, partition: int = 0) -> int:
    where = TopicPartition(topic, partition)
    newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # its types have a gap
    asked = admin.list_offsets({where: newest}, isolation_level=isolation)
    offset = asked[where].result(WITHIN_S).offset
    assert isinstance(offset, int)
    return offset
