"""A real disk that can be made full, by a test that may not mount one."""

from collections.abc import Sequence
from pathlib import Path

from millstream.base.disk import Bytes, DiskFile, DiskFull, RealDisk, RealFile


class CrampedFile(RealFile):
    __slots__ = ("_disk",)

    def __init__(self, path: Path, disk: "CrampedDisk") -> None:
        super().__init__(path)
        self._disk = disk

    def append(self, chunks: Sequence[Bytes]) -> None:
        if self._disk.is_full:
            raise DiskFull(path=self.path)
        super().append(chunks)


class CrampedDisk(RealDisk):
    """While `is_full` nothing can be appended; `is_quota`: the file system still shows room."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = self.is_quota = False

    def open(self, path: Path) -> DiskFile:
        return CrampedFile(path, self)

    def free_bytes(self, path: Path) -> int:
        return 0 if self.is_full and not self.is_quota else super().free_bytes(path)
