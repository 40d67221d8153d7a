"""Processes with clients of an event store (tests/faults/event_client.py), and what they said."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millstream.eventsourcing.stored_event import Receipt
from millstream.eventsourcing.transaction import FencedProducer
from tests.support.waiting import eventually

WITHIN_S = 120.0


class Midway:
    """Does something in a transaction, when its events are sent and not committed."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def is_over(self, _term: int) -> bool:
        return False

    def write(self, _producer: FencedProducer, _outcome: Receipt | BaseException) -> None:
        self._act()

    def end(self, _producer: FencedProducer) -> None:
        pass


class EventClients:
    """One process; use it as a context manager. `said` has its lines so far."""

    def __init__(self, bootstrap: str, topic: str, *arguments: str) -> None:
        self.said: list[dict[str, Any]] = []
        command = [sys.executable, "-m", "tests.faults.event_client", bootstrap, topic, *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self.kill()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def await_lines(self, count: int) -> None:
        eventually(
            lambda: len(self.said) >= count or self._process.poll() is not None,
            what=f"{count} lines",
            within_s=WITHIN_S,
        )

    def await_end(self) -> list[dict[str, Any]]:
        assert self._process.wait(WITHIN_S) == 0
        self._reader.join()
        return self.said

    def await_stopped(self) -> None:
        eventually(lambda: self._state() == "T", what="it has stopped", within_s=WITHIN_S)

    def go_on(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """As `kill -9`."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _state(self) -> str:
        stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        return stat.rsplit(")", 1)[1].split()[0]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):  # not the half of one that was killed
                self.said.append(json.loads(line))
