"""A capture in a process of its own, with its broker and its database: each is killed, under load.

What must hold of the topics in the end is here too. Which database it is, what is written to it and
how its rows are read is the test's.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from millstream import Broker
from millstream.base.log_clients import Topics
from millstream.capture.captures_topic import CapturesTopic, make_run_topic
from millstream.capture.control import CaptureControl
from millstream.capture.definition import CaptureDefinition
from millstream.capture.runner import CaptureRunner
from tests.support.approvals import approved
from tests.support.committed_records import committed_records
from tests.support.thread_dumps import ask_for_threads
from tests.support.waiting import eventually

ROOT: Final = Path(__file__).parents[2]
WITHIN_S: Final = 120.0
CAPTURE: Final = "bank"
VICTIMS: Final = ("capture", "broker", "database")
PAUSE_SECONDS_MAX: Final = 0.5  # before a kill

Records = list[tuple[Any, Any]]  # keys and values; a tombstone's is None


class KilledDatabase(Protocol):
    """A server on loopback, with its data."""

    @property
    def url(self) -> str: ...

    def crash(self) -> None: ...

    def start(self) -> None: ...


class SteadyWriter:
    """Writes in a thread of its own. `write_on` is called again when it lost the database; it is
    given `is_over`, and ends when that says so."""

    def __init__(self, write_on: Callable[[Callable[[], bool]], None]) -> None:
        self._write_on = write_on
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._write_on(self._ending.is_set)
            time.sleep(0.02)


class KilledCapture:
    """Of these tables, whose database has its rows already."""

    def __init__(
        self, broker: Broker, database: KilledDatabase, said: Path, *, tables: Sequence[str]
    ) -> None:
        self.broker, self.database, self._said = broker, database, said
        self.kills: Counter[str] = Counter()
        self._client = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        self._process: subprocess.Popen[bytes]
        CaptureControl(self._client).add(
            CaptureDefinition(name=CAPTURE, url="${CAPTURED_URL}", tables=tuple(tables))
        )
        make_run_topic(Topics(self._client), CAPTURE)
        self._captures = CapturesTopic(self._client, CAPTURE)

    def start(self) -> None:
        environment = os.environ | {"CAPTURED_URL": self.database.url, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.faults.killed_capture"]
        with self._said.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, self.broker.bootstrap, CAPTURE], env=environment, stderr=output
            )

    def end(self) -> None:
        assert self._process.poll() is None, self._said.read_text()
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self.end()
        self._captures.close()

    def kill_at_random(self, dice: random.Random, *, of_each: int, waits: float) -> None:
        """`waits`: how often it goes on before the next kill, of all times."""
        victims = [*VICTIMS] * of_each
        dice.shuffle(victims)
        for victim in victims:
            if dice.random() < waits:
                self.wait_for_progress()
            time.sleep(dice.uniform(0, PAUSE_SECONDS_MAX))
            self._kill(victim)
        self.wait_for_progress()

    def _kill(self, victim: str) -> None:
        self.kills[victim] += 1
        match victim:
            case "capture":
                self.end()
                self.start()
            case "broker":
                self.broker.kill()
                self.broker.start()
            case "database":
                self.database.crash()
                self.database.start()

    def wait_for_progress(self) -> None:
        """It goes on by itself, whoever was killed."""
        before = self._position()
        try:
            eventually(
                lambda: self._position() != before, what="another position", within_s=WITHIN_S
            )
        except AssertionError:
            ask_for_threads(self._process.pid)
            print(self._said.read_text())
            raise

    def _position(self) -> str:
        while self._captures.follow():
            pass
        position = self._captures.book.of(CAPTURE).position
        return position.resume if position is not None else ""

    def catch_up(self) -> None:
        """In this process, once the other one has ended for good."""
        CaptureRunner(
            self._client, CAPTURE, approval=approved(self._client, CAPTURE), url=self.database.url
        ).run(once=True)

    def records(self, table: str) -> Records:
        found = committed_records(self.broker.bootstrap, f"{CAPTURE}.{table}")
        return [(json.loads(one.key() or b""), json.loads(one.value() or b"null")) for one in found]


# --- what must hold of the topics ---------------------------------------------------------------


def changes_in(records: Records) -> list[dict[str, Any]]:
    """What the database logged: not tombstones, and not what was loaded."""
    return [value for _, value in records if value and value["source"]["txId"] is not None]


def require_each_change_once(records: dict[str, Records]) -> None:
    found = [change["source"] for table in records.values() for change in changes_in(table)]
    counted = Counter((one["commit"], one["seq"]) for one in found)
    assert [one for one, count in counted.items() if count > 1] == []


def require_rows_loaded_once(records: Records) -> None:
    loaded = Counter(key["id"] for key, value in records if value and value["op"] == "r")
    assert [key for key, count in loaded.items() if count > 1] == []


def newest(records: Records) -> dict[int, Any]:
    rows: dict[int, Any] = {}
    for key, value in records:
        if value is None or value["after"] is None:
            rows.pop(key["id"], None)
        else:
            rows[key["id"]] = value["after"]
    return rows
