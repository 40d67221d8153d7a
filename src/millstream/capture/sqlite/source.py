"""SQLite as a source of changes: looks for new ones, cuts them into transactions, hands them over.

SQLite tells nobody of a commit: the source asks every few milliseconds for a number that changes
with each (`PRAGMA data_version`), which costs microseconds. A position is the number of the last
change before it.

Does not see: writers that switch triggers off, and tables of attached files.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from millstream.capture.change import CapturedTable, Change, Quiet, Transaction
from millstream.capture.source import Finding, Lag, SourceLost, require_fit
from millstream.capture.sqlite.catalogue import read_shape, schema_version
from millstream.capture.sqlite.change_decoding import ChangeDecoder
from millstream.capture.sqlite.change_table import ChangeTable, Mark
from millstream.capture.sqlite.checks import findings
from millstream.capture.sqlite.connection import (
    connect,
    patience,
    suppressed_if_busy,
    transaction,
    translated,
)
from millstream.capture.sqlite.loading import SqliteLoader
from millstream.capture.sqlite.shape import SCHEMA, Shape, captured_table
from millstream.capture.sqlite.stored_values import key_values
from millstream.capture.sqlite.trigger_sql import Names, deleting
from millstream.capture.table_names import split_name
from millstream.capture.table_versions import TableVersions

LOOK_EVERY_S = 0.005
QUIET_SECONDS = 1.0
# So long is one that writes waited for before something else is done.
PATIENCE_S = 0.5
NOT_SEEN = -1


class ChangesGone(SourceLost):
    def __init__(self, *, path: Path, capture: str, position: str, problem: str) -> None:
        super().__init__(
            f"{path}: changes after {position} are not there: {problem}. `millstream capture "
            f"reload {capture}` begins with the file as it is, and loads all tables anew"
        )
        self.path, self.capture, self.position = path, capture, position


class SqliteSource:
    """`tables`: names, with "main." before them or without. `topic_of` takes the full name."""

    kind = "sqlite"

    def __init__(
        self,
        path: Path,
        *,
        capture: str,
        tables: Sequence[str],
        topic_of: Callable[[str], str],
        known: Iterable[CapturedTable] = (),
    ) -> None:
        self.database = path.stem
        self.quiet_seconds = QUIET_SECONDS
        self._path, self._names, self._topic_of = path, Names(capture), topic_of
        self._tables = [_bare(table) for table in tables]
        self._versions = TableVersions(known)
        with translated(path, capture):
            self._db = connect(path)
        self._changes = ChangeTable(self._db, self._names)
        self._ends: deque[int] = deque()
        self._seen = NOT_SEEN
        self._confirmed = self._forgotten = 0

    def check(self) -> list[Finding]:
        with translated(self._path, self._names.capture):
            return findings(self._db, self._tables)

    def prepare(self) -> str:
        require_fit(self._names.capture, self.check(), cannot="begin")
        with translated(self._path, self._names.capture), transaction(self._db, writing=True):
            self._changes.create()
            self._changes.renew_triggers(self._tables)
            return str(self._changes.mark())

    def position_now(self) -> str:
        with translated(self._path, self._names.capture):
            return str(self._changes.last_id())

    def tables(self) -> list[CapturedTable]:
        with translated(self._path, self._names.capture):
            shapes = [read_shape(self._db, table) for table in self._tables]
        return [self._captured(shape) for shape in shapes if shape is not None]

    def _captured(self, shape: Shape) -> CapturedTable:
        topic = self._topic_of(f"{SCHEMA}.{shape.table}")
        return self._versions.of(captured_table(shape, topic))

    def stream(self, after: str) -> Iterator[Transaction | Quiet]:
        place, self._seen = int(after), NOT_SEEN
        with translated(self._path, self._names.capture):
            self._require(place)
            while True:
                with suppressed_if_busy():  # a long transaction of another: look again later
                    self._cut_transactions()
                for mark in self._changes.marks(place):
                    yield from self._transactions(place, mark)
                    place = mark.id
                yield Quiet(resume=str(place))
                with suppressed_if_busy():
                    self._await_news()

    def _require(self, place: int) -> None:
        """Changes after this place were not forgotten, and it is none of another file."""
        if not self._changes.is_there:
            raise self._gone(place, "its tables were dropped")
        if place < self._changes.confirmed():
            raise self._gone(place, f"all up to {self._changes.confirmed()} was confirmed")
        if place > self._changes.last_id():
            raise self._gone(place, "the file is older than that, or another")

    def _gone(self, place: int, problem: str) -> ChangesGone:
        return ChangesGone(
            path=self._path, capture=self._names.capture, position=str(place), problem=problem
        )

    def _data_version(self) -> int:
        found: int = self._db.execute("PRAGMA data_version").fetchone()[0]
        return found

    def _cut_transactions(self) -> None:
        """Marks where the changes so far end, if something happened since the last time."""
        with patience(self._db, PATIENCE_S):
            version = self._data_version()  # first: what comes meanwhile is seen next time
            if version != self._seen and self._has_news():
                with transaction(self._db, writing=True):
                    self._changes.mark(self._taken_ends(), self._renewed())
                    self._forget()
        self._seen = version

    def _taken_ends(self) -> list[int]:
        return [self._ends.popleft() for _ in range(len(self._ends))]

    def _has_news(self) -> bool:
        if not self._changes.is_there:
            raise self._gone(self._confirmed, "its tables were dropped")
        return self._is_renewed() or self._changes.last_id() != self._changes.last_mark()

    def _is_renewed(self) -> bool:
        return schema_version(self._db) != self._changes.schema_version()

    def _renewed(self) -> set[str]:
        """The tables that are to be loaded anew, as they changed in more than their rows."""
        return self._changes.renew_triggers(self._tables) if self._is_renewed() else set()

    def _transactions(self, after: int, mark: Mark) -> Iterator[Transaction]:
        """One; none if nothing but notes lies before the mark."""
        changes = self._between(after, mark.id)
        first = list(islice(changes, 1))
        if first or mark.reloads:
            yield Transaction(
                commit=str(mark.id),
                resume=str(mark.id),
                id=str(mark.id),
                at_ms=mark.at_ms,
                changes=chain(first, changes),
                reloads=tuple(f"{SCHEMA}.{table}" for table in mark.reloads),
            )

    def _between(self, after: int, until: int) -> Iterator[Change]:
        decoder = ChangeDecoder(self._changes.shape, self._captured)
        with translated(self._path, self._names.capture):
            for stored in self._changes.between(after, until):
                yield from decoder.changes(stored)

    def _await_news(self) -> None:
        deadline = time.monotonic() + self.quiet_seconds
        with patience(self._db, PATIENCE_S):
            while self._data_version() == self._seen and time.monotonic() < deadline:
                if self._forgotten < self._confirmed:
                    with transaction(self._db, writing=True):
                        self._forget()
                time.sleep(LOOK_EVERY_S)

    def is_past(self, position: str, other: str) -> bool:
        return int(position) >= int(other)

    def confirm(self, position: str) -> None:
        """What is confirmed is deleted by the stream, when it writes anyway or is quiet."""
        self._confirmed = max(self._confirmed, int(position))

    def _forget(self) -> None:
        if self._forgotten < self._confirmed and self._changes.forget_until(self._confirmed):
            self._forgotten = self._confirmed

    def add_tables(self, names: Sequence[str]) -> None:
        added = [_bare(table) for table in names if _bare(table) not in self._tables]
        with translated(self._path, self._names.capture):
            unfit = findings(self._db, added)
            require_fit(self._names.capture, unfit, cannot=f"take {', '.join(added)}")
            with transaction(self._db, writing=True):
                self._changes.mark(reloads=self._changes.renew_triggers(self._tables))
                self._changes.renew_triggers(added)
        self._tables += added
        self._seen = NOT_SEEN  # its own writes do not change what it looks at

    def lag(self, position: str) -> Lag:
        """SQLite does not tell sizes of parts of a file."""
        return Lag(bytes=None, retained_bytes=None)

    def loader(self) -> SqliteLoader:
        return SqliteLoader(self._path, self._names, self._ends, self._captured)

    def delete_rows(self, table: CapturedTable, keys: Sequence[bytes]) -> None:
        """Of an outbox. Keys are as in changes."""
        with translated(self._path, self._names.capture), transaction(self._db, writing=True):
            shape = read_shape(self._db, _bare(table.name))
            if shape is not None:
                self._db.executemany(deleting(shape), [key_values(shape, key) for key in keys])
        self._seen = NOT_SEEN

    def drop(self) -> None:
        with translated(self._path, self._names.capture), transaction(self._db, writing=True):
            self._changes.drop()

    def close(self) -> None:
        self._db.close()


def _bare(table: str) -> str:
    """A dot is part of the name, but after "main": a capture has one file."""
    is_whole = not table.startswith((f"{SCHEMA}.", '"'))
    return table if is_whole else split_name(table, SCHEMA)[1]
