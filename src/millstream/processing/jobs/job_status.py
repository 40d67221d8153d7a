"""How a job gets on, for other processes: a small file beside its checkpoints, `status.json`.

The run that holds the job replaces it every second or so; one that is old says that nobody runs the
job. Nothing depends on it: it is not synced, and a run goes on if it cannot be written. The other
way, `restart` is a file by which another process asks the run to begin the job again.
docs/formats/job_directory.md.
"""

import contextlib
import json
import logging
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from millstream.base.clock import Clock
from millstream.processing.jobs.progress import JobProgress

logger = logging.getLogger(__name__)

FORMAT = 1
STATUS = "status.json"
RESTART = "restart"
STATUS_BYTES_MAX = 1 << 20
WRITE_EVERY_MS = 1_000
# Ten that failed to come: a driver that collects garbage is still there.
STALE_MS = 10_000
ENDED = ("done", "stopped", "failed")
KNOWN = frozenset(field.name for field in fields(JobProgress))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """`at_ms`: when `process` on `host` wrote it; `since_ms`: when its state began."""

    progress: JobProgress
    at_ms: int
    since_ms: int = 0
    host: str = ""
    process: int = 0

    def is_stale(self, *, now_ms: int) -> bool:
        """Nobody runs the job, or its run cannot write. One that has ended says so itself."""
        return self.progress.state not in ENDED and now_ms - self.at_ms > STALE_MS

    def is_attended(self, *, now_ms: int) -> bool:
        """Whether a run of this machine looks after the job, be it that it has failed: such a run
        goes on for the sake of others, and of those who ask it to begin again."""
        if self.progress.state in ("done", "stopped"):
            return False
        return now_ms - self.at_ms <= STALE_MS

    def to_json(self) -> bytes:
        found = {
            "format": FORMAT,
            "at_ms": self.at_ms,
            "since_ms": self.since_ms,
            "host": self.host,
            "process": self.process,
            "progress": self.progress.to_json(),
        }
        return json.dumps(found).encode()


def status_from_json(text: bytes) -> JobStatus | None:
    """None for what is no status, or of another format. Fields of a newer version are left out."""
    try:
        found = json.loads(text)
        if found["format"] != FORMAT:
            return None
        return JobStatus(
            progress=_progress_from(found["progress"]),
            at_ms=int(found["at_ms"]),
            since_ms=int(found.get("since_ms", found["at_ms"])),  # older versions do not tell
            host=str(found["host"]),
            process=int(found["process"]),
        )
    except (ValueError, KeyError, TypeError):
        return None


def _progress_from(found: Mapping[str, Any]) -> JobProgress:
    return JobProgress(**{name: found[name] for name in found if name in KNOWN})


def read_status(jobs: Path, job: str) -> JobStatus | None:
    """None for a job that never ran, or whose file cannot be read."""
    try:
        with (jobs / job / STATUS).open("rb") as file:
            return status_from_json(file.read(STATUS_BYTES_MAX))
    except OSError:
        return None


def ask_restart(jobs: Path, job: str) -> None:
    (jobs / job / RESTART).touch()


def is_restart_asked(jobs: Path, job: str) -> bool:
    """True once for what was asked."""
    try:
        (jobs / job / RESTART).unlink()
    except OSError:
        return False
    return True


class StatusFiles:
    """Of the jobs of one run, which holds their directories: told as often as one likes."""

    def __init__(self, jobs: Path, now_ms: Clock) -> None:
        self._jobs, self._now_ms = jobs, now_ms
        self._due_ms: dict[str, int] = {}
        self._states: dict[str, tuple[str, int]] = {}  # and since when
        self._has_failed = False

    def announce(self, progress: Iterable[JobProgress]) -> None:
        """The same for jobs that are about to be run: also before their directories are made, but
        not over what another process tells of a job that it runs."""
        for one in progress:
            if not self._is_of_another(one.job):
                with contextlib.suppress(OSError):
                    (self._jobs / one.job).mkdir(parents=True, exist_ok=True)
                self.look([one])

    def _is_of_another(self, job: str) -> bool:
        found = read_status(self._jobs, job)
        if found is None or found.process == os.getpid() or found.progress.state in ENDED:
            return False
        return not found.is_stale(now_ms=self._now_ms())

    def look(self, progress: Iterable[JobProgress]) -> None:
        """A job's file is written when it is due, and at once when its state is another."""
        now_ms = self._now_ms()
        for one in progress:
            is_due = not 0 <= self._due_ms.get(one.job, 0) - now_ms <= WRITE_EVERY_MS
            state, since_ms = self._states.get(one.job, ("", now_ms))
            if is_due or state != one.state:
                self._due_ms[one.job] = now_ms + WRITE_EVERY_MS
                self._states[one.job] = (one.state, since_ms if state == one.state else now_ms)
                self._write(one, now_ms)

    def _write(self, progress: JobProgress, now_ms: int) -> None:
        folder = self._jobs / progress.job
        status = JobStatus(
            progress=progress,
            at_ms=now_ms,
            since_ms=self._states[progress.job][1],
            host=socket.gethostname(),
            process=os.getpid(),
        )
        try:
            if folder.is_dir():  # the run makes it when it takes the job
                replace_unsynced(folder / STATUS, status.to_json())
        except OSError as error:
            self._tell(folder / STATUS, error)

    def _tell(self, path: Path, error: OSError) -> None:
        """Once: a full disk has louder voices."""
        if not self._has_failed:
            logger.warning("%s cannot be written, so others see an old state: %s", path, error)
        self._has_failed = True


def replace_unsynced(path: Path, content: bytes) -> None:
    """Readers see the old content or the new one; after a power cut it may be neither."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
