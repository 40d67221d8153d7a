"""Makes durable what the output of a batch depends on. Spark writes checkpoints and syncs nothing.

    Spark writes offsets/N    what batch N reads
    sync_plan                 that file, commits/N-1, and every directory on the way to them
    the output commits        rows and receipt of batch N
    sync_state                the state after batch N, and what else is new
    Spark writes commits/N    from now on the next start begins with batch N + 1

So after a power cut a receipt never speaks of a plan that is gone, and a batch that counts as done
has its state. Checkpoints on another storage than a local disk are left to that storage.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.base.disk import Disk, FileGone, RealDisk
from millstream.processing.reading.offset_log import COMMITS, OFFSETS, local_path
from millstream.processing.writing.batch_log import METADATA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WriteBatch = Callable[["DataFrame", int], None]

STATE = "state"
# State of a version, with its checksum: 12.changelog and .12.changelog.crc. A snapshot (12.zip) is
# written later, by a thread of Spark's, whatever version the job is at.
CHANGELOG = re.compile(r"\.?(\d+)\.(?:changelog|delta)(?:\.crc)?")
# From the checkpoint up: the job's directory, the directory of jobs, and that of the application.
PARENTS = 3


def sync_plan(checkpoint: str | Path, batch: int, disk: Disk | None = None) -> None:
    """Before the output of the batch commits: its range, the name of the checkpoint, and that the
    batch before is done."""
    if (local := local_path(str(checkpoint))) is None:
        return
    root, disk = Path(local), disk or RealDisk()
    files = [root / METADATA, root / OFFSETS / str(batch), root / COMMITS / str(batch - 1)]
    for path in files:
        _sync_file(disk, path)
        _sync_file(disk, path.with_name(f".{path.name}.crc"))  # Hadoop's, beside each file
    for directory in (*{path.parent: None for path in files}, *list(root.parents)[:PARENTS]):
        if directory.is_dir():  # `commits` is made after the first batch
            disk.sync_directory(directory)


def sync_state(checkpoint: str | Path, batch: int, disk: Disk | None = None) -> None:
    """Before Spark counts the batch as done: the state after it, and all that is newer than the
    plan of the batch before, which was written before the last call."""
    if (local := local_path(str(checkpoint))) is None:
        return
    root, disk = Path(local), disk or RealDisk()
    since_ns = _written_ns(root / OFFSETS / str(batch - 1))
    directories: set[Path] = set()
    for path in _new_files(root / STATE, version=batch + 1, since_ns=since_ns):
        _sync_file(disk, path)
        directories.update(parent for parent in path.parents if parent.is_relative_to(root))
    for directory in sorted(directories):
        disk.sync_directory(directory)


def between_syncs(checkpoint: str | Path, write: WriteBatch) -> WriteBatch:
    """What `foreachBatch` is to call, so that the order above holds."""

    def write_durably(batch: "DataFrame", number: int) -> None:
        sync_plan(checkpoint, number)
        write(batch, number)
        sync_state(checkpoint, number)

    return write_durably


def _sync_file(disk: Disk, path: Path) -> None:
    """One that is not there, or that Spark has removed meanwhile, is not needed."""
    try:
        file = disk.open_existing(path)
    except FileGone:
        return
    try:
        file.sync()
    finally:
        file.close()


def _new_files(directory: Path, *, version: int, since_ns: int) -> Iterator[Path]:
    for entry in _entries(directory):
        if entry.is_dir(follow_symlinks=False):
            yield from _new_files(Path(entry.path), version=version, since_ns=since_ns)
        elif found := CHANGELOG.fullmatch(entry.name):
            if int(found[1]) >= version:
                yield Path(entry.path)
        elif _written_ns(entry.path) >= since_ns:
            yield Path(entry.path)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except FileNotFoundError:  # no state, or removed meanwhile
        return []


def _written_ns(path: str | Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
