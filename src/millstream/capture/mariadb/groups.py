"""The events of one transaction, gathered until it ends; on disk once they are many.

Events are kept as they came and decoded when the transaction is handed over, row by row, so that
memory holds no more of a big one than `MEMORY_BYTES_MAX` at any time.
"""

import contextlib
import struct
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import IO, Final

from millstream.capture.change import CREATED, DELETED, TRUNCATED, UPDATED, CapturedTable, Change
from millstream.capture.mariadb.binlog_event import DELETES, UPDATES, WRITES, read_rows
from millstream.capture.mariadb.row_decoder import BadRow, ReadRow
from millstream.capture.source import SourceInterrupted

MEMORY_BYTES_MAX: Final = 8 * 1024 * 1024
#   shape  uint32, type  uint8, size  uint32, then the event's body
SPOOLED: Final = struct.Struct("<IBI")


@dataclass(frozen=True, slots=True, eq=False)
class TableShape:
    """A version of a captured table, and how its rows are read."""

    table: CapturedTable
    read_row: ReadRow


class SpoolUnwritable(SourceInterrupted):
    """Most likely the disk is full. The transaction comes again, from its start."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(
            f"a big transaction cannot be kept in {tempfile.gettempdir()} until it is read: "
            f"{reason}. Make room there, or start the capture with another TMPDIR"
        )
        self.reason = reason


class Group:
    """What one transaction did to captured tables. `close` it, or iterate to its end."""

    def __init__(self, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self.reloads: list[str] = []
        self.truncated: list[CapturedTable] = []
        self._memory: list[tuple[TableShape, int, bytes]] = []
        self._memory_bytes, self._memory_bytes_max = 0, memory_bytes_max
        self._shapes: dict[TableShape, int] = {}
        self._spool: IO[bytes] | None = None
        self._offsets = array("Q")  # of the events in the spool

    @property
    def is_empty(self) -> bool:
        return not (self._memory or self._offsets or self.reloads or self.truncated)

    def add(self, shape: TableShape, kind: int, body: bytes) -> None:
        self._memory.append((shape, kind, body))
        self._memory_bytes += len(body)
        if self._memory_bytes > self._memory_bytes_max:
            self._flush()

    def reload(self, table: str) -> None:
        if table not in self.reloads:
            self.reloads.append(table)

    def mark(self) -> int:
        """A place to come back to."""
        return len(self._offsets) + len(self._memory)

    def truncate_to(self, mark: int) -> None:
        """Forget what came after the mark: it was rolled back to a savepoint."""
        if mark >= len(self._offsets):
            del self._memory[mark - len(self._offsets) :]
            return
        assert self._spool is not None
        self._memory.clear()
        self._memory_bytes = 0
        self._spool.truncate(self._offsets[mark])
        del self._offsets[mark:]

    def changes(self) -> Iterator[Change]:
        """Once, in the order of the transaction."""
        try:
            for table in self.truncated:
                yield Change(table, TRUNCATED, None, None, None)
            for shape, kind, body in self._events():
                data, at = read_rows(kind, body)
                yield from checked(shape, READERS[kind](shape, data, at))
        finally:
            self.close()

    def close(self) -> None:
        self._memory.clear()
        if self._spool is not None:
            with contextlib.suppress(OSError):  # a full disk; what was in it is not needed
                self._spool.close()

    def _events(self) -> Iterable[tuple[TableShape, int, bytes]]:
        return self._memory if self._spool is None else chain(self._spooled(), self._memory)

    def _spooled(self) -> Iterator[tuple[TableShape, int, bytes]]:
        assert self._spool is not None
        shapes = list(self._shapes)
        self._spool.seek(0)
        for _ in self._offsets:
            number, kind, size = SPOOLED.unpack(self._spool.read(SPOOLED.size))
            yield shapes[number], kind, self._spool.read(size)

    def _flush(self) -> None:
        try:
            self._move_to_disk()
        except OSError as error:
            raise SpoolUnwritable(reason=str(error)) from error

    def _move_to_disk(self) -> None:
        if self._spool is None:
            self._spool = tempfile.TemporaryFile(prefix="millstream-binlog-")  # noqa: SIM115
        at = self._spool.seek(0, 2)
        for shape, kind, body in self._memory:
            number = self._shapes.setdefault(shape, len(self._shapes))
            self._offsets.append(at)
            self._spool.write(SPOOLED.pack(number, kind, len(body)))
            self._spool.write(body)
            at += SPOOLED.size + len(body)
        self._spool.flush()
        self._memory.clear()
        self._memory_bytes = 0


def checked(shape: TableShape, changes: Iterator[Change]) -> Iterator[Change]:
    try:
        yield from changes
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise BadRow(f"{shape.table.name}: rows of the binlog cannot be read: {error}") from error


def _created(shape: TableShape, data: bytes, at: int) -> Iterator[Change]:
    table, read_row, end = shape.table, shape.read_row, len(data)
    while at < end:
        at, key, row = read_row(data, at)
        yield Change(table, CREATED, key, None, row)


def _deleted(shape: TableShape, data: bytes, at: int) -> Iterator[Change]:
    table, read_row, end = shape.table, shape.read_row, len(data)
    while at < end:
        at, key, row = read_row(data, at)
        yield Change(table, DELETED, key, row, None)


def _updated(shape: TableShape, data: bytes, at: int) -> Iterator[Change]:
    table, read_row, end = shape.table, shape.read_row, len(data)
    while at < end:
        at, old_key, before = read_row(data, at)
        at, key, after = read_row(data, at)
        if key == old_key:
            yield Change(table, UPDATED, key, before, after)
        else:
            yield Change(table, DELETED, old_key, before, None)
            yield Change(table, CREATED, key, None, after)


READERS: Final[Mapping[int, Callable[[TableShape, bytes, int], Iterator[Change]]]] = {
    **dict.fromkeys(WRITES, _created),
    **dict.fromkeys(UPDATES, _updated),
    **dict.fromkeys(DELETES, _deleted),
}
