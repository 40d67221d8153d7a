"""Rows into the table of a view: copied, then merged. Inside of a transaction of the caller's.

A marked table has the columns of the view's rows and one more, which says that its key goes.
"""

from collections.abc import Iterable
from typing import Literal, LiteralString

from millstream.views.stores.postgres.batch import NullParts
from millstream.views.stores.postgres.catalog import names_of
from millstream.views.stores.postgres.connection import Connection
from millstream.views.stores.postgres.driver import sql
from millstream.views.table_layout import StoredColumn, TableLayout

MARKED = sql.Identifier("_millstream_goes")
# Sorts some 500,000 small rows; PostgreSQL's own default would go to disk with 50,000.
MERGE_MEMORY = "64MB"


def make_like(
    db: Connection,
    table: sql.Identifier,
    rows: sql.Identifier,
    *,
    kind: Literal["TEMPORARY", "UNLOGGED"],
    ends: LiteralString = "",
) -> None:
    """A marked table; nothing in it is checked before it is merged."""
    db.execute(
        sql.SQL("CREATE {} TABLE {} (LIKE {}, {} boolean NOT NULL) {}").format(
            sql.SQL(kind), table, rows, MARKED, sql.SQL(ends)
        )
    )


def copy_into(
    db: Connection,
    table: sql.Identifier,
    layout: TableLayout,
    lines: Iterable[memoryview],
    *,
    is_marked: bool = False,
) -> None:
    """Columns are named: a table that has grown has them in another order."""
    columns = [names_of(layout.columns), *([MARKED] if is_marked else [])]
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, sql.SQL(", ").join(columns))
    with db.cursor() as cursor, cursor.copy(statement) as copy:
        for piece in lines:
            copy.write(piece)


def merge(
    db: Connection,
    layout: TableLayout,
    marked: sql.Identifier,
    rows: sql.Identifier,
    null_parts: Iterable[NullParts],
) -> None:
    db.execute(sql.SQL("SET LOCAL work_mem = {}").format(sql.Literal(MERGE_MEMORY)))
    for parts in null_parts:
        db.execute(_delete(layout, marked, rows, parts))
    db.execute(_upsert(layout, marked, rows))


def _upsert(layout: TableLayout, marked: sql.Identifier, rows: sql.Identifier) -> sql.Composed:
    """By key: neighbours in the index, and mostly in the table, are written together. With room in
    the pages (`ROWS_FILLED_PERCENT`) that is half the work, by bench/postgres_views.py."""
    names, key = names_of(layout.columns), names_of(layout.key_columns)
    return sql.SQL(
        "INSERT INTO {} ({}) SELECT {} FROM {} WHERE NOT {} ORDER BY {} ON CONFLICT ({}) DO {}"
    ).format(rows, names, names, marked, MARKED, key, key, _replacing(layout))


def _replacing(layout: TableLayout) -> sql.Composable:
    values = [
        sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(column.name))
        for column in layout.columns
        if not column.in_key
    ]
    return sql.SQL("UPDATE SET ") + sql.SQL(", ").join(values) if values else sql.SQL("NOTHING")


def _delete(
    layout: TableLayout, marked: sql.Identifier, rows: sql.Identifier, parts: NullParts
) -> sql.Composed:
    """Keys that are null in just these parts: so each condition is one that an index answers."""
    conditions = [
        _same_part(column, is_null=place in parts)
        for place, column in enumerate(layout.key_columns)
    ]
    return sql.SQL("DELETE FROM {} AS kept USING {} AS gone WHERE gone.{} AND {}").format(
        rows, marked, MARKED, sql.SQL(" AND ").join(conditions)
    )


def _same_part(column: StoredColumn, *, is_null: bool) -> sql.Composed:
    same = "kept.{0} IS NULL AND gone.{0} IS NULL" if is_null else "kept.{0} = gone.{0}"
    return sql.SQL(same).format(sql.Identifier(column.name))
