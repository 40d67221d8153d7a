"""Reads the rows of SQLite's tables, chunk by chunk, each in a snapshot of its own.

A snapshot is read in the transaction that asks how far the changes are: what a chunk saw is known
exactly. Chunks go by the key; a table without one is read whole. SQLite lets parts of a key be
NULL, which nothing compares to: such rows are all in the first chunk.
"""

import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from millstream.capture.change import CapturedTable, Transaction
from millstream.capture.sqlite.catalogue import read_shape
from millstream.capture.sqlite.change_table import ChangeTable
from millstream.capture.sqlite.connection import connect, transaction, translated
from millstream.capture.sqlite.shape import Shape
from millstream.capture.sqlite.stored_values import (
    BrokenText,
    Stored,
    from_text,
    key_to_json,
    row_to_json,
    to_text,
)
from millstream.capture.sqlite.trigger_sql import Names, name
from millstream.capture.table_names import split_name

StoredRow = Sequence[Stored]
WHOLE: Final = -1  # a LIMIT that is none


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteChunk:
    table: CapturedTable
    rows: Sequence[tuple[Any, bytes]]  # a key is None in a table without one
    last_key: str | None
    closes_at: str

    def sees(self, transaction: Transaction) -> bool:
        return int(transaction.commit) <= int(self.closes_at)


class SqliteLoader:
    """A connection for each read: any thread may.

    `ends` takes the ends of transactions that chunks saw: a stream that marks them hands over
    exactly what a chunk saw, and what it did not see.
    """

    def __init__(
        self,
        path: Path,
        names: Names,
        ends: deque[int],
        captured: Callable[[Shape], CapturedTable],
    ) -> None:
        self._path, self._names, self._ends, self._captured = path, names, ends, captured

    def rows_estimate(self, table: CapturedTable) -> int:
        with translated(self._path, self._names.capture):
            db = connect(self._path)
            try:
                count: int = db.execute(f"SELECT count(*) FROM {_named(table)}").fetchone()[0]
            finally:
                db.close()
        return count

    def ranges(self, table: CapturedTable, count: int) -> list[tuple[str | None, str | None]]:
        """By numbers of rows alone: of other keys nothing tells where the middle is."""
        with translated(self._path, self._names.capture):
            db = connect(self._path)
            try:
                cuts = _cuts(db, _shape(db, table), count)
            finally:
                db.close()
        places = [None, *(to_text([cut]) for cut in cuts), None]
        return list(pairwise(places))

    def read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> SqliteChunk:
        with translated(self._path, self._names.capture):
            db = connect(self._path)
            try:
                with transaction(db):
                    return self._read(db, table, after, until, rows_max)
            finally:
                db.close()

    def _read(
        self,
        db: sqlite3.Connection,
        table: CapturedTable,
        after: str | None,
        until: str | None,
        rows_max: int,
    ) -> SqliteChunk:
        closes_at = ChangeTable(db, self._names).last_id()
        self._ends.append(closes_at)
        shape = _shape(db, table)
        paged = _page(db, shape, after, until, rows_max if shape.key else WHOLE)
        rows = paged if after is not None else [*_rows_with_null_in_key(db, shape), *paged]
        key, row = key_to_json(shape), row_to_json(shape)
        is_last = not shape.key or len(paged) < rows_max
        return SqliteChunk(
            table=self._captured(shape),
            rows=[(key(one), row(one)) for one in rows],
            last_key=None if is_last else to_text(_key_values(shape, paged[-1])),
            closes_at=str(closes_at),
        )

    def close(self) -> None:
        """Nothing is kept open."""


def _shape(db: sqlite3.Connection, table: CapturedTable) -> Shape:
    shape = read_shape(db, _bare(table))
    if shape is None:
        raise sqlite3.OperationalError(f"no such table: {_bare(table)}")
    return shape


def _bare(table: CapturedTable) -> str:
    return split_name(table.name)[1]


def _named(table: CapturedTable) -> str:
    return name(_bare(table))


def _cuts(db: sqlite3.Connection, shape: Shape, count: int) -> list[int]:
    """Numbers between the ranges."""
    if shape.key != (shape.rowid,):
        return []
    column, table = name(shape.key[0]), name(shape.table)
    first, last = db.execute(f"SELECT min({column}), max({column}) FROM {table}").fetchone()
    if first is None:
        return []
    step = max(1, (last - first + 1) // count)
    return [
        first + step * number - 1 for number in range(1, count) if step * number <= last - first
    ]


def _page(
    db: sqlite3.Connection, shape: Shape, after: str | None, until: str | None, rows_max: int
) -> list[StoredRow]:
    """Rows after the first key, up to the second, in the order of the key."""
    key = ", ".join(name(column) for column in shape.key)
    bounds = [(than, from_text(at)) for than, at in ((">", after), ("<=", until)) if at is not None]
    conditions = [f"{name(column)} IS NOT NULL" for column in _nullable_key(shape)]
    conditions += [
        f"({key}) {than} ({', '.join(_placeholder(value) for value in values)})"
        for than, values in bounds
    ]
    order = f"ORDER BY {key}" if key else ""
    return db.execute(
        f"{_select(shape)} WHERE {' AND '.join(conditions) or 'TRUE'} {order} LIMIT {rows_max:d}",
        [_bound(value) for _, values in bounds for value in values],
    ).fetchall()


def _rows_with_null_in_key(db: sqlite3.Connection, shape: Shape) -> list[StoredRow]:
    nullable = _nullable_key(shape)
    if not nullable:
        return []
    condition = " OR ".join(f"{name(column)} IS NULL" for column in nullable)
    return db.execute(f"{_select(shape)} WHERE {condition}").fetchall()


def _select(shape: Shape) -> str:
    columns = ", ".join(name(column.name) for column in shape.columns)
    return f"SELECT {columns} FROM {name(shape.table)}"


def _nullable_key(shape: Shape) -> list[str]:
    nullable = {column.name for column in shape.columns if column.is_nullable}
    return [column for column in shape.key if column in nullable]


def _key_values(shape: Shape, row: StoredRow) -> list[Stored]:
    return [row[place] for place in shape.key_places]


def _placeholder(value: Stored) -> str:
    return "CAST(? AS TEXT)" if isinstance(value, BrokenText) else "?"


def _bound(value: Stored) -> Stored:
    return value.content if isinstance(value, BrokenText) else value
