"""What a file lacks before it can be captured."""

import sqlite3
from collections.abc import Iterator, Sequence

from millstream.capture.source import Finding
from millstream.capture.sqlite.catalogue import odd_unique_indexes, read_shape
from millstream.capture.sqlite.shape import Shape

# A table of SQLite has at most 2,000 columns, and a change has two for each.
COLUMNS_MAX = 990
VIRTUAL = "SELECT sql LIKE 'CREATE VIRTUAL%' FROM sqlite_master WHERE type = 'table' AND name = ?"


def findings(db: sqlite3.Connection, tables: Sequence[str]) -> list[Finding]:
    return [*_of_file(db), *(found for table in tables for found in _of_table(db, table))]


def _of_file(db: sqlite3.Connection) -> Iterator[Finding]:
    if db.execute("PRAGMA query_only").fetchone()[0]:
        yield Finding(what="the file is read-only", mend="let this process write to it")
    (mode,) = db.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        yield Finding(
            what=f"the journal mode is {mode}: the capture and writers wait for one another",
            mend="PRAGMA journal_mode = WAL",
            is_fatal=False,
        )


def _of_table(db: sqlite3.Connection, table: str) -> Iterator[Finding]:
    shape = read_shape(db, table)
    if shape is None:
        yield Finding(what=f"there is no table {table}", mend="create it, or name another")
        return
    if db.execute(VIRTUAL, (shape.table,)).fetchone()[0]:
        yield Finding(
            what=f"{table} is a virtual table, which has no triggers",
            mend="capture the table behind it",
        )
        return
    yield from _of_shape(shape)
    for index in odd_unique_indexes(db, shape.table):
        yield Finding(
            what=f"{table}: a REPLACE that runs into the unique index {index}, of an expression or "
            "a part of the rows, deletes a row unseen",
            mend="PRAGMA recursive_triggers = ON in every writer that uses REPLACE",
            is_fatal=False,
        )


def _of_shape(shape: Shape) -> Iterator[Finding]:
    if len(shape.columns) > COLUMNS_MAX:
        yield Finding(
            what=f"{shape.table} has {len(shape.columns)} columns", mend=f"at most {COLUMNS_MAX}"
        )
    untyped = {column.name for column in shape.columns if not column.declared}
    if untyped & {*shape.key}:
        yield Finding(
            what=f"{shape.table}: a column of its key has no type, and 5 and '5' are one key",
            mend="declare it INTEGER or TEXT",
            is_fatal=False,
        )
    nullable = {column.name for column in shape.columns if column.is_nullable}
    loose = [column for column in shape.key if column in nullable]
    if loose:
        yield Finding(
            what=f"{shape.table}: {', '.join(loose)} of its key may be NULL, and rows with NULL "
            "there share a key",
            mend="declare it NOT NULL",
            is_fatal=False,
        )
