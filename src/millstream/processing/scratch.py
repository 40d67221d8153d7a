"""Directories for what Spark puts aside while it runs: shuffles, blocks, state on its way to a
checkpoint, unpacked libraries. Of the owner alone, and gone with the process.

    <parent>/spark-<process id>-<random>/     mode 0700; the process that made it holds its lock
        lock
        blockmgr-..., spark-..., ...          Spark's, which others might read if they got there

Spark makes these with modes that let everybody read, so the directory around them must not. What a
process left that was killed is removed by the next one: only a directory of this user, with such a
name, whose lock nobody holds, in this container or in another one that sees the same files.
Knows nothing of Spark's settings: session.py gives them the paths.
"""

import atexit
import os
import re
import shutil
import stat
import tempfile
import uuid
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

from millstream.base.disk import PRIVATE_MODE, FileLock, Unwritable, make_private_directories

LOCK: Final = "lock"
NAME: Final = re.compile(r"(millstream-)?spark-\d+-[0-9a-f]{32}")
# What a crash loop may have left is removed over several starts.
REMOVED_AT_ONCE_MAX: Final = 100
# Spark's settings are words with commas between paths.
UNFIT: Final = re.compile(r"[\s,\"'\\]")


class Scratch:
    """One such directory. Held by this process until it is closed, or ends."""

    def __init__(self, path: Path, lock: FileLock) -> None:
        self.path = path
        self._lock = lock

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def make_scratch(parent: Path, *, prefix: str = "") -> Scratch:
    """A new one; those that were left in `parent` are removed first. Raises Unwritable."""
    try:
        make_private_directories(parent)
        remove_left(parent)
        return _made(parent, f"{prefix}spark-{os.getpid()}-{uuid.uuid4().hex}")
    except OSError as error:
        raise Unwritable(path=parent, reason=os.strerror(error.errno or 0)) from error


def _made(parent: Path, name: str) -> Scratch:
    """It gets its name when it is held."""
    making = parent / f".{name}"
    making.mkdir(mode=PRIVATE_MODE)
    lock = FileLock(making / LOCK)
    lock.take()
    making.rename(parent / name)
    return Scratch(parent / name, lock)


def remove_left(parent: Path) -> None:
    """What is of processes that have ended."""
    left = (path for path in parent.iterdir() if NAME.fullmatch(path.name))
    for path in islice(left, REMOVED_AT_ONCE_MAX):
        if _is_our_directory(path) and _is_left(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_our_directory(path: Path) -> bool:
    """Not what somebody else put where all may write, nor a link to somewhere else."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _is_left(path: Path) -> bool:
    """Whether nobody holds it. One without a lock was half removed."""
    try:
        lock = FileLock(path / LOCK)
    except Unwritable:
        return False
    try:
        return lock.take()
    finally:
        lock.release()


@cache
def scratch_of_process() -> Path:
    """For Java itself, which keeps it as long as it runs: in the directory for temporary files."""
    made = make_scratch(Path(tempfile.gettempdir()), prefix="millstream-")
    atexit.register(made.close)
    return made.path


def is_fit(path: Path) -> bool:
    """Whether Spark can be given it."""
    return UNFIT.search(str(path)) is None
