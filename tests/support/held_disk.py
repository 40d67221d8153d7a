"""A real disk whose syncs can be held back, or made to fail, for the logs of one topic."""

import errno
import threading
from pathlib import Path

from millstream.base.disk import DiskFailed, DiskFile, RealDisk, RealFile

HELD_SECONDS_MAX = 60.0


class HeldFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, disk: "HeldDisk") -> None:
        super().__init__(path)
        self._disk = disk

    def sync(self) -> None:
        self._disk.waiting.set()
        assert self._disk.may_sync.wait(HELD_SECONDS_MAX), "a sync was held and never released"
        if self._disk.fails:
            error = OSError(errno.EIO, "planted")
            raise DiskFailed(path=self.path, action="sync", error=error)
        super().sync()


class HeldDisk(RealDisk):
    """`hold` stops every later sync of the topic's records until `release`."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self.may_sync = threading.Event()
        self.may_sync.set()
        # Set once a sync has begun: by then its records are written, and nothing more.
        self.waiting = threading.Event()
        self.fails = False

    def open(self, path: Path) -> DiskFile:
        if path.suffix == ".log" and path.parent.name.startswith(f"{self._topic}-"):
            return HeldFile(path, self)
        return super().open(path)

    def hold(self) -> None:
        self.waiting.clear()
        self.may_sync.clear()

    def release(self) -> None:
        self.may_sync.set()
