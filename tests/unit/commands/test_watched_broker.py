"""A broker that dies comes back, but not for ever. The broker is one of ours that only pretends."""

import threading
from pathlib import Path

from millstream.base.disk import FileLock
from millstream.commands.watched_broker import RESTARTS_MAX, BrokerWatch, await_former
from millstream.embedded import Broker, BrokerDidNotStart
from millstream.log.log_directory import LOCK_FILE
from tests.support.waiting import eventually


class MortalBroker(Broker):
    """Starts as often as it is told, and dies when it is told."""

    def __init__(self, *, dies_at_once: bool = False, refusals: int = 0) -> None:
        super().__init__()
        self.starts, self._alive = 0, True
        self._dies_at_once, self._refusals = dies_at_once, refusals

    @property
    def is_running(self) -> bool:
        return self._alive

    @property
    def bootstrap(self) -> str:
        return "127.0.0.1:9092"

    def start(self) -> "MortalBroker":
        self.starts += 1
        if self.starts <= self._refusals:
            raise BrokerDidNotStart(reason="the disk is full")
        self._alive = not self._dies_at_once
        return self

    def kill(self) -> None:
        self._alive = False


def watching(broker: MortalBroker) -> tuple[BrokerWatch, threading.Thread, list[str]]:
    told: list[str] = []
    watch = BrokerWatch(broker, tell=told.append, pause_seconds=0.0)
    thread = threading.Thread(target=watch.run)
    thread.start()
    return watch, thread, told


def test_a_broker_that_died_is_started_again() -> None:
    broker = MortalBroker()
    watch, thread, told = watching(broker)
    broker.kill()
    eventually(lambda: len(told) == 2, what="a new broker", within_s=30)
    watch.stop()
    thread.join()
    assert broker.starts == 1
    assert told[1] == "the broker is back on 127.0.0.1:9092"


def test_one_that_does_not_start_is_tried_again() -> None:
    broker = MortalBroker(refusals=1)
    watch, thread, told = watching(broker)
    broker.kill()
    eventually(lambda: broker.is_running, what="a new broker", within_s=30)
    watch.stop()
    thread.join()
    assert "the disk is full" in told[1]


def test_one_that_always_dies_stays_down() -> None:
    broker = MortalBroker(dies_at_once=True)
    broker.kill()
    _, thread, told = watching(broker)
    thread.join(60)
    assert not thread.is_alive()
    assert broker.starts == RESTARTS_MAX
    assert told[-1] == f"the broker ended {RESTARTS_MAX} times in a row: it stays down"


def test_a_former_broker_is_waited_for_while_it_has_the_data(tmp_path: Path) -> None:
    told: list[str] = []
    await_former(tmp_path, tell=told.append, seconds=60)
    assert not told
    lock = FileLock(tmp_path / LOCK_FILE)
    assert lock.take()
    await_former(tmp_path, tell=told.append, seconds=0.01)
    assert told == [f"{tmp_path} is in use: waiting for a broker that may just be ending"]
    lock.release()
