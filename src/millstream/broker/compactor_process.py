"""The process that cleans logs, so that the broker's loop never waits for it.

It is started for the first job, goes on to the next, and ends with the broker, even if that one is
killed: then the pipe it reads jobs from ends. A job goes in and results come out, pickled; both
ends are ours, the pipes are private. It only writes `.cleaned` files: what becomes of them is for
the owner of the log to say.
"""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from millstream.base.disk import RealDisk
from millstream.base.errors import Corrupt, MillstreamError, Retryable
from millstream.log.compaction_job import CompactionJob
from millstream.log.compaction_run import (
    CleanedSegment,
    CompactionDone,
    CompactionRun,
    never_wait,
)

CHILD = "import sys; from millstream.broker.compactor_process import main; sys.exit(main())"
# Behind everything that answers somebody, but not behind everything there is.
NICENESS = 10
# How long the broker waits for the end of a killed process: a device that does not answer can
# hold it up, and must not hold up the broker as well.
END_SECONDS_MAX = 1.0

Result: TypeAlias = CleanedSegment | CompactionDone


class CompactionFailed(Corrupt):
    """A job could not be carried out; the log is as it was, or cleaned in part."""


class CompactorEnded(Retryable):
    def __init__(self, *, exit_code: int | None) -> None:
        super().__init__(f"the process that compacts has ended (exit code {exit_code})")
        self.exit_code = exit_code


class CompactorProcess:
    """The broker's end. All but `end` block: call them in a thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def begin(self, job: CompactionJob) -> None:
        process = self._started()
        assert process.stdin is not None
        try:
            pickle.dump(job, process.stdin)
            process.stdin.flush()
        except OSError as error:
            raise self._ended(process) from error

    def next_result(self) -> Result:
        process = self._process
        if process is None:
            raise CompactorEnded(exit_code=None)
        assert process.stdout is not None
        try:
            result = pickle.load(process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            raise self._ended(process) from error
        if isinstance(result, str):
            raise CompactionFailed(result)
        assert isinstance(result, CleanedSegment | CompactionDone)
        return result

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        return self._process

    def _ended(self, process: "subprocess.Popen[bytes]") -> CompactorEnded:
        self.end()
        return CompactorEnded(exit_code=process.returncode)

    def end(self) -> None:
        """End it now, in the middle of a job too: it has nothing that could be lost."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS_MAX)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # the rest of a job that nobody reads any more
                    pipe.close()


@dataclass(slots=True)
class Pace:
    """Holds a run to so many bytes a second, read and written together."""

    bytes_per_second: int
    seconds: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep
    _free_at: float = 0.0

    def __call__(self, bytes_count: int) -> None:
        now = self.seconds()
        self._free_at = max(self._free_at, now) + bytes_count / self.bytes_per_second
        if self._free_at > now:
            self.wait(self._free_at - now)


# --- The process itself ----------------------------------------------------------------------


def main() -> int:
    """Carry out jobs until the broker is gone."""
    os.nice(NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which ends us
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a stray print must not be a result
    jobs: queue.SimpleQueue[CompactionJob] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, jobs), daemon=True).start()
    while True:
        carry_out(jobs.get(), results)


def _receive(pipe: BinaryIO, jobs: "queue.SimpleQueue[CompactionJob]") -> None:
    """Take jobs from the broker. The end of the pipe is the end of the broker, and ours."""
    try:
        while True:
            jobs.put(pickle.load(pipe))
    except BaseException:
        os._exit(0)


def carry_out(job: CompactionJob, results: BinaryIO) -> None:
    """Clean, and tell of each segment at once; of an error with its words."""

    def tell(result: Result | str) -> None:
        pickle.dump(result, results)
        results.flush()

    pace = Pace(job.bytes_per_second_max) if job.bytes_per_second_max > 0 else never_wait
    try:
        for result in CompactionRun(RealDisk(), job, pace).run():
            tell(result)
    except MillstreamError as error:
        tell(str(error))
    except OSError as error:  # the directory went with its topic
        tell(f"{job.directory}: {error}")
