"""kill -9 of the broker, and of the application, in the middle of transactions.

An application copies a topic: it reads, writes and commits its offsets in one transaction, and
aborts some of them. Broker and application are killed at random moments and started again. What a
committed reader then finds is the source, each message once, in its order.

MILLSTREAM_FAULT_SEED repeats a run's moments (not the operating system's timing).
"""

import os
import subprocess
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from millstream import Broker
from tests.clients.steps import end_offset, numbered, produce
from tests.clients.transaction_steps import UNCOMMITTED, kept, visible
from tests.support.broker_process import assert_no_traceback
from tests.support.java_tools import TOOLS, java_class_command
from tests.support.message_copier import CopyingWorker, copier_arguments
from tests.support.raw_client import RawClient

PARTITIONS = 2
SEGMENT_BYTES = 32 << 10
COPIER_SECONDS_MAX = 180.0
KILLS = 5


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("MILLSTREAM_FAULT_SEED") or time.time_ns())
    print(f"MILLSTREAM_FAULT_SEED={seed}")
    return Random(seed)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as broker:
        yield broker


def prepare(broker: Broker, *, count: int, partitions: int) -> None:
    with RawClient(broker.bootstrap) as client:
        client.create_topic("source")
        config = {"segment.bytes": str(SEGMENT_BYTES)}
        client.create_topic("target", partitions=partitions, config=config)
    produce(broker.bootstrap, "source", numbered(count))


def assert_copied_once(bootstrap: str, count: int, partitions: int) -> None:
    values = [b"%d" % number for number in range(count)]
    by_partition = [values[number::partitions] for number in range(partitions)]
    assert kept(bootstrap, "target", partitions) == list(chain(*by_partition))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.full)])
def test_every_message_is_copied_once_though_the_broker_is_killed(
    kills: int, broker: Broker, random: Random, capfd: pytest.CaptureFixture[str]
) -> None:
    count = 400 * kills
    prepare(broker, count=count, partitions=PARTITIONS)
    worker = CopyingWorker(
        broker.bootstrap, "source", "target", count=count, partitions=PARTITIONS, random=random
    )
    killed_at_work = 0
    for _ in range(kills):
        time.sleep(random.uniform(0, 0.6))
        killed_at_work += not worker.is_done
        broker.kill()
        broker.start()
    worker.wait(within_s=60)
    assert killed_at_work > kills // 2, "it was done too soon"
    assert worker.aborts > 0
    assert_copied_once(broker.bootstrap, count, PARTITIONS)
    assert_no_traceback(capfd.readouterr().err)


class JavaCopier:
    """Kafka's copier as a process of its own, started again whenever it has failed."""

    def __init__(self, bootstrap: str) -> None:
        arguments = copier_arguments(bootstrap, "source", "target")
        self._command = java_class_command(
            f"{TOOLS}.TransactionalMessageCopier", *arguments, "--enable-random-aborts"
        )
        self.starts = 0
        self._start()

    def _start(self) -> None:
        self.starts += 1
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    @property
    def is_done(self) -> bool:
        """Whether it has copied all there was; if it only gave up, another one takes over."""
        exit_code = self._process.poll()
        if exit_code is not None and exit_code != 0:
            self._start()
        return exit_code == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("kafka_tools")
def test_kafkas_copier_copies_every_message_once_though_it_and_the_broker_are_killed(
    broker: Broker, random: Random, capfd: pytest.CaptureFixture[str]
) -> None:
    count, kills = 12_000, 0
    prepare(broker, count=count, partitions=1)
    copier = JavaCopier(broker.bootstrap)
    deadline = time.monotonic() + COPIER_SECONDS_MAX
    try:
        while not copier.is_done:
            assert time.monotonic() < deadline, f"not done after {copier.starts} starts"
            # Each kill has its share of the messages, so that there are some left for the last one.
            is_due = kills < KILLS and end_offset(broker.bootstrap, "target") > kills * count // 10
            time.sleep(random.uniform(0, 0.5))
            if is_due and kills % 3 != 1:  # by turns: both are killed
                broker.kill()
                broker.start()
            elif is_due:
                copier.kill()
            kills += is_due
    finally:
        copier.kill()
    assert kills > 2, "it was done before the broker was killed twice, and the copier once"
    assert copier.starts > 1
    assert_copied_once(broker.bootstrap, count, 1)
    assert len(visible(broker.bootstrap, "target", UNCOMMITTED)) > count, "nothing was aborted"
    assert_no_traceback(capfd.readouterr().err)
