"""A defect of librdkafka that the consistency checker met, shown with Apache Kafka.

An abort drops records that wait to be sent again, and gives their sequence numbers to the next
transaction. If the broker has the dropped records after all, it takes the new ones for repeats:
it acknowledges them, the transaction commits, and they are nowhere. When this test fails, the
client has been mended: then the workload need not flush before an abort any more
(tests/faults/consistency/writing.py), and docs/consistency.md can say so.
"""

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.apache_kafka import ApacheKafka
from tests.support.cut_proxy import CutProxy
from tests.support.waiting import eventually

TOPIC = "orders"
WITHIN_S = 30.0


@pytest.fixture
def proxy() -> Iterator[CutProxy]:
    proxy = CutProxy()
    yield proxy
    proxy.close()


@pytest.fixture
def kafka(proxy: CutProxy) -> Iterator[ApacheKafka]:
    advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
    kafka = ApacheKafka(extra_properties=advertised)
    host, _, port = kafka.bootstrap.partition(":")
    proxy.target = (host, int(port))
    with kafka:
        yield kafka


class Writer:
    """A transactional producer, and what it was told of each value."""

    def __init__(self, bootstrap: str) -> None:
        self.told: dict[str, int | str] = {}
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "writer",
                "linger.ms": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        self.producer.init_transactions(WITHIN_S)

    def send(self, *values: str) -> None:
        for value in values:
            self.producer.produce(TOPIC, value, partition=0, on_delivery=self._on_delivery)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        answer = (message.offset() or 0) if error is None else error.name()
        self.told[(message.value() or b"").decode()] = answer


def stored(bootstrap: str, isolation: str) -> dict[str, int]:
    config = {"isolation.level": isolation, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", **config})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[str, int] = {}
    while (message := consumer.poll(WITHIN_S)) is not None and message.error() is None:
        found[(message.value() or b"").decode()] = message.offset() or 0
    consumer.close()
    return found


@pytest.mark.full
def test_librdkafka_loses_a_commit_after_an_abort_without_answers(
    kafka: ApacheKafka, proxy: CutProxy
) -> None:
    writer = Writer(proxy.address)
    producer = writer.producer
    producer.begin_transaction()
    writer.send("first")
    producer.flush(WITHIN_S)

    proxy.drop_answers()
    writer.send("aborted 1", "aborted 2")
    eventually(lambda: "aborted 2" in stored(kafka.bootstrap, "read_uncommitted"), what="a write")
    proxy.is_closed = True
    proxy.cut()
    threading.Timer(1.0, setattr, (proxy, "is_closed", False)).start()
    producer.abort_transaction(WITHIN_S)

    producer.begin_transaction()
    writer.send("lost 1", "lost 2")
    producer.commit_transaction(WITHIN_S)

    everything = stored(kafka.bootstrap, "read_uncommitted")
    assert writer.told["aborted 1"] == "_PURGE_QUEUE"
    assert writer.told["lost 1"] == everything["aborted 1"]
    assert "lost 1" not in everything
