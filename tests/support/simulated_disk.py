"""A disk in memory that knows what is durable, and can lose the rest.

    disk = SimulatedDisk()
    disk.cut_power_at(step=17)            # the 17th call that changes something raises PowerCut
    ...
    survivor = disk.after_power_cut(Survival.TORN, seed=3)

File data is durable as it was when the file was last synced; a name (create, rename, remove,
mkdir) once its directory was synced. What a power cut leaves of the rest is for `Survival` to say.
Can also fail syncs, and be full for a while. Does not model what file systems add to that, such as
keeping the order of renames: code that is right here is right on all of them.
"""

import errno
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from millstream.base.disk import Bytes, DiskFailed, DiskFile, DiskFull, FileGone, Unwritable

BLOCK_BYTES = (512, 4096)


class PowerCut(BaseException):
    """The machine stops here. Nothing catches it, as nothing runs any more."""


class Survival(Enum):
    """What a power cut leaves of what was not synced."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    NAMES = "names, but no data"
    DATA = "data, but no names"
    PREFIX = "of each file's new bytes some first ones; any names"
    TORN = "any blocks, and zeros for the others; any names"


@dataclass(eq=False)
class Inode:
    """The bytes of a file: as programs see them, and as they were last synced."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    # A sync failed: the kernel has dropped the pages, later syncs say nothing about them.
    is_lossy: bool = False


@dataclass(eq=False)
class Directory:
    """Names: as programs see them, as last synced, and the changes in between in order."""

    entries: dict[str, "Inode | Directory"] = field(default_factory=dict)
    durable: dict[str, "Inode | Directory"] = field(default_factory=dict)
    changes: list["Change"] = field(default_factory=list)


@dataclass(frozen=True)
class Change:
    """One change of names: `removed` goes, `added` now means `node`; kept or lost as a whole."""

    removed: str | None
    added: str | None
    node: Inode | Directory

    def apply(self, entries: dict[str, Inode | Directory]) -> None:
        if self.removed is not None:
            entries.pop(self.removed, None)
        if self.added is not None:
            entries[self.added] = self.node


class SimulatedDisk:
    """A `Disk`. Paths are absolute; every ancestor of `root` exists."""

    def __init__(self, root: Path, tree: Directory | None = None) -> None:
        self._root = root
        self._depth = len(root.parts)
        self._tree = tree or Directory()
        self.steps = 0
        self.syncs: list[Path] = []
        self._cut_at: int | None = None
        self._full_from: int | None = None
        self._must_fail_sync: Callable[[Path], bool] = lambda _path: False

    # --- faults -------------------------------------------------------------------------------

    def cut_power_at(self, step: int) -> None:
        self._cut_at = step

    def restore_power(self) -> None:
        """It was only the process that stopped: all it has written is there, synced or not."""
        self._cut_at = None

    def fill_at(self, step: int) -> None:
        """From this step on nothing that needs space succeeds, until `heal`."""
        self._full_from = step

    def fail_syncs(self, must_fail: Callable[[Path], bool]) -> None:
        self._must_fail_sync = must_fail

    def heal(self) -> None:
        self._full_from = None
        self._must_fail_sync = lambda _path: False

    def after_power_cut(self, survival: Survival, seed: int = 0) -> "SimulatedDisk":
        """Another disk, with what is left."""
        return SimulatedDisk(self._root, _Survivors(survival, seed).of_directory(self._tree))

    def copy(self) -> "SimulatedDisk":
        """Another disk with the same files, all of it durable: a stop of the process alone."""
        return self.after_power_cut(Survival.EVERYTHING)

    def content(self, path: Path) -> bytearray:
        """The bytes of a file, to be read or damaged by a test."""
        node = self._find(path)
        assert isinstance(node, Inode)
        return node.data

    def files(self) -> frozenset[tuple[Path, bytes | None]]:
        """All that a program can find on it; two disks with the same are the same to a program
        that starts. A directory has no bytes."""
        return frozenset(_files_in(self._tree, self._root))

    def step(self, path: Path, *, needs_space: bool = False, is_sync: bool = False) -> None:
        """Count a call that changes something, and let the faults happen that are due."""
        if self._cut_at is not None and self.steps >= self._cut_at:
            raise PowerCut
        self.steps += 1
        if needs_space and self._full_from is not None and self.steps >= self._full_from:
            raise DiskFull(path=path)
        if is_sync:
            self.syncs.append(path)
            if self._must_fail_sync(path):
                raise DiskFailed(path=path, action="sync", error=OSError(errno.EIO, "simulated"))

    # --- the port -----------------------------------------------------------------------------

    def open(self, path: Path) -> DiskFile:
        node = self._find(path)
        if isinstance(node, Directory):
            raise Unwritable(path=path, reason="Is a directory")
        if node is None:
            self.step(path, needs_space=True)
            node = Inode()
            self._change(path.parent, Change(None, path.name, node))
        return SimulatedFile(self, path, node)

    def open_existing(self, path: Path) -> DiskFile:
        node = self._find(path)
        if not isinstance(node, Inode):
            raise FileGone(path=path)
        return SimulatedFile(self, path, node)

    def names(self, directory: Path) -> list[str]:
        return list(self._directory(directory).entries)

    def exists(self, path: Path) -> bool:
        return self._find(path) is not None

    def make_directory(self, path: Path) -> None:
        if not self.exists(path):
            self.step(path, needs_space=True)
            self._change(path.parent, Change(None, path.name, Directory()))

    def remove_directory(self, path: Path) -> None:
        self.remove(path)

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "only within one directory"
        node = self._find(source)
        assert node is not None, f"{source} does not exist"
        self.step(source, needs_space=True)
        self._change(source.parent, Change(source.name, target.name, node))

    def remove(self, path: Path) -> None:
        node = self._find(path)
        assert node is not None, f"{path} does not exist"
        assert not (isinstance(node, Directory) and node.entries), f"{path} is not empty"
        self.step(path)
        self._change(path.parent, Change(path.name, None, node))

    def sync_directory(self, path: Path) -> None:
        self.step(path, is_sync=True)
        directory = self._directory(path)
        directory.durable = dict(directory.entries)
        directory.changes.clear()

    def free_bytes(self, path: Path) -> int:
        return 0 if self._full_from is not None else 1 << 40

    def _change(self, path: Path, change: Change) -> None:
        directory = self._directory(path)
        directory.changes.append(change)
        change.apply(directory.entries)

    def _directory(self, path: Path) -> Directory:
        node = self._find(path)
        assert isinstance(node, Directory), f"{path} is no directory"
        return node

    def _find(self, path: Path) -> Inode | Directory | None:
        node: Inode | Directory | None = self._tree
        for part in path.parts[self._depth :]:
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(part)
        return node


def _files_in(directory: Directory, path: Path) -> Iterator[tuple[Path, bytes | None]]:
    for name, node in directory.entries.items():
        if isinstance(node, Directory):
            yield path / name, None
            yield from _files_in(node, path / name)
        else:
            yield path / name, bytes(node.data)


class SimulatedFile:
    """A `DiskFile` of a SimulatedDisk."""

    def __init__(self, disk: SimulatedDisk, path: Path, inode: Inode) -> None:
        self.path = path
        self.size = len(inode.data)
        self._disk = disk
        self._inode = inode

    def append(self, chunks: Sequence[Bytes]) -> None:
        self._disk.step(self.path, needs_space=True)
        for chunk in chunks:
            self._inode.data += chunk
        self.size = len(self._inode.data)

    def read(self, position: int, size: int) -> Bytes:
        assert position >= 0
        assert size >= 0
        return bytes(self._inode.data[position : position + size])

    def read_cached(self, position: int, size: int) -> Bytes | None:
        return self.read(position, size)

    def overwrite(self, data: Bytes) -> None:
        self.truncate(0)
        self.append([data])

    def truncate(self, size: int) -> None:
        self._disk.step(self.path)
        del self._inode.data[size:]
        self.size = size

    def sync(self) -> None:
        try:
            self._disk.step(self.path, is_sync=True)
        except DiskFailed:
            self._inode.is_lossy = True
            raise
        if not self._inode.is_lossy:
            self._inode.durable = bytes(self._inode.data)

    def keep_open(self) -> None:
        pass

    def retire(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Survivors:
    """Makes the tree that a power cut leaves."""

    def __init__(self, survival: Survival, seed: int) -> None:
        self._survival = survival
        self._random = random.Random(seed)
        self._copies: dict[Inode, Inode] = {}

    def of_directory(self, directory: Directory) -> Directory:
        entries = dict(directory.durable)
        for change in directory.changes:
            if self._is_kept():
                change.apply(entries)
        found = {name: self._of_node(node) for name, node in entries.items()}
        return Directory(entries=found, durable=dict(found))

    def _of_node(self, node: Inode | Directory) -> Inode | Directory:
        if isinstance(node, Directory):
            return self.of_directory(node)
        if node not in self._copies:
            data = self._data(bytes(node.data), node.durable)
            self._copies[node] = Inode(data=bytearray(data), durable=data)
        return self._copies[node]

    def _is_kept(self) -> bool:
        match self._survival:
            case Survival.NOTHING | Survival.DATA:
                return False
            case Survival.EVERYTHING | Survival.NAMES:
                return True
        return self._random.random() < 0.5

    def _data(self, written: bytes, durable: bytes) -> bytes:
        match self._survival:
            case Survival.NOTHING | Survival.NAMES:
                return durable
            case Survival.EVERYTHING | Survival.DATA:
                return written
            case Survival.PREFIX:
                return self._prefix(written, durable)
        return self._torn(written, durable)

    def _prefix(self, written: bytes, durable: bytes) -> bytes:
        if not written.startswith(durable):  # it was cut or replaced: one or the other
            return self._random.choice([written, durable])
        return written[: self._random.randint(len(durable), len(written))]

    def _torn(self, written: bytes, durable: bytes) -> bytes:
        block = self._random.choice(BLOCK_BYTES)
        size = self._random.choice([len(written), len(durable), max(len(written), len(durable))])
        out = bytearray()
        for start in range(0, size, block):
            source = self._random.choice([written, durable])
            out += source[start : start + block].ljust(block, b"\0")
        return bytes(out[:size])
