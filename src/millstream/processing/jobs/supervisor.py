"""Runs the jobs of an app side by side, and ends them together: each in a thread of its own.

A job that fails for good does not stop the others. SIGINT and SIGTERM ask all to end; a second one
does not wait.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from millstream.processing.jobs.job_failure import Failure
from millstream.processing.jobs.job_run import JobRun
from millstream.processing.jobs.progress import JobProgress

LOOK_SECONDS = 0.2
# How long the next job waits for one that takes long, and for one that runs and has nothing to do.
START_SECONDS_MAX = 60.0
IDLE_SECONDS_MAX = 6.0


Look = Callable[[list[JobProgress]], None]


def is_up(run: JobRun) -> bool:
    """Whether it has done a batch, or is not about to."""
    return run.progress.batch is not None or run.progress.state not in ("starting", "running")


class Supervisor:
    """Of jobs that run in this process."""

    def __init__(self, runs: Sequence[JobRun]) -> None:
        self._runs = runs
        self._threads: dict[str, threading.Thread] = {}
        self._stopping = threading.Event()
        self.was_stopped = False  # not: all ended by themselves

    @property
    def progress(self) -> list[JobProgress]:
        return [run.progress for run in self._runs]

    @property
    def failures(self) -> dict[str, Failure]:
        return {run.job.name: run.failure for run in self._runs if run.failure is not None}

    def stop(self) -> None:
        self.was_stopped = True
        self._end()

    def restart(self, job: str) -> None:
        """Also one that has failed for good. One that has not begun yet is about to."""
        run = next(run for run in self._runs if run.job.name == job)
        thread = self._threads.get(job)
        if thread is not None and thread.is_alive():
            run.restart()
        elif thread is not None and not self._stopping.is_set():
            self._begin(run)

    def _begin(self, run: JobRun) -> None:
        thread = threading.Thread(target=run.run, name=run.job.name, daemon=True)
        self._threads[run.job.name] = thread
        thread.start()

    def _end(self) -> None:
        self._stopping.set()
        for run in self._runs:
            run.stop()

    def run(
        self,
        *,
        look: Look | None = None,
        stays: bool = False,
    ) -> None:
        """Until every job is done, or has failed, or `stop`; `look` sees the progress now and then.

        In the main thread it also ends by a signal. `stays`: until `stop`, as a job that has failed
        may be asked to begin again.
        """
        with self._signals():
            try:
                self._start(look)
                self._await(lambda: stays or self._is_any_alive, look)
            finally:
                self._end()
            for thread in self._threads.values():
                thread.join()
        if look is not None:
            look(self.progress)

    @property
    def _is_any_alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads.values())

    def _start(self, look: Look | None) -> None:
        """Each when the one before has done its first batch. That takes seconds of a core: all at
        once, all are late, and one by one the first is there soon."""
        for run in self._runs:
            self._begin(run)
            self._await_up(run, look)

    def _await_up(self, run: JobRun, look: Look | None) -> None:
        deadline, idle_since = time.monotonic() + START_SECONDS_MAX, time.monotonic()
        thread = self._threads[run.job.name]

        def is_coming() -> bool:
            nonlocal idle_since
            now, progress = time.monotonic(), run.progress
            if progress.state == "starting" or progress.busy_ms:
                idle_since = now
            is_patient = now < deadline and now - idle_since < IDLE_SECONDS_MAX
            return thread.is_alive() and not is_up(run) and is_patient

        self._await(is_coming, look)

    def _await(self, condition: Callable[[], bool], look: Look | None) -> None:
        """While the condition holds, or until it is to stop."""
        while condition() and not self._stopping.is_set():
            if look is not None:
                look(self.progress)
            # Not `wait`: a signal in the midst of it would wait for the lock that it holds.
            time.sleep(LOOK_SECONDS)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Spark's own handler would cancel batches, and raise wherever the program is."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(_number: int, _frame: FrameType | None) -> None:
            if self._stopping.is_set():
                raise KeyboardInterrupt
            self.stop()

        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
