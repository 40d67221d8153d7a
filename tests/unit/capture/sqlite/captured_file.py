"""A SQLite file, what is captured of it, and the rows that a follower of the changes has."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.capture.change import Change, Quiet, Transaction
from millstream.capture.sqlite.source import SqliteSource

Row = dict[str, Any]


def source_of(path: Path, *tables: str, capture: str = "shop") -> SqliteSource:
    return SqliteSource(
        path, capture=capture, tables=tables, topic_of=lambda table: f"{capture}.{table}"
    )


@dataclass
class CapturedFile:
    path: Path
    writer: sqlite3.Connection
    source: SqliteSource
    position: str
    transactions: list[Transaction] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.writer.execute(statement)

    def follow(self) -> list[Change]:
        """What came since the last time."""
        found: list[Change] = []
        for item in self.source.stream(self.position):
            self.position = item.resume
            if isinstance(item, Quiet):
                break
            self.transactions.append(item)
            found += [change for change in item.changes if isinstance(change, Change)]
        self.changes += found
        return found

    def rows(self, table: str) -> list[Row]:
        rows = self.writer.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in rows.description]
        return [dict(zip(names, row, strict=True)) for row in rows.fetchall()]


@contextmanager
def captured_file(path: Path, *statements: str, tables: list[str]) -> Iterator[CapturedFile]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA synchronous = OFF")
        for statement in statements:
            writer.execute(statement)
        with closing(source_of(path, *tables)) as source:
            yield CapturedFile(path, writer, source, source.prepare())


def told(changes: list[Change]) -> list[tuple[str, Any, Any, Any]]:
    return [
        (change.op, _read(change.key), _read(change.before), _read(change.after))
        for change in changes
    ]


def _read(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)


def followed_rows(changes: list[Change]) -> list[Row]:
    """By key; every change must fit to what was there before."""
    rows: dict[str, Row] = {}
    for op, key, before, after in told(changes):
        place = json.dumps(key)
        assert (op == "c") == (place not in rows), f"{op} of {key}"
        if op != "c":
            assert rows.pop(place) == before
        if op != "d":
            rows[place] = after
    return list(rows.values())
