"""One load of one table: its lanes of chunks, its sweep, and what it asks for. Pure.

course.py decides when; here is what there is to decide on.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.capture.change import CapturedTable
from millstream.capture.load.plan import TableLoad, chunk_rows
from millstream.capture.load.window import Opening, Window
from millstream.capture.source import Chunk

# Keys that may change while a topic is read to its end, at some 100 bytes each.
TOUCHED_MAX: Final = 500_000


class LeftKeys(Protocol):
    """Keys that a topic holds and a load did not write again; too many for memory."""

    def take(self, count: int) -> list[bytes]:
        """Some of them, that are gone from here then."""
        ...

    def discard(self, key: bytes) -> None: ...

    def close(self) -> None: ...


class Sweep:
    """From its beginning on every key that the stream touches is left alone."""

    def __init__(self) -> None:
        self.is_committed = False  # what was written before its beginning
        self.is_asked = False
        self.left: LeftKeys | None = None
        self._touched: set[bytes] | None = set()  # until `left` is there; None: too many

    def leave_alone(self, key: bytes) -> None:
        if self.left is not None:
            self.left.discard(key)
        elif self._touched is not None:
            self._touched.add(key)
            if len(self._touched) > TOUCHED_MAX:
                self._touched = None

    def found(self, left: LeftKeys) -> bool:
        """The keys that the topic held; False if nobody knows what was touched meanwhile."""
        if self._touched is None:
            return False
        for key in self._touched:
            left.discard(key)
        self.left, self._touched = left, None
        return True


class Lane:
    """The chunks of one range, in their order. One is being read at a time."""

    def __init__(self, after: str | None, until: str | None, *, is_read: bool) -> None:
        self.until = until
        self.after = after  # where the next read begins
        self.is_read = is_read  # to its end
        self.must_wait = False  # a moment, before it reads again
        self.reads: deque[Read] = deque()

    @property
    def is_reading(self) -> bool:
        return bool(self.reads) and self.reads[-1].window.chunk is None

    def go_back_to(self, read: "Read") -> None:
        """This chunk and all behind it are read again."""
        self.after, self.is_read, self.must_wait = read.after, False, True
        while read in self.reads:
            self.reads.pop()


class TableCourse:
    """One load of one table. A reload has another one, so answers to this are told apart."""

    def __init__(self, table: CapturedTable, load: TableLoad) -> None:
        self.table, self.load = table, load
        self.is_saved = True
        self.is_splitting = False
        self.sweep: Sweep | None = None
        self.rows_read, self.bytes_read = 0, 0
        self.lanes = lanes_of(load)

    def windows(self) -> Iterator[Window]:
        return (read.window for lane in self.lanes for read in lane.reads)

    def keep(self, load: TableLoad) -> None:
        self.load, self.is_saved = load, False

    def rows_next(self, rows_max: int) -> int:
        return chunk_rows(rows_max, rows_read=self.rows_read, bytes_read=self.bytes_read)

    def weigh(self, chunk: Chunk) -> None:
        self.rows_read += len(chunk.rows)
        self.bytes_read += sum(len(after) for _, after in chunk.rows)


def lanes_of(load: TableLoad) -> list[Lane]:
    return [Lane(one.after, one.until, is_read=one.is_done) for one in load.ranges]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Ask to wait until snapshots see all that is in the database's log now of these tables."""

    opening: Opening
    tables: tuple[CapturedTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Ask for the parts of a table, and for how many rows it may have."""

    course: TableCourse
    table: CapturedTable
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Read:
    """Ask for a chunk, of a snapshot that is taken from now on."""

    lane: Lane
    course: TableCourse
    window: Window
    table: CapturedTable
    after: str | None
    until: str | None
    rows_max: int
    must_wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Ask for the keys in a topic whose newest committed record is before `ends`."""

    course: TableCourse
    sweep: Sweep
    topic: str
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The answer to `Split`."""

    parts: Sequence[tuple[str | None, str | None]]
    rows_estimate: int


Ask = Settle | Split | Read | Scan
Answer = Parts | Chunk | LeftKeys | None
