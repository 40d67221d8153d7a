"""The broker that a run hurts: ours, in a process that can be killed and cut; or Apache Kafka."""

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Protocol

from tests.faults.consistency.sync_journal import lose_unsynced
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import eventually

NO_BUG = "none"
# Old segments and state that is worth rewriting are looked for all the time.
HURRIED_OPTIONS = ("--retention-check-interval-ms", "500ms")


class BrokerUnderTest(Protocol):
    bootstrap: str
    can_be_killed: bool
    topic_config: Mapping[str, str]

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def kill(self) -> None: ...

    def cut_power(self, random: Random) -> None:
        """Kill it, and take away what it has not synced."""

    def restart(self) -> None: ...

    def restart_and_kill(self, seconds: float) -> None:
        """Start it, and kill it after a while, wherever it is by then."""


class PlantedBroker(BrokerProcess):
    """`millstream broker`, with a bug planted if one is named, and a journal of its syncs."""

    def __init__(self, data_dir: Path, *, bug: str, listen: str = "127.0.0.1:0") -> None:
        super().__init__(data_dir, *HURRIED_OPTIONS, listen=listen)
        self.journal = data_dir.with_name(data_dir.name + ".syncs")
        launcher = ["-m", "tests.faults.consistency.planted", bug, str(self.journal), "--"]
        self._command = [sys.executable, *launcher, *self._command[3:]]


class Millstream:
    """Our broker on one data directory and one address, through all its lives."""

    can_be_killed = True
    topic_config: Mapping[str, str] = {"segment.bytes": "16384"}

    def __init__(self, data_dir: Path, *, bug: str = NO_BUG) -> None:
        self._data_dir = data_dir
        self._bug = bug
        self._broker = PlantedBroker(data_dir, bug=bug)
        self._broker.start()
        assert self._broker.bootstrap, f"not ready: {self.diagnostics}"
        self.bootstrap = self._broker.bootstrap
        self.lost_bytes = 0

    @property
    def diagnostics(self) -> str:
        return self._broker.diagnostics

    def pause(self) -> None:
        self._broker.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._broker.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._broker.end()

    def cut_power(self, random: Random) -> None:
        self.kill()
        self.lost_bytes += lose_unsynced(self._data_dir, self._broker.journal, random)

    def restart(self) -> None:
        self._broker = PlantedBroker(self._data_dir, bug=self._bug, listen=self.bootstrap)
        self._broker.start()
        assert self._broker.bootstrap, f"not ready again: {self.diagnostics[-2000:]}"

    def restart_and_kill(self, seconds: float) -> None:
        self._broker = PlantedBroker(self._data_dir, bug=self._bug, listen=self.bootstrap)
        start = threading.Thread(target=self._broker.start)
        start.start()
        eventually(lambda: hasattr(self._broker, "process"), what="a process")
        time.sleep(seconds)
        self._broker.process.kill()
        start.join()
        self._broker.end()

    def end(self) -> None:
        self._broker.end()


class Kafka:
    """Apache Kafka: what is expected of ours is expected of it. It is paused, never killed."""

    can_be_killed = False
    topic_config: Mapping[str, str] = {}  # its segments have 1 MiB at least

    def __init__(self, kafka: ApacheKafka) -> None:
        self._kafka = kafka
        self.bootstrap = kafka.bootstrap

    def pause(self) -> None:
        os.kill(self._kafka.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._kafka.pid, signal.SIGCONT)

    def kill(self) -> None:
        raise NotImplementedError("without a sync before each answer a kill may lose records")

    def cut_power(self, random: Random) -> None:
        self.kill()

    def restart(self) -> None:
        self.kill()

    def restart_and_kill(self, seconds: float) -> None:
        self.kill()
