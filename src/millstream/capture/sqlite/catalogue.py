"""Reads the shapes of tables from SQLite's own catalogue."""

import sqlite3
from collections.abc import Sequence
from typing import Any

from millstream.capture.sqlite.shape import Column, Shape, UniqueColumns

TABLE = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
COLUMNS = """SELECT name, type, "notnull", pk, dflt_value IS NOT NULL OR hidden <> 0
    FROM pragma_table_xinfo(?) WHERE hidden <> 1"""
INDEXES = 'SELECT name, origin, partial FROM pragma_index_list(?) WHERE "unique"'
INDEX_COLUMNS = "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno"
ROWID_NAMES = ("rowid", "_rowid_", "oid")
Row = tuple[Any, ...]


def schema_version(db: sqlite3.Connection) -> int:
    """Another one for every change of a table, an index or a trigger, and for every VACUUM."""
    found: int = db.execute("PRAGMA schema_version").fetchone()[0]
    return found


def read_shape(db: sqlite3.Connection, table: str) -> Shape | None:
    """None: there is no such table. Its name is as the database spells it."""
    found = db.execute(TABLE, (table,)).fetchone()
    return None if found is None else _shape(db, found[0])


def _shape(db: sqlite3.Connection, table: str) -> Shape:
    columns = db.execute(COLUMNS, (table,)).fetchall()
    indexes = db.execute(INDEXES, (table,)).fetchall()
    key = tuple(row[0] for row in sorted(columns, key=lambda row: int(row[3])) if row[3])
    is_rowid = len(key) == 1 and all(origin != "pk" for _, origin, _ in indexes)
    rowid = key[0] if is_rowid else _rowid_name(db, table, [row[0] for row in columns])
    uniques = _uniques(db, indexes)
    if is_rowid:
        uniques = (UniqueColumns(key, ("BINARY",)), *uniques)
    required = key if is_rowid or rowid is None else ()
    return Shape(
        table=table,
        columns=tuple(
            Column(name, declared, not (notnull or name in required), bool(fills))
            for name, declared, notnull, _, fills in columns
        ),
        key=key,
        uniques=uniques,
        rowid=rowid,
    )


def _rowid_name(db: sqlite3.Connection, table: str, columns: Sequence[str]) -> str | None:
    """A column may have taken one of the names. None: the table is WITHOUT ROWID."""
    taken = {column.lower() for column in columns}
    free = next((one for one in ROWID_NAMES if one not in taken), None)
    if free is None:
        return None
    quoted = table.replace('"', '""')
    try:
        db.execute(f'SELECT {free} FROM "{quoted}" LIMIT 0')
    except sqlite3.OperationalError:
        return None
    return free


def _uniques(db: sqlite3.Connection, indexes: Sequence[Row]) -> tuple[UniqueColumns, ...]:
    found = []
    for index, _, partial in indexes:
        columns = db.execute(INDEX_COLUMNS, (index,)).fetchall()
        if not partial and all(column is not None for column, _ in columns):
            names, collations = zip(*columns, strict=True)
            found.append(UniqueColumns(names, collations))
    return tuple(sorted(found, key=lambda unique: unique.names))


def odd_unique_indexes(db: sqlite3.Connection, table: str) -> list[str]:
    """Those of a part of the rows, or of an expression: nothing tells which rows they compare."""
    return [
        index
        for index, _, partial in db.execute(INDEXES, (table,)).fetchall()
        if partial or any(row[0] is None for row in db.execute(INDEX_COLUMNS, (index,)))
    ]
