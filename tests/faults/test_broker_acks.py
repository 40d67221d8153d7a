"""Acknowledged means synced, and visible means synced: seen with a disk whose syncs are held."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.produce import ProduceResponse
from tests.support.broker_thread import BrokerThread
from tests.support.held_disk import HeldDisk
from tests.support.raw_client import PRODUCE_VERSION, RawClient, batch_of, produce_request

TOPIC = "held"
OTHER = "free"
# Long enough for an answer that needs no sync: one takes well under a millisecond.
SILENCE_S = 0.3


@pytest.fixture
def disk() -> HeldDisk:
    return HeldDisk(TOPIC)


@pytest.fixture
def broker(tmp_path: Path, disk: HeldDisk) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, disk=disk) as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic(TOPIC)
            client.create_topic(OTHER)
        try:
            yield broker
        finally:
            disk.release()


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as client:
        yield client


def assert_no_answer(client: RawClient) -> None:
    """A socket with a timeout keeps what it has not read, so a late answer is still found."""
    patience = client.socket.gettimeout()
    client.socket.settimeout(SILENCE_S)
    with contextlib.suppress(TimeoutError):
        pytest.fail(f"an answer came: {client.socket.recv(1)!r}")
    client.socket.settimeout(patience)


def test_acks_all_is_answered_only_after_the_sync(
    broker: BrokerThread, disk: HeldDisk, client: RawClient
) -> None:
    disk.hold()
    client.send(produce_request(TOPIC, batch_of(b"a")), PRODUCE_VERSION)
    assert disk.waiting.wait(5)
    assert_no_answer(client)
    disk.release()
    _, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].base_offset == 0


def test_acks_1_is_answered_before_the_sync_but_not_visible(
    broker: BrokerThread, disk: HeldDisk, client: RawClient
) -> None:
    disk.hold()
    request = produce_request(TOPIC, batch_of(b"a"), acks=1)
    answer = client.call(request, ProduceResponse, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0
    seen = client.fetch(TOPIC, 0)
    assert (seen.high_watermark, seen.records) == (0, b"")


def test_what_is_not_synced_cannot_be_read(
    broker: BrokerThread, disk: HeldDisk, client: RawClient
) -> None:
    assert client.produce(TOPIC, batch_of(b"synced")).error_code == 0
    disk.hold()
    client.send(produce_request(TOPIC, batch_of(b"unsynced")), PRODUCE_VERSION)
    assert disk.waiting.wait(5)
    with RawClient(broker.bootstrap) as reader:
        seen = reader.fetch(TOPIC, 0)
        assert seen.high_watermark == 1
        assert b"unsynced" not in seen.records
        disk.release()
        client.receive(ProduceResponse, PRODUCE_VERSION)
        seen = reader.fetch(TOPIC, 0)
        assert seen.high_watermark == 2
        assert b"unsynced" in seen.records


def test_a_slow_sync_of_one_topic_does_not_hold_up_another(
    broker: BrokerThread, disk: HeldDisk, client: RawClient
) -> None:
    disk.hold()
    client.send(produce_request(TOPIC, batch_of(b"a")), PRODUCE_VERSION)
    assert disk.waiting.wait(5)
    with RawClient(broker.bootstrap) as other:
        assert other.produce(OTHER, batch_of(b"b")).error_code == 0


def test_a_failed_sync_is_refused_and_makes_that_log_read_only(
    broker: BrokerThread, disk: HeldDisk, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.produce(TOPIC, batch_of(b"synced")).error_code == 0
    disk.fails = True
    for attempt in ("the one that failed", "one after it"):
        answer = client.produce(TOPIC, batch_of(b"lost"))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR, attempt
        assert "held-0" in (answer.error_message or "")
        disk.fails = False
    seen = client.fetch(TOPIC, 0)
    assert seen.high_watermark == 1
    assert b"lost" not in seen.records
    assert client.produce(OTHER, batch_of(b"b")).error_code == 0
    assert "held-0: read-only" in caplog.text


def test_what_is_owed_is_answered_before_a_stop(
    broker: BrokerThread, disk: HeldDisk, client: RawClient
) -> None:
    disk.hold()
    client.send(produce_request(TOPIC, batch_of(b"a")), PRODUCE_VERSION)
    assert disk.waiting.wait(5)
    stopped = broker.begin_stop()
    broker.ask(lambda _: None)  # asked after it, so answered once the stop waits
    assert not stopped.done()
    assert_no_answer(client)
    disk.release()
    _, answer = client.receive(ProduceResponse, PRODUCE_VERSION)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert client.is_closed()
    assert stopped.result(20), "a clean stop"
