"""kill -9 of `topics archive` and `topics restore` while they work, again and again.

Each is killed once it has written some more, at a moment that the operating system chooses. In
the end every record is there once, in order, and nothing else is.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    NewTopic,
)

from millstream import Broker, archive
from millstream.archive.layout import file_name
from millstream.archive.stores import open_store
from millstream.archive.topic_archive import load_manifest
from tests.support.waiting import eventually

COMMAND = (sys.executable, "-m", "millstream", "topics")
PARTITIONS = 2
ARCHIVED_RECORDS = 6_000
RESTORED_RECORDS = 60_000
ROUNDS = [1, pytest.param(8, marks=pytest.mark.full)]
WITHIN_S = 30.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def fill(broker: Broker, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WITHIN_S)
    config = {"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": count}
    producer = Producer(config)
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WITHIN_S) == 0


def run(broker: Broker, *args: str) -> None:
    env = os.environ | {"MILLSTREAM_BROKERS": broker.bootstrap}
    done = subprocess.run([*COMMAND, *args], env=env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def run_until_killed(broker: Broker, *args: str, progress: Callable[[], int], by: int) -> bool:
    """Kill the command once it got `by` further; False if it was done before."""
    env = os.environ | {"MILLSTREAM_BROKERS": broker.bootstrap}
    start, deadline = progress(), time.monotonic() + WITHIN_S
    with subprocess.Popen([*COMMAND, *args], env=env, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and progress() < start + by:
            assert time.monotonic() < deadline, f"no progress in {WITHIN_S} s"
            time.sleep(0.002)
        process.kill()
    return process.returncode == -9


@pytest.mark.parametrize("rounds", ROUNDS)
def test_an_archive_that_is_killed_again_and_again_has_every_record_once(
    broker: Broker, tmp_path: Path, rounds: int
) -> None:
    fill(broker, "orders", ARCHIVED_RECORDS)
    args = ("archive", "orders", "--to", str(tmp_path), "--all", "--file-records", "50")
    random = Random(1)

    def files() -> int:
        return len(list(tmp_path.rglob("*.parquet*")))

    killed = [
        run_until_killed(broker, *args, progress=files, by=random.randrange(1, 15))
        for _ in range(rounds)
    ]
    assert sum(killed) >= max(1, rounds - 1)
    run(broker, *args)
    for partition in range(PARTITIONS):
        batches = archive.read(str(tmp_path), "orders", partition)
        values = [value for batch in batches for value in batch.column("value").to_pylist()]
        expected = [b"%d" % n for n in range(partition, ARCHIVED_RECORDS, PARTITIONS)]
        assert values == expected
    assert_only_named_files(tmp_path)


def assert_only_named_files(place: Path) -> None:
    manifest = load_manifest(open_store(str(place)), "orders")
    assert manifest is not None
    for number, partition in manifest.partitions.items():
        folder = place / "topic=orders" / f"partition={number}"
        named = {file_name(file.offsets, file.sha256) for file in partition.files}
        assert {path.name for path in folder.iterdir()} == named


def open_consumer(broker: Broker) -> Consumer:
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "log_level": 0}
    return Consumer(config)


def end_offsets(consumer: Consumer, topic: str) -> list[int]:
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    return [consumer.get_watermark_offsets(part, WITHIN_S)[1] for part in parts]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_restore_that_is_killed_again_and_again_has_every_record_once(
    broker: Broker, tmp_path: Path, rounds: int
) -> None:
    fill(broker, "clicks", RESTORED_RECORDS)
    run(broker, "archive", "clicks", "--to", str(tmp_path), "--all")
    args = ("restore", "--from", str(tmp_path), "--to-topic", "again", "--compression", "none")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("again", PARTITIONS, 1)])["again"].result(WITHIN_S)
    consumer, random = open_consumer(broker), Random(2)

    def restored() -> int:
        return sum(end_offsets(consumer, "again"))

    killed_midway = 0
    for _ in range(rounds):
        by = random.randrange(1, RESTORED_RECORDS // 20)
        was_killed = run_until_killed(broker, *args, progress=restored, by=by)
        killed_midway += was_killed and restored() < RESTORED_RECORDS
    # On a busy machine more is restored before a kill comes, and the last ones may find it done.
    assert killed_midway >= max(1, rounds // 2)
    run(broker, *args)
    consumer.close()
    assert_restored_once(broker, "again")


def assert_restored_once(broker: Broker, topic: str) -> None:
    consumer = open_consumer(broker)
    assert end_offsets(consumer, topic) == [RESTORED_RECORDS // PARTITIONS] * PARTITIONS
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    values: dict[int, list[bytes | None]] = {number: [] for number in range(PARTITIONS)}
    for message in consumer.consume(RESTORED_RECORDS, WITHIN_S):
        values[message.partition() or 0].append(message.value())
    consumer.close()
    for number, found in values.items():
        assert found == [b"%d" % n for n in range(number, RESTORED_RECORDS, PARTITIONS)]


@pytest.mark.full
def test_a_broker_that_is_killed_meanwhile_gets_every_record_once(
    broker: Broker, tmp_path: Path
) -> None:
    fill(broker, "clicks", RESTORED_RECORDS)
    run(broker, "archive", "clicks", "--to", str(tmp_path), "--all")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("again", PARTITIONS, 1)])["again"].result(WITHIN_S)
    consumer = open_consumer(broker)
    env = os.environ | {"MILLSTREAM_BROKERS": broker.bootstrap}
    args = ("restore", "--from", str(tmp_path), "--to-topic", "again", "--compression", "none")
    with subprocess.Popen([*COMMAND, *args], env=env, stderr=subprocess.PIPE) as process:
        eventually(lambda: sum(end_offsets(consumer, "again")) > 0, what="some records")
        broker.kill()
        broker.start()
        _, said = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0, said.decode()
    consumer.close()
    assert_restored_once(broker, "again")
