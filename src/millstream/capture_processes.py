"""Captures in processes of their own: started, watched, started again, ended with their parent.

A capture never shares the interpreter lock of an application. What it needs to know, with the
database's password, goes through a pipe: the words of a command can be seen by everybody. The
child stops when that pipe ends, even if its parent was killed; what it has begun is then written
whole, or not at all. Does not know what a capture does (`capture/runner.py`).
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.base.diagnostics import set_up_diagnostics, set_up_text
from millstream.base.errors import MillstreamError, Rejected

logger = logging.getLogger(__name__)

CHILD = "import sys; from millstream.capture_processes import main; sys.exit(main())"
STOP_SECONDS_MAX = 30.0
PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 10.0
STDIN = 0
READ_BYTES = 65_536


class CapturesFailed(Rejected):
    def __init__(self, *, failures: Mapping[str, str]) -> None:
        super().__init__(
            ". ".join(f"capture {name} has ended: {why}" for name, why in failures.items())
        )
        self.failures = failures


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOrder:
    """What a child is told. `approval`: what its capture may be (`capture/approval.py`); `url`:
    where the one that is approved lacks its password."""

    capture: str
    client: Mapping[str, Any] = field(repr=False)
    approval: Mapping[str, Any] | None = None
    url: str | None = field(default=None, repr=False)
    once: bool = False

    def to_line(self) -> bytes:
        told = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(told, default=dict).encode() + b"\n"


class CaptureProcesses:
    """One child for each order. `failures` says of those that ended for good why they did."""

    def __init__(self, orders: Sequence[CaptureOrder]) -> None:
        self.failures: dict[str, str] = {}
        self._stopping = threading.Event()
        self._running = {order.capture: RunningCapture(order, self._stopping) for order in orders}

    def start(self) -> None:
        for one in self._running.values():
            one.start()

    @property
    def pids(self) -> dict[str, int]:
        """The process of each capture that has one now."""
        found = {name: one.pid for name, one in self._running.items()}
        return {name: pid for name, pid in found.items() if pid is not None}

    @property
    def is_over(self) -> bool:
        return not any(one.is_alive for one in self._running.values())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until all have ended; whether they have."""
        for one in self._running.values():
            one.join(timeout_s)
        for name, one in self._running.items():
            if one.failure:
                self.failures[name] = one.failure
        return self.is_over

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """All at once, then wait for each."""
        self._stopping.set()
        for one in self._running.values():
            one.let_go()
        if not self.wait(STOP_SECONDS_MAX):
            for one in self._running.values():
                one.kill()
            self.wait()

    def require_well(self) -> None:
        if self.failures:
            raise CapturesFailed(failures=self.failures)


class RunningCapture:
    """One child after another, by a thread of its own, until one ends for good."""

    def __init__(self, order: CaptureOrder, stopping: threading.Event) -> None:
        self._order, self._stopping = order, stopping
        self._thread = threading.Thread(
            target=self._run, name=f"capture {order.capture}", daemon=True
        )
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.failure = ""

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def pid(self) -> int | None:
        with self._lock:
            child = self._child
        return None if child is None or child.poll() is not None else child.pid

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def let_go(self) -> None:
        with self._lock:
            child = self._child
        if child is not None:
            _let_go(child)

    def kill(self) -> None:
        """One that does not stop. The next run finds what it has committed, and no more."""
        with self._lock:
            child = self._child
        if child is not None:
            child.kill()

    def _run(self) -> None:
        deaths = 0
        while not self._stopping.is_set():
            told = self._run_child()
            if told is not None:
                self._note_end(str(told.get("error", "")))
                return
            seconds = pause_seconds(deaths)
            deaths += 1
            if not self._stopping.is_set():
                name = self._order.capture
                logger.warning("the process of capture %s died: again in %.1f s", name, seconds)
            self._stopping.wait(seconds)

    def _note_end(self, error: str) -> None:
        """Told at once: the others may run for long."""
        self.failure = error
        if error:
            logger.error("capture %s has ended: %s", self._order.capture, error)

    def _run_child(self) -> dict[str, Any] | None:
        """What it had to say at its end; nothing if it was killed."""
        with self._lock:
            if self._stopping.is_set():
                return {}
            child = self._child = _started(self._order)
        assert child.stdout is not None
        line = child.stdout.readline()
        _let_go(child)
        child.wait()
        child.stdout.close()
        found: dict[str, Any] | None = json.loads(line) if line.strip() else None
        return found


def pause_seconds(deaths: int) -> float:
    return min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_FIRST * 2.0 ** min(deaths, 20))


def _started(order: CaptureOrder) -> "subprocess.Popen[bytes]":
    """The child must not get our signals (Ctrl-C at a terminal): it stops when we do."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it died at once, which its silence tells
        child.stdin.write(order.to_line())
        child.stdin.flush()
    return child


def _let_go(child: "subprocess.Popen[bytes]") -> None:
    """Closing the pipe is how a child is told to stop."""
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()


# --- the child ----------------------------------------------------------------------------------


def main() -> int:
    """Run one capture until standard input ends; tells how it ended in one line of JSON."""
    from millstream.capture.approval import Approval
    from millstream.capture.runner import CaptureRunner
    from millstream.settings import LogSettings, load

    set_up_diagnostics(load(LogSettings).format)
    set_up_text("millstream: %(message)s", level=logging.WARNING)
    order = json.loads(_first_line(STDIN))
    approved = order["approval"]
    runner = CaptureRunner(
        order["client"],
        order["capture"],
        approval=None if approved is None else Approval.from_fields(approved),
        url=order["url"],
    )
    threading.Thread(target=_stop_at_end, args=(STDIN, runner.stop), daemon=True).start()
    try:
        told: dict[str, Any] = {"end": runner.run(once=order["once"])}
    except MillstreamError as error:
        told = {"error": str(error)}
    with contextlib.suppress(BrokenPipeError):  # a parent that was killed does not listen
        print(json.dumps(told), flush=True)
    return 1 if "error" in told else 0


def _first_line(pipe: int) -> bytes:
    """Without a buffer: a thread that waits in one keeps Python from ending."""
    line = b""
    while not line.endswith(b"\n"):
        some = os.read(pipe, READ_BYTES)
        if not some:
            break
        line += some
    return line


def _stop_at_end(pipe: int, stop: Callable[[], None]) -> None:
    while os.read(pipe, READ_BYTES):
        pass
    stop()
