"""A share group whose members crash, release and reject, on a broker that is killed.

Every record ends accepted or, if it is a bad one or had no luck, in the dead-letter topic. An
acceptance counts when the broker has answered it with success: that happens once for each record.
One that was asked for and not answered (its member was killed, or the broker) may have counted or
not; then the record may come again.
"""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from millstream import Broker
from tests.clients.share_group_steps import configure_group, positions_of
from tests.clients.steps import create_topic, end_offset, eventually, numbered, produce, read
from tests.support.share_worker import is_bad

TOPIC, DEAD, GROUP, PARTITIONS = "jobs", "jobs.dead", "workers", 2

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(
        tmp_path / "data",
        group_share_session_timeout_ms="2s",
        group_share_heartbeat_interval_ms="200ms",
    ).start()
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    create_topic(admin, TOPIC, partitions=PARTITIONS)
    create_topic(admin, DEAD)
    configure_group(
        running.bootstrap,
        GROUP,
        share_auto_offset_reset="earliest",
        share_record_lock_duration_ms="2000",
        errors_deadletterqueue_topic_name=DEAD,
    )
    yield running
    running.stop()


class Workers:
    """The members, and what all of them have said, the dead ones too."""

    def __init__(self, bootstrap: str, path: Path) -> None:
        self._bootstrap, self._path = bootstrap, path
        self._started = 0
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        for _ in range(count):
            self._started += 1
            seed = str(self._started)
            command = [sys.executable, "-m", "tests.support.share_worker", self._bootstrap]
            with (self._path / f"said-{seed}").open("wb") as said:
                self._running.append(subprocess.Popen([*command, GROUP, TOPIC, seed], stdout=said))

    def kill_one(self, number: int) -> None:
        """kill -9, and another in its place."""
        worker = self._running.pop(number % len(self._running))
        worker.kill()
        worker.wait()
        self.start(1)

    def replace_crashed(self) -> None:
        alive = [worker for worker in self._running if worker.poll() is None]
        crashed = len(self._running) - len(alive)
        self._running = alive
        self.start(crashed)

    def stop(self) -> None:
        for worker in self._running:
            worker.kill()
            worker.wait()

    def said(self, event: str, kind: str) -> Counter[int]:
        """How often each number was named so."""
        counts: Counter[int] = Counter()
        for path in self._path.glob("said-*"):
            for line in path.read_text().splitlines():
                first, second, *numbers = line.split()
                if (first, second) == (event, kind):
                    counts.update(map(int, numbers))
        return counts


@pytest.fixture
def workers(broker: Broker, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(broker.bootstrap, tmp_path)
    yield workers
    workers.stop()


def put(broker: Broker, count: int, *, start: int = 0) -> None:
    """In small batches: a member gets whole ones."""
    config = {"batch.num.messages": 10, "log_level": 0}
    produce(broker.bootstrap, TOPIC, numbered(count, start=start), config)


def lag(broker: Broker) -> int:
    return sum(position.lag for position in positions_of(broker.bootstrap, GROUP).values())


def until_all_is_done(broker: Broker, workers: Workers) -> None:
    def is_done() -> bool:
        workers.replace_crashed()
        return lag(broker) == 0

    eventually(is_done, within_s=90, what=f"no record left in {TOPIC}")


def dead_numbers(broker: Broker) -> list[int]:
    count = end_offset(broker.bootstrap, DEAD)
    return [int(letter.value() or b"") for letter in read(broker.bootstrap, DEAD, count)]


def check(broker: Broker, workers: Workers, count: int, *, may_repeat_letters: bool) -> None:
    accepted, tried = workers.said("done", "accept"), workers.said("try", "accept")
    dead = dead_numbers(broker)
    numbers = set(range(count))
    twice = [number for number, times in accepted.items() if times > 1]
    assert not twice, f"accepted more than once: {twice}"
    assert not [number for number in accepted if is_bad(number)]
    lost = numbers - set(tried) - set(dead)
    assert not lost, f"neither accepted nor a dead letter: {sorted(lost)}"
    assert {number for number in numbers if is_bad(number)} <= set(dead)
    assert len(accepted) > count // 2, "hardly anything was accepted at once"
    if not may_repeat_letters:
        assert len(dead) == len(set(dead))
        assert not set(accepted) & set(dead)


def test_members_that_crash_release_and_reject_lose_nothing(
    broker: Broker, workers: Workers
) -> None:
    put(broker, 600)
    workers.start(5)
    eventually(lambda: bool(workers.said("done", "accept")), within_s=30, what="a first record")
    broker.kill()
    broker.start()
    workers.kill_one(0)
    until_all_is_done(broker, workers)
    check(broker, workers, 600, may_repeat_letters=True)


@pytest.mark.full
@pytest.mark.parametrize("broker_kills", [0, 3])
def test_ten_members_settle_every_record_once(
    broker: Broker, workers: Workers, broker_kills: int
) -> None:
    """Records come while members, and the broker, are killed."""
    chance, count = random.Random(broker_kills), 0
    workers.start(10)
    kills_left = broker_kills
    deadline = time.monotonic() + 12
    while time.monotonic() < deadline:
        put(broker, 100, start=count)
        count += 100
        workers.replace_crashed()
        workers.kill_one(chance.randrange(10))
        time.sleep(chance.random() * 0.5)
        if kills_left and chance.random() < 0.3:
            kills_left -= 1
            broker.kill()
            broker.start()
    until_all_is_done(broker, workers)
    check(broker, workers, count, may_repeat_letters=broker_kills > 0)
