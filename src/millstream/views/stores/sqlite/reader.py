"""Reads a view from its SQLite file, from any process, also while its job writes.

    view.get("ada")                                  one row, or None
    view.get((start, end), "/home")                  a key of several columns, one of them a window
    view.get({"url": "/home", "window": {...}})      the same by name
    view.range(("2026-07-01",), ("2026-07-31",))     rows by key, also by the first parts of it
    view.scan(where={"url": "/home", "count >=": 5}, order_by=["-count"], limit=10)

Every call sees the view as of one batch of its job. Writes nothing. A file that was removed or
made anew is noticed at the next call.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.base.positions import Positions, positions_from
from millstream.base.schema import Schema
from millstream.views.conditions import require_limit
from millstream.views.moment_reads import MomentReads
from millstream.views.store import Row, ViewNotFound
from millstream.views.stores.sqlite.questions import BY_VALUE, Questions
from millstream.views.stores.sqlite.store import (
    BUSY_SECONDS_MAX,
    FileId,
    file_at,
    has_tables,
    layout_from,
    require_view,
    rows_table,
    translated,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.views.feeds import Feed
    from millstream.views.history import Span
    from millstream.views.stores.sqlite.changes import PastReader

READ = """
SELECT generation, key, schema, positions FROM _generations
WHERE CASE WHEN ?1 IS NULL THEN served = 1 ELSE generation = ?1 END
"""
# Connections that wait for the next question; more are open only while more threads ask at once.
IDLE_MAX = 8


class SqliteMoment:
    """A view as of one batch of its job: what is asked of it belongs together."""

    def __init__(
        self, db: sqlite3.Connection, questions: Questions, positions: str, *, generation: int
    ) -> None:
        self.db, self.questions, self.generation = db, questions, generation
        self._positions = positions

    @property
    def schema(self) -> Schema:
        return self.questions.layout.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self.questions.layout.key

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        asked, found = self.questions, []
        for key in keys:
            row = self.db.execute(asked.by_key, asked.key_values(key)).fetchone()
            found.append(None if row is None else asked.read(row))
        return found

    def range(self, first: Any = None, last: Any = None, *, limit: int | None = None) -> list[Row]:
        require_limit(limit)
        return self._rows(*self.questions.in_range(first, last, limit))

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        require_limit(limit)
        return self._rows(*self.questions.scanned(where, order_by, limit))

    def _rows(self, text: str, values: Sequence[Any]) -> list[Row]:
        return [self.questions.read(row) for row in self.db.execute(text, values)]

    def count(self) -> int:
        ((found,),) = self.db.execute(f"SELECT count(*) FROM {self.questions.source}")
        return int(found)

    def position(self) -> Positions:
        return positions_from(json.loads(self._positions))

    def arrow(self) -> "pa.Table":
        """All rows, in no order, each column as the schema says."""
        from millstream.views.stores.sqlite.arrow import arrow_table

        return arrow_table(self.questions.layout, self.db.execute(self.questions.select).fetchall())


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A connection, and the file that it reads: its path may lead to another one by now."""

    db: sqlite3.Connection
    file: FileId


class ViewReader(MomentReads):
    """A `ViewReads`. Thread-safe, threads do not wait for one another; close it when done."""

    def __init__(self, path: Path, *, view: str, generation: int | None = None) -> None:
        """Of the generation that is served, whichever that is then; or of this one."""
        self.path, self.view, self._generation = path, view, generation
        self._lock = threading.Lock()
        self._idle: list[OpenFile] = []
        self._known: dict[tuple[Any, ...], Questions] = {}

    def arrow(self) -> "pa.Table":
        with self.moment() as now:
            return now.arrow()

    def as_of(self, *, version: int | None = None, time: datetime | None = None) -> "PastReader":
        """The view as it was; it must be declared with a history."""
        from millstream.views.stores.sqlite.changes import past_reader

        return past_reader(self, version=version, time=time)

    def versions(self) -> "Span":
        """Those that are kept."""
        from millstream.views.stores.sqlite.changes import span_kept

        return span_kept(self)

    def feed(self) -> "Feed":
        """The view's changes, for all in this process that subscribe to it."""
        from millstream.views.stores.sqlite.changes import feed_of

        return feed_of(self.path, view=self.view)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for one in idle:
            one.db.close()

    @contextmanager
    def moment(self) -> Iterator[SqliteMoment]:
        """What is read inside belongs together."""
        with translated(self.path), self._connected() as db:
            db.execute("BEGIN")
            try:
                found = self._facts(db)
                if found is None:
                    raise ViewNotFound(view=self.view, place=self.path)
                *facts, positions = found
                questions = self._questions(tuple(facts))
                yield SqliteMoment(db, questions, positions, generation=facts[0])
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def _facts(self, db: sqlite3.Connection) -> tuple[Any, ...] | None:
        try:
            found: tuple[Any, ...] | None = db.execute(READ, (self._generation,)).fetchone()
        except sqlite3.OperationalError:
            if has_tables(db):
                raise
            return None  # it is being dropped
        return found

    def _questions(self, facts: tuple[Any, ...]) -> Questions:
        known = self._known.get(facts)
        if known is None:
            generation, key, schema = facts
            known = Questions(layout_from(self.view, key, schema), rows_table(generation))
            self._known = {facts: known}
        return known

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        one = self._taken()
        try:
            yield one.db
        finally:
            self._put_back(one)

    def _taken(self) -> OpenFile:
        file = file_at(self.path)
        while (idle := self._next_idle()) is not None:
            if idle.file == file:
                return idle
            idle.db.close()
        return self._opened()

    def _next_idle(self) -> OpenFile | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _put_back(self, one: OpenFile) -> None:
        with self._lock:
            if len(self._idle) < IDLE_MAX:
                self._idle.append(one)
                return
        one.db.close()

    def _opened(self) -> OpenFile:
        one = opened_file(self.path)
        if one is not None and has_tables(one.db):
            return one
        if one is not None:  # its job has opened it, and not claimed it yet
            one.db.close()
        raise ViewNotFound(view=self.view, place=self.path)


def opened_file(path: Path) -> OpenFile | None:
    """None if there is none; one that was removed while it was opened is looked for again.

    What is opened may be newer than is said: then it is opened once more at the next call.
    """
    while (file := file_at(path)) is not None:
        try:
            return OpenFile(open_for_reading(path), file)
        except sqlite3.Error:
            if file == file_at(path):
                raise
    return None


def open_for_reading(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",  # never makes a file; readers write the index
        uri=True,
        timeout=BUSY_SECONDS_MAX,
        isolation_level=None,
        check_same_thread=False,
    )
    require_view(db, path)
    db.execute("PRAGMA query_only = 1")
    db.execute("PRAGMA trusted_schema = OFF")  # the file may be a copy that somebody else made
    db.create_collation(BY_VALUE, _compare_decimals)
    return db


def _compare_decimals(left: str, right: str) -> int:
    one, other = Decimal(left), Decimal(right)
    return (one > other) - (one < other)
