"""A job is killed between any two steps, again and again: its output is that of one quiet run."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from millstream import Broker
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_read import TopicRead
from tests.clients.steps import Sent, create_topic, open_consumer, produce, unique_name
from tests.spark.steps import numbered
from tests.support.thread_dumps import ask_for_threads
from tests.support.waiting import eventually

RECORDS = 1_200  # twelve batches: some before, between and after the kills
KILLS = 2
WITHIN_S = 240.0


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_job_that_is_killed_writes_every_row_once(
    bootstrap: str, admin: AdminClient, tmp_path: Path
) -> None:
    source, target = topics_with_records(bootstrap, admin)
    arguments = [bootstrap, source, target, unique_name("job"), str(tmp_path)]
    reached = 0
    for kill in range(KILLS):
        # At another step each time: somewhere after so many records, markers included.
        reached += 150 + 130 * kill
        with started_job(arguments):
            wait_for_offset(bootstrap, target, reached)
    with started_job(arguments) as job:
        require_done(job)
    assert written_to(bootstrap, target) == numbered(RECORDS)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_job_outlives_its_broker_and_writes_every_row_once(tmp_path: Path) -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        source, target = topics_with_records(broker.bootstrap, admin)
        arguments = [broker.bootstrap, source, target, "copy", str(tmp_path / "checkpoint")]
        with started_job(arguments) as job:
            for reached in (200, 700):
                wait_for_offset(broker.bootstrap, target, reached)
                broker.kill()
                broker.start()
            require_done(job)
        assert written_to(broker.bootstrap, target) == numbered(RECORDS)


def topics_with_records(bootstrap: str, admin: AdminClient) -> tuple[str, str]:
    """A topic full of records, and an empty one."""
    source, target = unique_name("in"), unique_name("out")
    create_topic(admin, source, partitions=2)
    create_topic(admin, target)
    values = enumerate(numbered(RECORDS))
    produce(bootstrap, source, [Sent(value=value, partition=n % 2) for n, value in values])
    return source, target


def written_to(bootstrap: str, topic: str) -> list[bytes]:
    """Everything that was committed, in order; more than there should be is seen, too."""
    read = TopicRead(brokers=bootstrap, topics=(topic,))
    found = [
        message.value() or b""
        for part, within in batch_ranges(read)
        for messages in RangeReader(read).read(part, within)
        for message in messages
    ]
    return sorted(found, key=int)


@contextlib.contextmanager
def started_job(arguments: list[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """A job that is killed at the end, if it still runs: the driver, the JVM and the workers."""
    command = [sys.executable, "-m", "tests.spark.copy_job", *arguments]
    job = subprocess.Popen(command, start_new_session=True)
    try:
        yield job
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def require_done(job: "subprocess.Popen[bytes]") -> None:
    """A job that hangs tells first where."""
    try:
        assert job.wait(WITHIN_S) == 0
    except subprocess.TimeoutExpired:
        ask_for_threads(job.pid)
        raise


def wait_for_offset(bootstrap: str, topic: str, offset: int) -> None:
    consumer = open_consumer(bootstrap, unique_name("watch"))
    place = TopicPartition(topic, 0)
    try:
        eventually(
            lambda: consumer.get_watermark_offsets(place, 20)[1] >= offset,
            what=f"{offset} offsets in {topic}",
            within_s=WITHIN_S,
        )
    finally:
        consumer.close()
