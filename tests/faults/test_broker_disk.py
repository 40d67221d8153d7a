"""A disk that is full, and a broker that stands still for a while: nothing acknowledged is lost,
and both heal without a restart."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from millstream import Broker
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from millstream.broker.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from millstream.broker.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tests.support.broker_process import assert_no_traceback
from tests.support.raw_client import RawClient, batch_of
from tests.support.steady_load import SteadyMember, SteadyProducer, read_all
from tests.support.waiting import eventually

TOPIC = "orders"
BALLAST = "ballast"
# The broker keeps a reserve of 1 MiB for deletions while 16 MiB are free.
DISK_BYTES = 24 << 20
SEGMENT_BYTES = 1 << 20
PARTITIONS = 3
STILL_SECONDS = 3.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, so small that a test can fill it."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount the small disk that this test fills")
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"this machine does not let root mount a disk: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def broker(small_disk: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Broker]:
    with Broker(small_disk / "data") as broker:
        yield broker
    assert_no_traceback(capfd.readouterr().err)


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as client:
        for topic in (TOPIC, BALLAST):
            client.create_topic(topic, config={"segment.bytes": str(SEGMENT_BYTES)})
        yield client


def fill(client: RawClient) -> list[bytes]:
    """Produce until not even a small record finds room; the values that were acknowledged."""
    taken: list[bytes] = []
    for size in (100_000, 4_000, 10):
        while True:
            topic = BALLAST if size == 100_000 and len(taken) % 2 else TOPIC
            value = b"%d." % len(taken) * (size // 4)
            answer = client.produce(topic, batch_of(value))
            if answer.error_code:
                break
            taken.append(value)
            assert len(taken) * 10 < DISK_BYTES, "the disk never fills up"
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "no space left on the disk" in (answer.error_message or "")
        assert f"{TOPIC}-0" in (answer.error_message or "") or topic == BALLAST
    return taken


def stored(client: RawClient, topic: str) -> bytes:
    """All records of the topic, one batch after the other."""
    seen = client.fetch(topic, 0)
    offset, data = seen.start_offset, bytearray()
    while offset < seen.high_watermark:
        found = client.fetch(topic, offset)
        assert found.error_code == 0
        data += found.records
        offset = next_offset(found.records)
    return bytes(data)


def next_offset(records: bytes) -> int:
    """After the last of these batches, each of which holds one record."""
    position = offset = 0
    while position < len(records):
        offset = int.from_bytes(records[position : position + 8], "big") + 1
        position += 12 + int.from_bytes(records[position + 8 : position + 12], "big")
    return offset


def delete_records(client: RawClient) -> None:
    wanted = DeleteRecordsPartition(partition_index=0, offset=-1)
    topic = DeleteRecordsTopic(name=BALLAST, partitions=[wanted])
    request = DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
    [answer] = client.call(request, DeleteRecordsResponse, 2).topics
    assert answer.partitions[0].error_code == 0


def delete_topic(client: RawClient) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=BALLAST)], timeout_ms=10_000)
    [answer] = client.call(request, DeleteTopicsResponse, 6).responses
    assert (answer.error_code, answer.error_message) == (0, None)


def commit_offset(client: RawClient) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id="readers",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )
    return client.call(request, OffsetCommitResponse, 8).topics[0].partitions[0].error_code


@pytest.mark.parametrize("free_space", [delete_records, delete_topic])
def test_a_full_disk_refuses_records_serves_the_rest_and_heals(
    broker: Broker, client: RawClient, free_space: Callable[[RawClient], None]
) -> None:
    taken = fill(client)
    assert len(taken) > 100

    orders = stored(client, TOPIC)
    everything = orders + stored(client, BALLAST)
    missing = [value[:20] for value in taken if value not in everything]
    assert not missing, "what was acknowledged can be read"
    assert client.metadata(TOPIC).topics[0].error_code == 0
    with PatientProducer(broker.bootstrap) as patient:
        patient.send(b"while the disk was full")
        time.sleep(0.5)
        assert patient.outcome is None, "a real client keeps trying"

        free_space(client)

        assert client.produce(TOPIC, batch_of(b"healed")).error_code == 0
        eventually(lambda: patient.outcome is not None, what="the patient client is served")
        assert patient.outcome == "delivered"
    assert commit_offset(client) == 0

    broker.kill()
    broker.start()
    with RawClient(broker.bootstrap) as reader:
        kept = stored(reader, TOPIC)
    assert kept.startswith(orders)
    assert b"healed" in kept[len(orders) :]
    assert b"while the disk was full" in kept[len(orders) :]


class PatientProducer:
    """librdkafka with one record to deliver, however long it takes."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000, "retry.backoff.ms": 50}
        )
        self._outcome: str | None = None

    def __enter__(self) -> "PatientProducer":
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.purge()

    def send(self, value: bytes) -> None:
        self._producer.produce(TOPIC, value, on_delivery=self._on_delivery)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        self._outcome = "delivered" if error is None else str(error)

    @property
    def outcome(self) -> str | None:
        self._producer.poll(0)
        return self._outcome


def test_a_full_disk_refuses_new_topics_and_leaves_nothing_of_them(
    broker: Broker, client: RawClient
) -> None:
    fill(client)
    [answer] = client.try_to_create_topic("late", partitions=3).topics
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "no space left" in (answer.error_message or "")
    assert client.metadata("late").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    delete_topic(client)
    client.create_topic("late", partitions=3)
    assert client.produce("late", batch_of(b"x"), partition=2).error_code == 0


def test_a_broker_that_stands_still_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    """Clients give their requests up and send them again, while the first ones still wait in
    the broker's socket buffers: it then sees both."""
    with Broker(tmp_path / "data") as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS)
        producers = [
            SteadyProducer(
                broker.bootstrap,
                TOPIC,
                name=name,
                partitions=PARTITIONS,
                config={"socket.timeout.ms": 1_000, "request.timeout.ms": 1_000},
            )
            for name in ("ada", "grace")
        ]
        member = SteadyMember(broker.bootstrap, TOPIC, group="readers")
        try:
            member.wait_for(500, within_s=10)
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                time.sleep(STILL_SECONDS)
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            member.wait_for(len(member.received) + 1_000, within_s=20)
        finally:
            for producer in producers:
                producer.stop()
        sent = sum(len(values) for one in producers for values in one.sent.values())
        try:
            member.wait_for(sent, within_s=20)
        finally:
            member.stop()
        stored_records = read_all(broker.bootstrap, TOPIC, PARTITIONS)
    for producer in producers:
        producer.check(stored_records)
    assert len(member.received) == len(stored_records)
    assert member.assignments == [list(range(PARTITIONS))]
