"""Where an archive is kept: a small port, a directory behind it, and any object store.

A write is whole or not there, and durable when it returns; nothing else is asked of a store.
Knows nothing of topics, offsets or Parquet.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from millstream.archive.layout import LOCK_NAME
from millstream.archive.parquet import require_pyarrow
from millstream.base.disk import Disk, FileLock, RealDisk, read_file
from millstream.base.errors import Rejected, Retryable

T = TypeVar("T")

TEMPORARY_SUFFIX = ".tmp"


class BadPlace(Rejected):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(
            f"{place}: no place for an archive ({problem}). Give a directory, or an address such "
            "as s3://bucket/folder, gs://bucket/folder or file:///folder"
        )
        self.place, self.problem = place, problem


class StoreFailed(Retryable):
    """An object store did not do what it was asked; it may later."""

    def __init__(self, *, place: str, action: str, problem: str) -> None:
        super().__init__(
            f"{place}: {action} failed ({problem}). What was archived before is safe; run the "
            "command again when the store answers"
        )
        self.place, self.action = place, action


class ArchiveInUse(Rejected):
    def __init__(self, *, place: str, owner: str) -> None:
        super().__init__(
            f"{place} is being written by another command ({owner}): wait until it has ended"
        )
        self.place, self.owner = place, owner


class Store(Protocol):
    """Files by name, `/` between folders. `place` is how a person calls it.

    `has_lock` says whether `hold` keeps every other writer away.
    """

    place: str
    has_lock: bool

    def read(self, path: str) -> bytes | None:
        """The whole content, or None if there is no such file."""

    def write(self, path: str, content: bytes) -> None:
        """Whole or not at all, in place of what was there; durable when it returns."""

    def names(self, folder: str) -> list[str]:
        """Files and folders in a folder, sorted; none if it is not there."""

    def remove(self, path: str) -> None:
        """A file that is not there is fine."""

    def hold(self, folder: str) -> AbstractContextManager[None]:
        """Keep other writers of a folder away, as far as the store can."""


def open_store(place: str) -> Store:
    scheme = place.partition("://")[0] if "://" in place else ""
    if scheme in ("", "file"):
        path = Path(unquote(urlsplit(place).path) if scheme else place).expanduser()
        return DiskStore(RealDisk(), path.absolute(), place=place)
    require_pyarrow()
    from pyarrow import ArrowException
    from pyarrow.fs import FileSystem

    shown = without_secrets(place)
    try:
        filesystem, root = FileSystem.from_uri(place)
    except (ValueError, OSError, ArrowException) as error:
        problem = str(error).replace(place, shown)
        raise BadPlace(place=shown, problem=problem) from None
    return ObjectStore(filesystem, root, place=shown)


def without_secrets(place: str) -> str:
    """An address to be shown: no key in front of the bucket, no settings of the connection."""
    return re.sub(r"://[^/@]*@", "://", place.partition("?")[0])


class DiskStore:
    """A `Store` in a directory of the machine, by way of the `Disk` port."""

    has_lock = True

    def __init__(self, disk: Disk, root: Path, *, place: str | None = None) -> None:
        self._disk = disk
        self._root = root
        self._durable: set[Path] = set()
        self.place = place or str(root)

    def read(self, path: str) -> bytes | None:
        return read_file(self._disk, self._root / path)

    def write(self, path: str, content: bytes) -> None:
        target = self._root / path
        self._make_directories(target.parent)
        # Not `*.parquet.tmp`: what reads a folder of Parquet files skips only an underscore.
        temporary = target.with_name(f"_{target.name}{TEMPORARY_SUFFIX}")
        file = self._disk.open(temporary)
        try:
            file.truncate(0)
            file.append([content])
            file.sync()
        finally:
            file.close()
        self._disk.rename(temporary, target)
        self._disk.sync_directory(target.parent)

    def names(self, folder: str) -> list[str]:
        path = self._root / folder
        return sorted(self._disk.names(path)) if self._disk.exists(path) else []

    def remove(self, path: str) -> None:
        if self._disk.exists(self._root / path):
            self._disk.remove(self._root / path)

    @contextmanager
    def hold(self, folder: str) -> Iterator[None]:
        """A lock of the operating system: it ends with the process, however that ends."""
        self._make_directories(self._root / folder)
        lock = FileLock(self._root / folder / LOCK_NAME)
        try:
            if not lock.take():
                raise ArchiveInUse(place=f"{self.place}/{folder}", owner=lock.read_note())
            lock.note(f"process {os.getpid()}")
            yield
        finally:
            lock.release()

    def _make_directories(self, path: Path) -> None:
        """Also one that is there may be new to the device: its maker may have been killed."""
        if path in self._durable:
            return
        is_new = not self._disk.exists(path)
        if is_new or self._root in path.parents:
            self._make_directories(path.parent)
            self._disk.make_directory(path)
            self._disk.sync_directory(path.parent)
        self._durable.add(path)


class ObjectStore:
    """A `Store` on any file system of pyarrow: S3, Google's and Azure's, HDFS.

    An object appears when its upload is complete. There is no lock: writers notice one another
    by the manifest.
    """

    has_lock = False

    def __init__(self, filesystem: Any, root: str, *, place: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self.place = place.rstrip("/")

    def read(self, path: str) -> bytes | None:
        def read() -> bytes | None:
            try:
                with self._filesystem.open_input_file(self._path(path)) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

        return self._translated(f"reading {path}", read)

    def write(self, path: str, content: bytes) -> None:
        def write() -> None:
            with self._filesystem.open_output_stream(self._path(path)) as file:
                file.write(content)

        self._translated(f"writing {path}", write)

    def names(self, folder: str) -> list[str]:
        from pyarrow.fs import FileSelector

        selector = FileSelector(self._path(folder), allow_not_found=True)
        found = self._translated(
            f"listing {folder}", lambda: self._filesystem.get_file_info(selector)
        )
        return sorted(info.base_name for info in found)

    def remove(self, path: str) -> None:
        def remove() -> None:
            try:
                self._filesystem.delete_file(self._path(path))
            except FileNotFoundError:
                return

        self._translated(f"removing {path}", remove)

    @contextmanager
    def hold(self, folder: str) -> Iterator[None]:
        yield

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}".rstrip("/")

    def _translated(self, action: str, call: Callable[[], T]) -> T:
        from pyarrow import ArrowException

        try:
            return call()
        except (OSError, ArrowException) as error:
            reason = str(error).replace("\n", " ")
            raise StoreFailed(place=self.place, action=action, problem=reason) from None
