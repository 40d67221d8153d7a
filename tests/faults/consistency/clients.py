"""The client processes of a run: start, pause, kill, replace, end; and gather what they wrote.

It knows process ids and files, nothing of what the clients do.
"""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.consistency.client import FENCED_EXIT_CODE
from tests.faults.consistency.history import History, Isolation
from tests.faults.consistency.history_file import read_history_file

START_SECONDS_MAX = 10.0
END_SECONDS_MAX = 45.0
TRANSACTIONAL_ROLES = frozenset({"transactor", "newer transactor", "processor"})


@dataclass(frozen=True, slots=True)
class Part:
    """What a client is. Its name is its transactional id, if it has one."""

    role: str
    name: str
    isolation: Isolation = Isolation.COMMITTED

    @property
    def is_transactional(self) -> bool:
        return self.role in TRANSACTIONAL_ROLES


CAST = (
    Part("producer", "p1"),
    Part("producer", "p2"),
    Part("transactor", "t1"),
    Part("transactor", "t2"),
    Part("newer transactor", "n1"),
    Part("processor", "c1"),
    Part("processor", "c2"),
    Part("reader", "r1", Isolation.COMMITTED),
    Part("reader", "r2", Isolation.UNCOMMITTED),
    Part("member", "m1", Isolation.COMMITTED),
    Part("member", "m2", Isolation.COMMITTED),
    Part("newer member", "m3", Isolation.COMMITTED),
    Part("newer member", "m4", Isolation.COMMITTED),
)


@dataclass(frozen=True, slots=True, eq=False)
class ClientProcess:
    part: Part
    name: str
    history: Path
    process: subprocess.Popen[bytes]

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def is_at_work(self) -> bool:
        """A transactional one has initialised its id: it has fenced its predecessor."""
        sign = b'"kind":"init"' if self.part.is_transactional else b'"phase":"ok"'
        return sign in self.history.read_bytes()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


@dataclass(slots=True)
class Clients:
    """Everyone on stage, and everyone who ever was."""

    bootstrap: str
    directory: Path
    seed: int
    on_stage: dict[str, ClientProcess] = field(default_factory=dict)
    started: list[ClientProcess] = field(default_factory=list)
    # Replaced while they were paused; they wake up and must find themselves fenced.
    zombies: list[ClientProcess] = field(default_factory=list)
    fenced: int = 0

    def start(self, part: Part) -> ClientProcess:
        """Start a part, or its next incarnation."""
        incarnation = sum(1 for one in self.started if one.part == part)
        name = f"{part.name}.{incarnation}"
        history = self.directory / f"{name}.history"
        history.touch()
        seed = f"{self.seed}{incarnation}{CAST.index(part)}"
        command = [
            *_dies_with_us(), sys.executable, "-m", "tests.faults.consistency.client",
            part.role, part.name, "--incarnation", str(incarnation), "--seed", seed,
            "--bootstrap", self.bootstrap, "--history", str(history),
            "--isolation", part.isolation,
        ]  # fmt: skip
        with (self.directory / f"{name}.stderr").open("wb") as stderr:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr
            )
        client = ClientProcess(part, name, history, process)
        self.on_stage[part.name] = client
        self.started.append(client)
        return client

    def wait_until_at_work(self, *clients: ClientProcess) -> None:
        """All of them, or these; for a bounded time: a fault needs a victim that does something."""
        deadline = time.monotonic() + START_SECONDS_MAX
        waiting = set(clients or self.on_stage.values())
        while waiting and time.monotonic() < deadline:
            time.sleep(0.05)
            waiting = {client for client in waiting if not client.is_at_work}

    def replace(self, client: ClientProcess) -> ClientProcess:
        """Another process takes its place, and its transactional id. It may still be there."""
        if client.is_running:
            self.zombies.append(client)
        return self.start(client.part)

    def tend(self) -> None:
        """Whoever ended by itself is replaced: a fault can make a producer useless."""
        for client in list(self.on_stage.values()):
            if not client.is_running:
                self.replace(client)

    def end(self) -> None:
        """Let everyone finish what is under way; who does not is killed."""
        running = [client for client in self.started if client.is_running]
        for client in running:
            client.resume()
            client.process.terminate()
        deadline = time.monotonic() + END_SECONDS_MAX
        for client in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.process.wait(max(0.0, deadline - time.monotonic()))
        self.kill_all()

    def kill_all(self) -> None:
        for client in self.started:
            if client.is_running:
                client.kill()
        self.fenced = sum(one.process.returncode == FENCED_EXIT_CODE for one in self.started)

    def history(self) -> History:
        return [
            operation
            for client in self.started
            for operation in read_history_file(client.history, process=client.name)
        ]

    def complaints(self) -> Iterator[str]:
        """Tracebacks: defects of the workload, not of the broker. (librdkafka says when it is
        fenced.)"""
        for client in self.started:
            text = (self.directory / f"{client.name}.stderr").read_text(errors="replace")
            if "Traceback" in text:
                yield f"{client.name}: {text}"


def _dies_with_us() -> list[str]:
    """A prefix, where util-linux has it, that ends a client even when we are killed."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL"]
