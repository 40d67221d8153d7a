"""Quotas as clients feel them: told in the answer, and not heard for as long, whether they obey."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from millstream.broker.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    RequestEntryData,
)
from millstream.broker.wire.messages.fetch import FetchResponse
from millstream.broker.wire.messages.produce import ProduceResponse
from tests.support.broker_thread import BrokerThread
from tests.support.raw_client import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    RawClient,
    batch_of,
    fetch_request,
    produce_request,
)
from tests.support.waiting import eventually

# A rested client may use ten seconds of its quota at once: 1 MB.
REQUESTS_MAX = 200
BYTES_PER_SECOND = 100_000
BURST_BYTES = 10 * BYTES_PER_SECOND
RAW, SLOW, FREE = "raw", "slow", "free"  # client ids; RawClient calls itself the first
VALUE = b"v" * 100_000
# More than half of what 11 seconds allow: a second one is too much, however late it comes.
HALF_A_BURST = b"h" * 560_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path) as running:
        with RawClient(running.bootstrap) as client:
            client.create_topic("orders")
        yield running


def limit(broker: BrokerThread, client_id: str, quota: str, value: float) -> None:
    entity = [EntityData(entity_type="client-id", entity_name=client_id)]
    entry = RequestEntryData(entity=entity, ops=[OpData(key=quota, value=value)])
    with RawClient(broker.bootstrap) as client:
        answer = client.call(
            AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1
        )
    assert [each.error_code for each in answer.entries] == [0]


def throttled_producer(broker: BrokerThread, client_id: str, told: list[float]) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "batch.size": 110_000,
            "linger.ms": 0,
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )


def test_a_producer_above_its_quota_is_slowed_down_and_others_are_not(
    broker: BrokerThread,
) -> None:
    limit(broker, SLOW, "producer_byte_rate", BYTES_PER_SECOND)
    told: list[float] = []
    slow, free = throttled_producer(broker, SLOW, told), throttled_producer(broker, FREE, [])
    for _ in range(12):  # 1.2 MB: two seconds more than the burst
        slow.produce("orders", VALUE)
        slow.poll(0)
    started = time.monotonic()
    for _ in range(12):
        free.produce("orders", VALUE)
    assert free.flush(20) == 0
    free_s = time.monotonic() - started
    assert slow.flush(20) == 0
    slow.poll(0)
    assert told, "librdkafka was told to wait"
    assert max(told) > 0.5
    assert broker.ask(lambda node: node.quotas.throttled_ms["producer_byte_rate"]) > 500
    assert free_s < 20


def test_a_producer_that_does_not_obey_is_not_heard_meanwhile(broker: BrokerThread) -> None:
    limit(broker, RAW, "producer_byte_rate", BYTES_PER_SECOND)
    request = produce_request("orders", batch_of(HALF_A_BURST))
    with RawClient(broker.bootstrap, within_s=30) as client:
        first = client.call(request, ProduceResponse, PRODUCE_VERSION)
        assert first.throttle_time_ms == 0, "within what a rested client may use"
        started = time.monotonic()
        second = client.call(request, ProduceResponse, PRODUCE_VERSION)
        assert second.throttle_time_ms > 0
        client.metadata("orders")
        assert time.monotonic() - started > second.throttle_time_ms / 1000 * 0.95
    for answer in (first, second):
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_one_that_goes_while_it_is_not_heard_gives_back_its_place(broker: BrokerThread) -> None:
    limit(broker, RAW, "producer_byte_rate", 1_000)  # half a burst costs nine minutes
    with RawClient(broker.bootstrap) as client:
        answer = client.call(
            produce_request("orders", batch_of(HALF_A_BURST)), ProduceResponse, PRODUCE_VERSION
        )
        assert answer.throttle_time_ms > 60_000
        client.send(produce_request("orders", batch_of(b"unheard")), PRODUCE_VERSION)
        eventually(
            lambda: broker.ask(lambda node: any(c.is_in_frame for c in node.connections)),
            what="what it does not read is there",
        )
        broker.ask(lambda node: broker.server.close_idle(node, now_ms=node.now_ms()))
        assert broker.ask(lambda node: len(node.connections)) == 1, "it is still there"

    def has_none_after_a_look() -> bool:
        broker.ask(lambda node: broker.server.close_idle(node, now_ms=node.now_ms()))
        return broker.ask(lambda node: len(node.connections)) == 0

    eventually(has_none_after_a_look, what="its place is free")


def test_a_throttled_fetch_has_no_records_and_a_later_one_has_them(broker: BrokerThread) -> None:
    with RawClient(broker.bootstrap) as client:
        for _ in range(2):
            client.produce("orders", batch_of(HALF_A_BURST))
    limit(broker, RAW, "consumer_byte_rate", BYTES_PER_SECOND)
    with RawClient(broker.bootstrap, within_s=30) as client:
        request = fetch_request("orders", 0, bytes_max=10 << 20)  # both of them
        first = client.call(request, FetchResponse, FETCH_VERSION)
        taken = len(first.responses[0].partitions[0].records or b"")
        assert 0 < taken <= BURST_BYTES, "no more than the quota can let through"
        second = client.call(fetch_request("orders", 1), FetchResponse, FETCH_VERSION)
        assert second.responses == []
        assert second.throttle_time_ms > 0
        limit(broker, RAW, "consumer_byte_rate", 1 << 30)  # or it would take ten seconds
        later = client.call(fetch_request("orders", 1), FetchResponse, FETCH_VERSION)
        assert len(later.responses[0].partitions[0].records or b"") > len(HALF_A_BURST)


@pytest.mark.full
def test_a_consumer_above_its_quota_gets_everything_only_later(broker: BrokerThread) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    values = [bytes([65 + number]) * 52_000 for number in range(24)]
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(10) == 0
    limit(broker, SLOW, "consumer_byte_rate", BYTES_PER_SECOND)
    config: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": SLOW,
        "group.id": "slow",
        "auto.offset.reset": "earliest",
        "fetch.message.max.bytes": 520_000,
    }
    consumer = Consumer(config)
    consumer.subscribe(["orders"])
    read: list[bytes] = []
    while len(read) < len(values):
        message = consumer.poll(30)
        assert message is not None, f"after {len(read)} records"
        assert message.error() is None
        read.append(bytes(message.value() or b""))
    consumer.close()
    assert read == values
    assert broker.ask(lambda node: node.quotas.throttled_ms["consumer_byte_rate"]) > 0


def test_who_works_the_broker_too_much_is_told_to_wait(broker: BrokerThread) -> None:
    limit(broker, RAW, "request_percentage", 0.001)
    with RawClient(broker.bootstrap) as client:
        waits_ms = [client.metadata("orders").throttle_time_ms for _ in range(3)]
        while not any(waits_ms) and len(waits_ms) < REQUESTS_MAX:
            waits_ms.append(client.metadata("orders").throttle_time_ms)
    assert 0 < max(waits_ms) <= 1_000


def test_quotas_are_there_after_a_restart(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as broker:
        limit(broker, SLOW, "producer_byte_rate", 1_000)
    with BrokerThread(tmp_path) as broker:
        assert broker.ask(lambda node: node.quotas.has_any)
