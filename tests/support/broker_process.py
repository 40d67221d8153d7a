"""`millstream broker` as an operator runs it: its own process, its output kept for inspection."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.readable import is_readable

READY_SECONDS_MAX = 20.0
STOP_SECONDS_MAX = 20.0
READY_LINE = re.compile(rb"millstream broker ready on (\S+), data in .+, durability \w+\n")

HURRIED = (
    "from millstream.__main__ import main; from millstream.broker import server; "
    "server.CHECKPOINT_INTERVAL_MS = {}; main()"
)
FEW_DESCRIPTORS = (
    "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({0}, {0})); "
    "from millstream.__main__ import main; main()"
)


class BrokerProcess:
    """A broker started from the command line; use it as a context manager.

    `diagnostics` is what it wrote to stderr, `bootstrap` the address of its ready line.
    """

    def __init__(
        self,
        data_dir: Path,
        *options: str,
        listen: str = "127.0.0.1:0",
        stderr_path: Path | None = None,
        checkpoint_interval_ms: int | None = None,
        descriptors_max: int | None = None,
    ) -> None:
        self.data_dir = data_dir
        start = ["-m", "millstream"]
        if checkpoint_interval_ms is not None:  # no setting: nobody but a test is in such a hurry
            start = ["-c", HURRIED.format(checkpoint_interval_ms)]
        if descriptors_max is not None:
            start = ["-c", FEW_DESCRIPTORS.format(descriptors_max)]
        self._command = [
            sys.executable, *start, "broker",
            "--data", str(data_dir), "--listen", listen, *options,
        ]  # fmt: skip
        self._stderr_path = stderr_path or data_dir.with_name(data_dir.name + ".stderr")
        self.ready_line = b""
        self.bootstrap = ""
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> Self:
        self.start()
        assert self.bootstrap, f"not ready: {self.diagnostics}"
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def start(self) -> None:
        """Start, and wait for the ready line or for the end of the process."""
        with self._stderr_path.open("ab") as stderr:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr
            )
        assert self.process.stdout is not None
        ready = is_readable(self.process.stdout, READY_SECONDS_MAX)
        self.ready_line = self.process.stdout.readline() if ready else b""
        if match := READY_LINE.fullmatch(self.ready_line):
            self.bootstrap = match[1].decode()

    def read_metrics_url(self) -> str:
        """Of the line behind the ready line; with --metrics-listen there is one."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().split()[-1]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def diagnostics(self) -> str:
        return self._stderr_path.read_text(errors="replace")

    @property
    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop; returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """The exit code of a process that ends by itself."""
        exit_code = self.process.wait(STOP_SECONDS_MAX)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return exit_code

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()


def resident_bytes(pid: int) -> int:
    """The memory that a process has now (VmRSS)."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found is not None, f"process {pid} has ended"
    return int(found[1]) << 10


def is_alive(pid: int) -> bool:
    """Whether the process still runs; one that ended but was not waited for does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def assert_no_traceback(diagnostics: str) -> None:
    """What a client or a disk does wrong is worth a line; a traceback is a defect of ours."""
    _, found, trace = diagnostics.partition("Traceback")
    assert not found, found + trace[:5_000]


def wait_until_gone(pid: int, *, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs after {within_s} s"
        time.sleep(0.02)
