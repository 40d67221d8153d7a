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

from tests.clients.steps import Sent, create_topic, open_consumer, produce, read, unique_name
from tests.spark.steps import numbered
from tests.support.waiting import eventually

RECORDS = 3_000
KILLS = 2
WITHIN_S = 110.0


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_job_that_is_killed_writes_every_row_once(
    bootstrap: str, admin: AdminClient, tmp_path: Path
) -> None:
    source, target = unique_name("in"), unique_name("out")
    create_topic(admin, source, partitions=2)
    create_topic(admin, target)
    values = numbered(RECORDS)
    produce(bootstrap, source, [Sent(value=v, partition=n % 2) for n, v in enumerate(values)])
    arguments = [bootstrap, source, target, unique_name("job"), str(tmp_path)]
    reached = 0
    for kill in range(KILLS):
        # At another step each time: somewhere after so many records, markers included.
        reached += 150 + 130 * kill
        with started_job(arguments):
            wait_for_offset(bootstrap, target, reached)
    with started_job(arguments) as job:
        assert job.wait(WITHIN_S) == 0
    committed = {"isolation.level": "read_committed"}
    written = [m.value() for m in read(bootstrap, target, RECORDS, config=committed)]
    assert sorted(written, key=lambda value: int(value or b"")) == values


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
