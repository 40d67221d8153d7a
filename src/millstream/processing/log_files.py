"""What jobs, Spark and its workers say at length, in files of bounded size: `logs/` of the data.

    jobs.log       why each job failed, whole: with the tracebacks of Python and of the JVM
    spark.log      what Spark's JVM logs as errors; it rotates the file itself
    workers.log    standard error of Spark's Python workers, and so that of the jobs' functions

A terminal gets one line for each failure, with the name of the file.
"""

import contextlib
import logging
import os
import shutil
import time
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path

from millstream.base.quantity import MIB

LOGS = "logs"
JOBS_LOG, SPARK_LOG, WORKERS_LOG = "jobs.log", "spark.log", "workers.log"
LOG_BYTES_MAX = 10 * MIB
OLD_FILES_MAX = 2
# By this variable the script of the workers' Python (worker_python.py) knows the file.
WORKERS_VARIABLE = "MILLSTREAM_WORKERS_LOG"
SIZE_LOOK_SECONDS = 1.0
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700  # a failure can name a record


class LogFiles:
    """Of the jobs of one app in this process. That a file cannot be written stops nothing."""

    def __init__(self, data: Path) -> None:
        self.directory = data.absolute() / LOGS
        self._handler: RotatingFileHandler | None = None
        self._look_due = 0.0

    @property
    def jobs(self) -> Path:
        return self.directory / JOBS_LOG

    @property
    def spark(self) -> Path:
        return self.directory / SPARK_LOG

    @property
    def workers(self) -> Path:
        return self.directory / WORKERS_LOG

    def open(self) -> bool:
        """Make the files; False where that is not possible."""
        try:
            self.directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            # Files that take the place of full ones have the modes that others give them.
            self.directory.chmod(DIRECTORY_MODE)
            for path in (self.jobs, self.spark, self.workers):
                os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE))
        except OSError:
            return False
        return True

    def note_failure(self, job: str, error: BaseException) -> None:
        """The whole of it, under the job's name."""
        text = "".join(traceback.format_exception(error))
        with contextlib.suppress(OSError):
            self._opened_handler().handle(
                logging.makeLogRecord({"msg": f"job {job} failed\n{text}", "levelname": "ERROR"})
            )

    def _opened_handler(self) -> RotatingFileHandler:
        if self._handler is None:
            self._handler = RotatingFileHandler(
                self.jobs, maxBytes=LOG_BYTES_MAX, backupCount=OLD_FILES_MAX, delay=True
            )
            self._handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
            self._handler.handleError = lambda record: None  # type: ignore[method-assign]
        return self._handler

    def bound(self) -> None:
        """Keep the workers' file bounded: they append to it, so it is copied and cut in place."""
        if (now := time.monotonic()) < self._look_due:
            return
        self._look_due = now + SIZE_LOOK_SECONDS
        with contextlib.suppress(OSError):
            if self.workers.stat().st_size > LOG_BYTES_MAX:
                shutil.copyfile(self.workers, self.workers.with_name(f"{WORKERS_LOG}.1"))
                os.truncate(self.workers, 0)

    def close(self) -> None:
        if self._handler is not None:
            self._handler.close()
            self._handler = None
