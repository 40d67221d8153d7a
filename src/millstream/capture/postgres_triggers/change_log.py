"""What the triggers wrote, and how far it was handed over: the capture's own schema.

A mark is a snapshot that the stream has taken. What one mark sees and the one before it does not is
a batch: whole transactions, none of them twice, none left out, however late it was committed after
others that came later. Marks are kept until they are confirmed, so a batch is the same whenever it
is read again.

Inside of a batch, transactions go by the number of their last change. If two of them changed the
same row, the second one waited for the first to end, and so has the higher one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, LiteralString, NamedTuple

from psycopg import sql

from millstream.capture.postgres.catalogue import Catalogue, TableFacts
from millstream.capture.postgres.loading import Snapshot
from millstream.capture.postgres_triggers.position import Position
from millstream.capture.postgres_triggers.statements import (
    all_trigger_names,
    creating,
    do_fire,
    making_triggers,
    schema_name,
)

SLICE_ROWS: Final = 10_000
Given = Sequence[Any] | Mapping[str, Any]
_IS_THERE: Final = "SELECT to_regclass(quote_ident(%s) || '.marks') IS NOT NULL"
_LOOK: Final[LiteralString] = """
SELECT pg_current_snapshot()::text,
       (SELECT xid FROM {schema}.changes
         WHERE xid >= pg_snapshot_xmin(%s::pg_snapshot)
           AND NOT pg_visible_in_snapshot(xid, %s::pg_snapshot)
         ORDER BY xid LIMIT 1) IS NOT NULL
"""
_MARK: Final[LiteralString] = """
INSERT INTO {schema}.marks (xid_end, running, snapshot, reloads)
VALUES (%s, %s, %s::pg_snapshot, %s)
ON CONFLICT (xid_end, running) DO UPDATE SET reloads = marks.reloads || excluded.reloads
"""
_MARKS: Final[LiteralString] = """
SELECT snapshot::text, reloads, at FROM {schema}.marks ORDER BY xid_end, running DESC
"""
# Sorted as a whole: the server does it on its disk, if they are many.
_BATCH: Final[LiteralString] = """
SELECT xid::text, max(seq) OVER (PARTITION BY xid) AS last_seq,
       max(seq) OVER () AS batch_last_seq, max(at) OVER (PARTITION BY xid), op::text, shape,
       old, new
  FROM {schema}.changes
 WHERE xid < pg_snapshot_xmax(%(until)s::pg_snapshot)
   AND xid >= pg_snapshot_xmin(%(after)s::pg_snapshot)
   AND pg_visible_in_snapshot(xid, %(until)s::pg_snapshot)
   AND NOT pg_visible_in_snapshot(xid, %(after)s::pg_snapshot)
 ORDER BY last_seq, seq
"""
_FORGET: Final[tuple[LiteralString, ...]] = (
    "DELETE FROM {schema}.changes WHERE xid < pg_snapshot_xmax(%(snapshot)s::pg_snapshot) "
    "AND pg_visible_in_snapshot(xid, %(snapshot)s::pg_snapshot)",
    "DELETE FROM {schema}.marks "
    "WHERE xid_end < %(xmax)s OR (xid_end = %(xmax)s AND running > %(running)s)",
)
_SHAPE: Final[LiteralString] = """
SELECT relation, schema::text, "table"::text, names::text[], types::bigint[], modifiers,
       generated::text[], key::text[] FROM {schema}.shapes WHERE id = %s
"""
_SIZE: Final[LiteralString] = (
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class "
    "WHERE oid = to_regclass(quote_ident({name}) || '.changes')"
)
_TRIGGERS: Final = """
SELECT tgrelid::bigint, tgname::text, tgenabled::text FROM pg_trigger
 WHERE tgrelid = ANY(%s) AND tgname = ANY(%s)
"""
# A table that got another file while its columns were touched was rewritten: VACUUM FULL, CLUSTER
# and TRUNCATE leave them alone. What an older release wrote into `columns` is no JSON. Of all
# tables at once: then the server plans the functions once.
_COMPARED: Final[LiteralString] = """
WITH known AS (
  SELECT relation, columns::jsonb AS shape FROM {schema}.captured
   WHERE relation = ANY(%s) AND starts_with(columns, '{{')),
compared AS (
  SELECT relation, shape AS before, {schema}.compared(shape, {schema}.shape_of(relation)) AS after
    FROM known)
SELECT relation::bigint, after::text, (after ->> 'must_load')::boolean
       OR (before -> 'files' <> after -> 'files' AND before -> 'touched' <> after -> 'touched'),
       after <> before FROM compared
"""
# Once. If there is another table of the name by now, that one is loaded, which sweeps the rows too.
_NOTE_GONE: Final[LiteralString] = """
WITH gone AS (
  DELETE FROM {schema}.captured k WHERE NOT EXISTS (SELECT FROM pg_class WHERE oid = k.relation)
  RETURNING k.relation),
last AS (
  SELECT DISTINCT ON (s.relation) s.id, s.schema, s."table"
    FROM {schema}.shapes s JOIN gone g USING (relation) ORDER BY s.relation, s.id DESC)
INSERT INTO {schema}.changes (op, shape)
SELECT 't', l.id FROM last l
 WHERE NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = l.schema AND c.relname = l."table")
"""
_SHAPE_NOW: Final[LiteralString] = "SELECT {schema}.shape_of(%s)::text"
_KNOW: Final[LiteralString] = """
INSERT INTO {schema}.captured SELECT oid, relfilenode, %s FROM pg_class WHERE oid = %s
ON CONFLICT (relation) DO UPDATE SET filenode = excluded.filenode, columns = excluded.columns
"""


class Mark(NamedTuple):
    snapshot: Snapshot
    snapshot_text: str
    reloads: tuple[str, ...]
    at: datetime | None

    @property
    def position(self) -> Position:
        return Position.of(self.snapshot)


class StoredChange(NamedTuple):
    """`last_seq`: of the transaction's last change; `batch_last_seq`: of the batch's."""

    xid: str
    last_seq: int
    batch_last_seq: int
    ended: datetime
    op: str
    shape: int
    old: str | None
    new: str | None


class StoredShape(NamedTuple):
    """A table as it was when a change of it was written."""

    relation: int
    schema: str
    table: str
    names: Sequence[str]
    types: Sequence[int]
    modifiers: Sequence[int]
    generated: Sequence[str]
    key: Sequence[str]


@dataclass(frozen=True, slots=True)
class ChangeLog:
    catalogue: Catalogue
    capture: str

    @property
    def is_there(self) -> bool:
        return bool(self.catalogue.one(_IS_THERE, [schema_name(self.capture)]))

    # --- making -------------------------------------------------------------------------------

    def create(self, tables: Sequence[TableFacts]) -> None:
        with self.catalogue.connection.transaction():
            for statement in creating(self.capture):
                self._run(statement)
            self._make_triggers(tables)

    def add(self, tables: Sequence[TableFacts]) -> None:
        with self.catalogue.connection.transaction():
            self._make_triggers(tables)

    def make_functions(self) -> None:
        """As this release has them: an older one may have made others."""
        with self.catalogue.connection.transaction():
            for statement in creating(self.capture):
                self._run(statement)

    def _make_triggers(self, tables: Sequence[TableFacts]) -> None:
        """Waits for transactions that write to the tables now: later ones are seen."""
        found = self._triggers(tables)
        for table in tables:
            for statement in making_triggers(self.capture, table, found[table.oid]):
                self._run(statement)
            self._ask("SELECT {schema}.found_shape(%s)", [table.oid])
            self._know(table, self._ask(_SHAPE_NOW, [table.oid])[0][0])

    def renew(self, tables: Sequence[TableFacts]) -> list[TableFacts]:
        """Look after tables that were made again or altered; which are to be loaded.

        One that an older release never compared is taken as it is. Of a table that is gone, a `t`
        is noted, as if it had been truncated.
        """
        self._run(self._own(_NOTE_GONE))
        found = self._triggers(tables)
        compared = {row[0]: row[1:] for row in self._ask(_COMPARED, [[one.oid for one in tables]])}
        must_load = []
        for table in tables:
            fires = do_fire(self.capture, table, found[table.oid])
            shape, is_changed, is_other = compared.get(table.oid, (None, False, False))
            if not fires or shape is None:
                self.add([table])
            elif is_other:
                self._know(table, shape)
            if not fires or is_changed:
                must_load.append(table)
        return must_load

    def _triggers(self, tables: Sequence[TableFacts]) -> dict[int, dict[str, str]]:
        """By table: their names, and when they fire."""
        found: dict[int, dict[str, str]] = {table.oid: {} for table in tables}
        names = list(all_trigger_names(self.capture))
        for table, name, fires in self.catalogue.ask(_TRIGGERS, [[*found], names]):
            found[table][name] = fires
        return found

    def _know(self, table: TableFacts, shape: str) -> None:
        self._run(self._own(_KNOW), [shape, table.oid])

    def drop(self) -> None:
        """With CASCADE go the triggers, which need the function."""
        schema = sql.Identifier(schema_name(self.capture))
        self._run(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))

    # --- reading ------------------------------------------------------------------------------

    def look(self, last: Mark) -> tuple[Mark, bool]:
        """What is visible now, and whether there is a change that the last mark did not see."""
        text, has_news = self._ask(_LOOK, [last.snapshot_text] * 2)[0]
        return Mark(Snapshot.from_text(text), text, (), None), has_news

    def marks(self) -> list[Mark]:
        """In their order. There are few: those that were confirmed are not kept."""
        return [
            Mark(Snapshot.from_text(text), text, tuple(reloads), at)
            for text, reloads, at in self._ask(_MARKS)
        ]

    def batch(self, after: Mark, until: Mark) -> Iterator[StoredChange]:
        """By a cursor of the server: a batch may be large."""
        connection = self.catalogue.connection
        with connection.transaction(), connection.cursor(name="batch") as cursor:
            cursor.itersize = SLICE_ROWS
            given = {"after": after.snapshot_text, "until": until.snapshot_text}
            cursor.execute(self._own(_BATCH), given)
            for row in cursor:
                yield StoredChange._make(row)

    def size_bytes(self) -> int:
        """Of the changes that were not forgotten, and of room that they had."""
        size: int = self._ask(_SIZE)[0][0]
        return size

    def shape(self, shape_id: int) -> StoredShape:
        return StoredShape._make(self._ask(_SHAPE, [shape_id])[0])

    # --- writing ------------------------------------------------------------------------------

    def keep(self, mark: Mark) -> None:
        position = mark.position
        given = [position.xmax, position.running, mark.snapshot_text, list(mark.reloads)]
        self._run(self._own(_MARK), given)

    def forget(self, mark: Mark) -> None:
        """All that this mark sees. It stays itself: the next batch begins with it."""
        given = {"snapshot": mark.snapshot_text, **mark.position._asdict()}
        with self.catalogue.connection.transaction():
            for statement in _FORGET:
                self.catalogue.connection.execute(self._own(statement), given)

    def _own(self, statement: LiteralString) -> sql.Composed:
        name = schema_name(self.capture)
        return sql.SQL(statement).format(schema=sql.Identifier(name), name=sql.Literal(name))

    def _ask(self, statement: LiteralString, given: Given = ()) -> list[tuple[Any, ...]]:
        return self.catalogue.connection.execute(self._own(statement), given).fetchall()

    def _run(self, statement: sql.Composed, given: Given | None = None) -> None:
        """Without parameters, a % in the name of a table is itself."""
        self.catalogue.connection.execute(statement, given)
