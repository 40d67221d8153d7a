"""One writer of a view's files at a time, across processes; the system frees what a kill leaves."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from millstream.base.disk import FileLock
from millstream.base.errors import Retryable

LOCK = "lock"
# Another run of the job may be in the midst of a large batch.
BUSY_SECONDS_MAX = 30.0
LOOK_EVERY_SECONDS = 0.005


class ViewLocked(Retryable):
    def __init__(self, *, path: Path, seconds: float) -> None:
        super().__init__(
            f"{path}: another process has been writing to the view for {seconds:g} s. Try again"
        )
        self.path, self.seconds = path, seconds


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """The file stays: to remove it would let two in, one with the old file, one with a new one."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / LOCK)
    try:
        give_up_at = time.monotonic() + BUSY_SECONDS_MAX
        while not lock.take():
            if time.monotonic() >= give_up_at:
                raise ViewLocked(path=lock.path, seconds=BUSY_SECONDS_MAX)
            time.sleep(LOOK_EVERY_SECONDS)
        yield
    finally:
        lock.release()
