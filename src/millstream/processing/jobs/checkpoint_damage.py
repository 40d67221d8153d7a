"""Looks at a job's checkpoint before Spark does: a torn end is cut off, other damage is an error.

A power cut can tear what was not synced: the plan of a batch whose output did not commit, and the
note that a batch is done (writing/checkpoint_sync.py has the order). Nothing depends on these two,
so they are removed, and Spark plans or repeats that batch. Nor on a snapshot of the state, which a
thread of Spark's writes when it likes, while the changes that it sums up are there. Every other
file was synced before something was built on it: if it is damaged, the error names it and the next
command.

Hadoop writes a checksum beside each file on a local disk:

    b"crc\\0"          4 bytes
    bytes per sum     uint32, big-endian
    CRC-32 sums       uint32 each, big-endian, one for so many bytes of the file
"""

import re
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path

from millstream.base.disk import RealDisk
from millstream.base.errors import Corrupt
from millstream.processing.reading.offset_log import COMMITS, OFFSETS
from millstream.processing.writing.batch_log import METADATA
from millstream.processing.writing.checkpoint_sync import STATE

CHECKSUM_MAGIC = b"crc\0"
CHECKSUM_HEADER = struct.Struct(">4sI")
VERSIONED = re.compile(r"(\d+)\.(changelog|delta|zip|snapshot)")
SNAPSHOTS = ("zip", "snapshot")


class CheckpointDamaged(Corrupt):
    def __init__(self, *, job: str, path: Path, problem: str) -> None:
        super().__init__(
            f"Job {job} cannot start from its checkpoint: {path} {problem}. Put back a copy of the "
            "checkpoint (`millstream state restore`), or build the job's output from the start of "
            f"its topics: `millstream run APP_FILE --rebuild {job}`"
        )
        self.job, self.path, self.problem = job, path, problem


def make_whole(job: str, checkpoint: Path) -> None:
    """Cut off a torn end; raises `CheckpointDamaged` if that is not all."""
    planned, done = _numbers(checkpoint / OFFSETS), _numbers(checkpoint / COMMITS)
    while done and problem_of(checkpoint / COMMITS / str(done[-1])):
        _remove(checkpoint / COMMITS / str(done.pop()))
    if planned and planned[-1] not in done and problem_of(checkpoint / OFFSETS / str(planned[-1])):
        _remove(checkpoint / OFFSETS / str(planned.pop()))
    if planned:
        _drop_torn_snapshots(checkpoint, _version(planned, done))
    else:
        _begin_again(checkpoint)
    for path in _needed(checkpoint, planned, done):
        if problem := problem_of(path):
            raise CheckpointDamaged(job=job, path=path, problem=problem)


def problem_of(path: Path) -> str | None:
    """What is wrong with a file of a checkpoint, in words that follow its name."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return "is missing"
    if not content:
        return "is empty"
    sums = _sums_of(path)
    return None if sums is None or sums == _sums(content, *sums[:1]) else "has damaged content"


def _needed(checkpoint: Path, planned: list[int], done: list[int]) -> Iterator[Path]:
    """What Spark reads when it starts; of the state, what came after the last snapshot.

    Version N of the state is from before batch N: later ones are written again with the batch.
    """
    if not planned:
        return
    yield checkpoint / METADATA
    for number in planned[-1:] + ([planned[-1] - 1] if planned[-1] > 0 else []):
        yield checkpoint / OFFSETS / str(number)
    version = _version(planned, done)
    for directory in _state_directories(checkpoint):
        yield from _state_files(directory, version)


def _version(planned: list[int], done: list[int]) -> int:
    return planned[-1] + (planned[-1] in done)


def _state_directories(checkpoint: Path) -> list[Path]:
    return sorted(path for path in (checkpoint / STATE).rglob("*") if path.is_dir())


def _state_files(directory: Path, version: int) -> Iterator[Path]:
    there = _versions(directory, version)
    last = max(_snapshots(there), default=-1)
    yield from sorted(path for path, (number, _) in there.items() if number >= last)


def _versions(directory: Path, version: int) -> dict[Path, tuple[int, str]]:
    """The files of the state up to a version: of which version each is, and what it is."""
    found = {path: VERSIONED.fullmatch(path.name) for path in directory.iterdir()}
    there = {path: (int(match[1]), match[2]) for path, match in found.items() if match}
    return {path: one for path, one in there.items() if one[0] <= version}


def _snapshots(there: Mapping[Path, tuple[int, str]]) -> dict[int, Path]:
    return {number: path for path, (number, kind) in there.items() if kind in SNAPSHOTS}


def _drop_torn_snapshots(checkpoint: Path, version: int) -> None:
    """Those that Spark can do without: it takes the one before, or none, and all changes since."""
    for directory in _state_directories(checkpoint):
        there = _versions(directory, version)
        snapshots = sorted(_snapshots(there).items(), reverse=True)
        torn = [*takewhile(lambda one: problem_of(one[1]), snapshots)]
        before = snapshots[len(torn)][0] if len(torn) < len(snapshots) else 0
        changes = {number for number, kind in there.values() if kind not in SNAPSHOTS}
        if changes.issuperset(range(before + 1, version + 1)):
            for _, path in torn:
                _remove(path)


def _begin_again(checkpoint: Path) -> None:
    """No batch was planned: Spark wants to find no state then, nor a name that it cannot read."""
    shutil.rmtree(checkpoint / STATE, ignore_errors=True)
    if (checkpoint / METADATA).exists() and problem_of(checkpoint / METADATA):
        _remove(checkpoint / METADATA)


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal())


def _remove(path: Path) -> None:
    disk = RealDisk()
    for one in (path, _checksum_of(path)):
        if one.exists():
            disk.remove(one)
    disk.sync_directory(path.parent)


def _checksum_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def _sums_of(path: Path) -> tuple[int, ...] | None:
    """How many bytes have one sum, then the sums; None if they are not there, or torn."""
    try:
        content = _checksum_of(path).read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < CHECKSUM_HEADER.size or not content.startswith(CHECKSUM_MAGIC):
        return None
    _, size = CHECKSUM_HEADER.unpack_from(content)
    count = (len(content) - CHECKSUM_HEADER.size) // 4
    sums = struct.unpack_from(f">{count}I", content, CHECKSUM_HEADER.size)
    return (size, *sums) if size else None


def _sums(content: bytes, size: int) -> tuple[int, ...]:
    parts = (content[at : at + size] for at in range(0, len(content), size))
    return (size, *(zlib.crc32(part) for part in parts))
