"""Large batches: each part is copied beside the view by the process that has it.

A part's table is named for the view, the batch and the part, and for the attempt: Spark may run a
task twice. It is there whole or not at all, but not logged: after a crash of the server it is
empty, which `require_whole` finds out. What a run that was killed has left goes with the next
claim.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.base.errors import Retryable
from millstream.views.stores.postgres import catalog
from millstream.views.stores.postgres.batch import CopiedBatch, NullParts, copied_batch
from millstream.views.stores.postgres.connection import Connection, connect, translated
from millstream.views.stores.postgres.driver import sql
from millstream.views.stores.postgres.tables import copy_into, make_like
from millstream.views.table_layout import TableLayout, require_fitting


class PartLost(Retryable):
    def __init__(self, *, place: str, table: str, rows: int, staged: int) -> None:
        super().__init__(
            f"{place}: {table} has {rows} of the {staged} rows that were staged: the server was "
            "restarted since. Run the batch again"
        )
        self.place, self.table, self.rows, self.staged = place, table, rows, staged


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The facts of a part: where it is, and what to do with it."""

    table: str
    rows: int
    null_parts: frozenset[NullParts]

    def require_whole(self, db: Connection, *, place: str) -> None:
        rows = _count(db, self.table)
        if rows != self.rows:
            raise PartLost(place=place, table=self.table, rows=rows, staged=self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresStaging:
    """One batch on its way; goes to the processes that have its parts."""

    url: str
    schema: str
    place: str
    layout: TableLayout
    id: int
    generation: int
    batch: int

    def stage(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        found = list(batches)
        if not any(batch.num_rows for batch in found):
            return StagedPart(table="", rows=0, null_parts=frozenset())
        changes = pa.Table.from_batches(found)
        require_fitting(self.layout, changes.schema)
        copied = copied_batch(self.layout, changes)
        table = self._table(part)
        self._copy(sql.Identifier(table), copied)
        return StagedPart(table, copied.rows, copied.null_parts)

    def _copy(self, table: sql.Identifier, copied: CopiedBatch) -> None:
        rows = catalog.rows_table(self.id, self.generation)
        with (
            translated(self.place),
            connect(self.url, self.schema, place=self.place) as db,
            db.transaction(),
        ):
            make_like(db, table, rows, kind="UNLOGGED")
            copy_into(db, table, self.layout, copied.marked_lines(), is_marked=True)

    def _table(self, part: int) -> str:
        attempt = secrets.token_hex(4)
        return f"{staged_prefix(self.id, self.generation)}{self.batch}_{part}_{attempt}"


def _count(db: Connection, table: str) -> int:
    """0 if it is not there."""
    if db.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
        return 0
    counted: Any = db.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
    ((rows,),) = counted
    return int(rows)


def drop_parts(db: Connection, parts: Sequence[StagedPart]) -> None:
    for part in parts:
        if part.rows:
            db.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(part.table)))


def staged_prefix(id: int, generation: int | None) -> str:
    return f"{catalog.OWN}staged_{id}_" + ("" if generation is None else f"{generation}_")


def drop_staged(db: Connection, id: int, generation: int | None = None) -> None:
    """Of all generations if none is named."""
    found = db.execute(
        "SELECT relname FROM pg_class WHERE starts_with(relname, %s) AND relkind = 'r'"
        " AND relnamespace = to_regnamespace(quote_ident(current_schema()))",
        (staged_prefix(id, generation),),
    ).fetchall()
    for (table,) in found:
        db.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(str(table))))
