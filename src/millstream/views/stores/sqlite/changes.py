"""Reads the past of a view from its SQLite file: changes, for feeds, and moments that were.

A moment that was is today's rows with all later changes taken back: for each key that has changed
since, what its first change replaced. docs/formats/view_store.md has the tables.
"""

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from millstream.base.errors import Rejected
from millstream.views.feed_changes import RowChange, key_of
from millstream.views.feed_source import CurrentRows, Forgotten, Tail
from millstream.views.feeds import Feed
from millstream.views.history import (
    BadHistory,
    NoHistory,
    OutsideHistory,
    Span,
    Version,
    time_ms_of,
)
from millstream.views.store import Row, ViewNotFound
from millstream.views.stores.sqlite.history import (
    FIRST_VERSION,
    HAD_ROW,
    HAS_ROW,
    LAST_VERSION,
    SEQ,
    VERSION,
    VERSION_AT,
    changes_table,
    former_name,
    found_version,
    has_past,
)
from millstream.views.stores.sqlite.questions import Questions
from millstream.views.stores.sqlite.reader import (
    OpenFile,
    SqliteMoment,
    ViewReader,
    opened_file,
)
from millstream.views.stores.sqlite.store import file_at, rows_table, translated
from millstream.views.stores.sqlite.values import Stored
from millstream.views.table_layout import TableLayout

TIMELINE = "SELECT id, history_ms FROM _timelines WHERE generation = ?"
VERSION_NUMBERED = """
SELECT version, at_ms, seq_end FROM _versions WHERE generation = ? AND version = ?
"""
BEFORE_LAST = """
SELECT version, at_ms, seq_end FROM _versions WHERE generation = ?
ORDER BY version DESC LIMIT 1 OFFSET 1
"""
VERSION_MAX = 2**63 - 1  # SQLite's largest integer
POSITIONS = "SELECT positions FROM _versions WHERE generation = ? AND version = ?"


# The connection that was asked, and what it says: others count otherwise.
Stamp = tuple[sqlite3.Connection, int]


class NoPastYet(Rejected):
    def __init__(self, *, view: str, path: Path) -> None:
        super().__init__(
            f"view {view}: {path} was written by an older Millstream, which kept no changes. Run "
            "its job once"
        )
        self.view, self.path = view, path


class SqliteChanges:
    """A `ChangeSource`. Thread-safe; close it when done."""

    def __init__(self, path: Path, *, view: str) -> None:
        self.view = view
        self._reader = ViewReader(path, view=view)
        self._stamps = FileStamps(path)
        self._known: tuple[Stamp | None, Tail | None] = (None, None)

    def tail(self) -> Tail | None:
        """Where the view's changes end now; None if it is not there."""
        stamp = self._stamps.newest()  # first: what is written meanwhile is seen next time
        known, tail = self._known
        if stamp is None or stamp != known:
            tail = self._read_tail()
            self._known = stamp, tail
        return tail

    def _read_tail(self) -> Tail | None:
        try:
            with self._reader.moment() as now:
                return self._tail(now)
        except ViewNotFound:
            return None

    def current(self, where: Mapping[str, Any] | None) -> CurrentRows | None:
        """Rows that meet the conditions, by key, and where the changes ended when they were so."""
        try:
            with self._reader.moment() as now:
                tail = self._tail(now)
                found = now.db.execute(*now.questions.scanned(where, (), None)).fetchall()
                return CurrentRows(tail, _keyed(now.questions, found))
        except ViewNotFound:
            return None

    def changes(self, timeline: str, *, since: int, end: int) -> list[RowChange]:
        """Those after `since`, up to `end`; raises `Forgotten` if they are not all there."""
        try:
            with self._reader.moment() as now:
                tail = self._tail(now)
                if tail.timeline != timeline or since < tail.floor:
                    raise Forgotten
                return changes_between(now, since, end)
        except ViewNotFound:
            raise Forgotten from None

    def close(self) -> None:
        self._reader.close()
        self._stamps.close()

    def _tail(self, now: SqliteMoment) -> Tail:
        timeline, _ = timeline_of(now, self._reader)
        span = span_of(now)
        former = found_version(now.db, BEFORE_LAST, now.generation) or span.last
        return Tail(
            timeline=timeline,
            version=span.last.number,
            floor=span.first.seq_end,
            seq=span.last.seq_end,
            newest=span.last.seq_end - former.seq_end,
            layout=now.questions.layout,
        )


class FileStamps:
    """Tells at a tenth of the cost of a look whether a file can have changed since the last one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._open: OpenFile | None = None

    def newest(self) -> Stamp | None:
        """Another one after every transaction of others; None if there is no file."""
        with self._lock, translated(self._path):
            file = file_at(self._path)
            if file is None:
                return None
            if self._open is None or self._open.file != file:
                self._reopen()
            if self._open is None:
                return None
            ((version,),) = self._open.db.execute("PRAGMA data_version")
            return self._open.db, version

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._open.db.close()
            self._open = None

    def _reopen(self) -> None:
        self._close()
        self._open = opened_file(self._path)


def timeline_of(now: SqliteMoment, reader: ViewReader) -> tuple[str, int | None]:
    """Of the generation that is read; and the history that it is declared with."""
    if not has_past(now.db):
        raise NoPastYet(view=reader.view, path=reader.path)
    timeline, history_ms = now.db.execute(TIMELINE, (now.generation,)).fetchone()
    return timeline, history_ms


def span_of(now: SqliteMoment) -> Span:
    first = found_version(now.db, FIRST_VERSION, now.generation)
    last = found_version(now.db, LAST_VERSION, now.generation)
    assert first is not None, "a generation is made with its version 0"
    assert last is not None, "the last version is never trimmed"
    return Span(first=first, last=last)


def _keyed(questions: Questions, found: Sequence[Sequence[Stored]]) -> Iterator[tuple[Row, Row]]:
    """Made as they are asked for."""
    for stored in found:
        row = questions.read(stored)
        yield key_of(row, questions.layout.key), row


def changes_between(now: SqliteMoment, since: int, end: int) -> list[RowChange]:
    columns = now.questions.layout.columns
    names = ", ".join([column.quoted for column in columns] + [former_name(one) for one in columns])
    found = now.db.execute(
        f"SELECT {SEQ}, {VERSION}, {HAD_ROW}, {HAS_ROW}, {names} "
        f"FROM {changes_table(now.generation)} WHERE {SEQ} > ? AND {SEQ} <= ? ORDER BY {SEQ}",
        (since, end),
    )
    return [row_change(stored, now.questions) for stored in found]


def row_change(stored: Sequence[Any], questions: Questions) -> RowChange:
    (seq, version, had_row, has_row), values = stored[:4], stored[4:]
    width = len(questions.layout.columns)
    row = questions.read(values[:width]) if has_row else None
    was = questions.read(values[width:]) if had_row else None
    return RowChange(seq, version, key_of(row or was or {}, questions.layout.key), was, row)


# --- moments that were


class PastReader(ViewReader):
    """A `ViewReads` of one version. Every question looks whether the version is still kept."""

    def __init__(self, path: Path, *, view: str, moment: "Asked") -> None:
        super().__init__(path, view=view, generation=moment.generation)
        self.version = moment.version
        self._asked = moment

    @contextmanager
    def moment(self) -> Iterator[SqliteMoment]:
        with super().moment() as now:
            timeline, _ = timeline_of(now, self)
            version = found_version(now.db, VERSION_NUMBERED, now.generation, self.version)
            if version is None or timeline != self._asked.timeline:
                raise OutsideHistory(view=self.view, asked=self._asked.text, span=span_of(now))
            ((positions,),) = now.db.execute(POSITIONS, (now.generation, self.version))
            source = rows_at(now.questions.layout, now.generation, version)
            questions = Questions(now.questions.layout, source)
            yield SqliteMoment(now.db, questions, positions, generation=now.generation)


@dataclass(frozen=True, slots=True)
class Asked:
    """A version that was there when it was asked for, in the words of who did."""

    text: str
    generation: int
    timeline: str
    version: int


def rows_at(layout: TableLayout, generation: int, version: Version) -> str:
    """A query, in parentheses, for the rows as they were."""
    names = ", ".join(column.quoted for column in layout.columns)
    changes, since = changes_table(generation), int(version.seq_end)

    def same_key(one: str, other: str) -> str:
        pairs = (f"{one}.{key.quoted} = {other}.{key.quoted}" for key in layout.key_columns)
        return " AND ".join(pairs)

    former = ", ".join(f"{former_name(column)} AS {column.quoted}" for column in layout.columns)
    return (
        f"(SELECT {names} FROM {rows_table(generation)} AS r WHERE NOT EXISTS "
        f"(SELECT 1 FROM {changes} AS c WHERE {same_key('c', 'r')} AND c.{SEQ} > {since}) "
        f"UNION ALL SELECT {former} FROM {changes} AS r WHERE {SEQ} > {since} AND {HAD_ROW} "
        f"AND NOT EXISTS (SELECT 1 FROM {changes} AS c WHERE {same_key('c', 'r')} "
        f"AND c.{SEQ} > {since} AND c.{SEQ} < r.{SEQ}))"
    )


def past_reader(
    reader: ViewReader, *, version: int | None = None, time: datetime | None = None
) -> PastReader:
    """The view as of a version, or of a moment: then the last version that was there."""
    if (version is None) == (time is None):
        raise BadHistory("as_of takes a version or a time, and not both")
    text = f"version {version}" if time is None else str(time)
    with reader.moment() as now:
        timeline, history_ms = timeline_of(now, reader)
        if history_ms is None:
            raise NoHistory(view=reader.view)
        found = _asked_version(now, version, time)
        if found is None:
            raise OutsideHistory(view=reader.view, asked=text, span=span_of(now))
        moment = Asked(text, now.generation, timeline, found.number)
    return PastReader(reader.path, view=reader.view, moment=moment)


def _asked_version(now: SqliteMoment, version: int | None, time: datetime | None) -> Version | None:
    if time is not None:
        return found_version(now.db, VERSION_AT, now.generation, time_ms_of(time))
    number = int(version or 0)
    if abs(number) > VERSION_MAX:
        return None
    return found_version(now.db, VERSION_NUMBERED, now.generation, number)


def span_kept(reader: ViewReader) -> Span:
    with reader.moment() as now:
        timeline_of(now, reader)
        return span_of(now)


# --- feeds, one for each file and process

_FEEDS: WeakValueDictionary[tuple[Path, str], Feed] = WeakValueDictionary()
_FEEDS_LOCK = threading.Lock()


def feed_of(path: Path, *, view: str) -> Feed:
    """The same for all who ask while somebody holds it."""
    with _FEEDS_LOCK:
        key = (path.resolve(), view)
        feed = _FEEDS.get(key)
        if feed is None:
            feed = _FEEDS[key] = Feed(view, SqliteChanges(path, view=view))
        return feed
