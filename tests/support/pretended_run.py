"""A job that only pretends to run, so that no Spark is needed."""

import threading
from dataclasses import replace
from typing import Any

from millstream.processing.jobs.progress import JobProgress, JobState


class PretendedRun:
    """Runs until it is stopped; does its first batch when it is told to."""

    failure = None

    def __init__(self, name: str) -> None:
        self.job: Any = type("PretendedJob", (), {"name": name})
        self.progress = JobProgress(job=name)
        self.is_started = threading.Event()
        self.is_restart_asked = threading.Event()
        self._stopping = threading.Event()

    def run(self) -> None:
        self.is_started.set()
        self._stopping.wait()

    def restart(self) -> None:
        self.is_restart_asked.set()

    def stop(self) -> None:
        self._stopping.set()

    def do_a_batch(self) -> None:
        self.progress = replace(self.progress, batch=0)

    def end(self, state: JobState) -> None:
        self.progress = replace(self.progress, state=state)
