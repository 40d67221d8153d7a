"""The processes of the demo: the database, `millstream up shop.py`, and the generator.

    demo ─┬─ postgres
          ├─ millstream up shop.py ─┬─ broker
          │    (jobs, HTTP, console)└─ capture
          └─ generator

`up` tells in lines of JSON what listens where, which process is which, and how the jobs are; what
it says otherwise is in up.log. Kills what it is told to: `up` brings the broker and the capture
back, and this brings `up` back.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.app import App
from millstream.base.disk import FileLock
from millstream.base.errors import Rejected
from millstream.demo.database import ShopDatabase

SHOP = Path(__file__).with_name("shop.py")
APP = "shop"
LOOK_SECONDS = 0.1
BROKER_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 90.0


class StageBroke(Rejected):
    def __init__(self, *, process: str, reason: str) -> None:
        super().__init__(f"{process} has ended: {reason}")
        self.process, self.reason = process, reason


class DemoRuns(Rejected):
    def __init__(self, *, data: Path, owner: str) -> None:
        super().__init__(
            f"a demo runs on {data} already ({owner}); stop it first, or give this one another "
            "place (--data), and ports of its own (--listen, --broker-listen)"
        )
        self.data, self.owner = data, owner


@dataclass(slots=True)
class Told:
    """The last that a process said of each thing."""

    pids: dict[str, int] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    is_resting: bool = False

    def take(self, line: Mapping[str, Any]) -> None:
        if "job" in line:
            self.jobs[line["job"]] = dict(line)
        elif "done" in line:
            self.done, self.is_resting = dict(line["done"]), bool(line["rests"])
        elif what := line.get("up"):
            if "pid" in line:
                self.pids[what] = int(line["pid"])
            if found := line.get("address") or line.get("url"):
                self.addresses[what] = str(found)


class Talking:
    """A process whose lines of JSON are read as they come. Not in our group: Ctrl-C is for us."""

    def __init__(self, name: str, command: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name, self.log, self.told = name, log, Told()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()

    def end(self, number: signal.Signals | None = None) -> None:
        """By a signal, or by closing its input; one that does not end is killed."""
        assert self.process.stdin is not None
        if number is not None and self.is_running:
            self.process.send_signal(number)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(STOP_SECONDS_MAX)

    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        said = [line for line in lines if not line.endswith("stopped")]
        return said[-1].removeprefix("millstream: ").rstrip(".") if said else "it said nothing"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                self.told.take(json.loads(line))
        self.process.stdout.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a demo is asked for."""

    data: Path
    rate: float
    seed: int = 1
    listen: str = "127.0.0.1:8080"
    broker_listen: str = "127.0.0.1:9092"


class Stage:
    """Everything that runs for the demo. Started once; `close` ends all, the database last."""

    def __init__(self, terms: Terms, *, tell: Callable[[str], None]) -> None:
        self.terms, self._tell = terms, tell
        terms.data.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(terms.data)
        self.database = ShopDatabase(terms.data)
        self._up: Talking | None = None
        self._generator: Talking | None = None

    @property
    def up(self) -> Talking:
        assert self._up is not None, "start() it first"
        return self._up

    @property
    def generator(self) -> Talking:
        assert self._generator is not None, "start() it first"
        return self._generator

    @property
    def log(self) -> Path:
        """The data of the application: its broker, jobs and views."""
        return self.terms.data.absolute() / "log"

    def reader(self) -> App:
        """The application as another process sees it."""
        return App(APP, data=self.log, brokers=self.up.told.addresses["broker"])

    def start(self) -> None:
        self._tell("PostgreSQL starts")
        self.database.start()
        self.start_up()
        self._generator = self._talking(
            "the generator",
            ["-m", "millstream.demo.generator", str(self.terms.rate), str(self.terms.seed)],
            {"MILLSTREAM_BROKERS": self.up.told.addresses["broker"]},
            "generator.log",
        )

    def start_up(self) -> None:
        """`millstream up shop.py`; returns when its broker is there."""
        address = self._up.told.addresses["broker"] if self._up else self.terms.broker_listen
        words = ["--listen", self.terms.listen, "--broker-listen", address, "--json"]
        self._up = self._talking(
            "millstream up", ["-m", "millstream", "up", str(SHOP), *words], {}, "up.log"
        )
        deadline = time.monotonic() + BROKER_SECONDS_MAX
        while "console" not in self._up.told.addresses:
            if not self._up.is_running or time.monotonic() > deadline:
                raise StageBroke(process="millstream up", reason=self._up.last_words())
            time.sleep(LOOK_SECONDS)

    def close(self) -> None:
        """Each of them, whatever becomes of another: nothing is left running."""
        with contextlib.ExitStack() as ends:
            ends.callback(self._lock.release)
            ends.callback(self.database.stop)
            if self._up is not None:
                ends.callback(self._up.end, signal.SIGINT)
            if self._generator is not None:
                ends.callback(self._generator.end)

    # --- what chaos does --------------------------------------------------------------------------

    def kill(self, victim: str) -> None:
        """As a crash would. `victim`: broker, capture or jobs."""
        if victim == "jobs":
            self.up.process.kill()
            self.up.end()
            self.start_up()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.up.told.pids[victim], signal.SIGKILL)

    def has(self, victim: str) -> bool:
        """Whether it is there to be killed."""
        return victim == "jobs" or victim in self.up.told.pids

    def pause(self) -> None:
        self.generator.told.is_resting = False
        self.generator.say("pause")

    def go_on(self) -> None:
        self.generator.say("go")

    def _talking(
        self, name: str, words: list[str], variables: Mapping[str, str], log: str
    ) -> Talking:
        kept = {key: value for key, value in os.environ.items() if key != "MILLSTREAM_BROKERS"}
        env = kept | {
            "SHOP_DATABASE": self.database.url,
            "SHOP_PASSWORD": self.database.password,
            "SHOP_DATA": str(self.log),
            "MILLSTREAM_SPARK_QUICK_START": "true",
            **variables,
        }
        return Talking(name, [sys.executable, *words], env, self.terms.data / log)


def _locked(data: Path) -> FileLock:
    """One demo has a directory: a second one would stop the first one's database."""
    lock = FileLock(data / "demo.lock")
    if not lock.take():
        owner = lock.read_note().strip()
        lock.release()
        raise DemoRuns(data=data, owner=owner)
    lock.note(f"process {os.getpid()}\n")
    return lock
