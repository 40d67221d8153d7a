"""What a capture makes in the database, and takes away again: publication, slot, event trigger.

In this order. A slot remembers the publications of its time: one that was made later is not found
by a server of version 15, or passed over by 18. Neither is ever made again silently: what changed
without them is lost, and a person has to know.
"""

import contextlib
import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from millstream.capture.postgres import shapes
from millstream.capture.postgres.catalogue import (
    GENERATED_COLUMNS_SINCE,
    Catalogue,
    TableFacts,
)
from millstream.capture.postgres.transactions import DROPPED_PREFIX, REWRITE_PREFIX
from millstream.capture.table_names import full_name

NAME_BYTES_MAX: Final = 63
_NOT_IN_A_SLOT: Final = re.compile(r"[^a-z0-9_]")
TRIGGER: Final = "millstream_rewrites"
ALTERED_TRIGGER: Final = "millstream_altered"
DROPPED_TRIGGER: Final = "millstream_dropped"
SCHEMA: Final = "millstream"
# The shape of each table that is captured, as the last DDL left it (shapes.py).
_SHAPES_TABLE: Final[LiteralString] = """
CREATE TABLE IF NOT EXISTS {schema}.shapes (relation oid PRIMARY KEY, shape jsonb NOT NULL)
"""
# Runs inside of the statement that rewrites a table: it must not fail.
_NOTE_REWRITE: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.note_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
  PERFORM pg_logical_emit_message(true, {prefix}, {schema}.full_name(
    coalesce(pg_partition_root(pg_event_trigger_table_rewrite_oid())::oid,
             pg_event_trigger_table_rewrite_oid())));
END $$
"""
# Rows that are there may be others now, without a word in the log. A table and those that inherit
# from it are compared; all of them, if columns are made of its rows. A partition that is made is
# empty. Whoever alters a table needs no right to the shapes. If anything fails here, the statement
# of the user must not: then every table is to be loaded.
_NOTE_ALTERED: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.note_altered() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
  altered oid[];
  is_of_rows boolean;
  known record;
  found jsonb;
BEGIN
  WITH RECURSIVE family (oid) AS (
    SELECT coalesce(pg_partition_root(d.objid)::oid, d.objid)
      FROM pg_event_trigger_ddl_commands() d WHERE d.classid = 'pg_class'::regclass
    UNION SELECT i.inhrelid FROM pg_inherits i JOIN family f ON i.inhparent = f.oid)
  SELECT array_agg(f.oid), bool_or(EXISTS (
           SELECT FROM pg_class c JOIN pg_type t ON t.oid = c.reltype JOIN pg_depend p
               ON p.refclassid = 'pg_type'::regclass AND p.refobjid IN (t.oid, t.typarray)
            WHERE c.oid = f.oid AND p.deptype = 'n'))
    INTO altered, is_of_rows FROM family f;
  FOR known IN
    SELECT s.relation, s.shape FROM {schema}.shapes s JOIN pg_class c ON c.oid = s.relation
     WHERE CASE TG_TAG WHEN 'ALTER TABLE' THEN is_of_rows OR s.relation = ANY (altered)
                       WHEN 'ALTER TYPE' THEN true
                       ELSE jsonb_typeof(s.shape -> 'parts') = 'array' END
  LOOP
    found := {schema}.compared(known.shape, {schema}.shape_of(known.relation));
    CONTINUE WHEN found = known.shape;
    UPDATE {schema}.shapes SET shape = found WHERE relation = known.relation;
    IF (found ->> 'must_load')::boolean AND TG_TAG <> 'CREATE TABLE' THEN
      PERFORM pg_logical_emit_message(true, {prefix}, {schema}.full_name(known.relation));
    END IF;
  END LOOP;
EXCEPTION WHEN OTHERS THEN
  PERFORM pg_logical_emit_message(true, {prefix}, schemaname || '.' || tablename)
     FROM pg_publication_tables WHERE starts_with(pubname, 'millstream_');
END $$
"""
# Whatever statement dropped it: DROP TABLE, DROP SCHEMA, DROP OWNED. The statement of the user must
# not fail here.
_NOTE_DROPPED: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.note_dropped() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
  gone record;
BEGIN
  FOR gone IN
    SELECT d.objid, {schema}.written_name(d.schema_name, d.object_name) AS name
      FROM pg_event_trigger_dropped_objects() d JOIN {schema}.shapes s ON s.relation = d.objid
     WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0
  LOOP
    DELETE FROM {schema}.shapes WHERE relation = gone.objid;
    PERFORM pg_logical_emit_message(true, {dropped_prefix}, gone.name);
  END LOOP;
EXCEPTION WHEN OTHERS THEN
  RAISE WARNING 'millstream cannot report dropped tables: %', SQLERRM;
END $$
"""
# Also for a session that applies changes of another server (session_replication_role = replica).
_MAKE_TRIGGERS: Final[tuple[LiteralString, ...]] = (
    "DROP EVENT TRIGGER IF EXISTS {altered}",
    "DROP EVENT TRIGGER IF EXISTS {rewrites}",
    "DROP EVENT TRIGGER IF EXISTS {dropped}",
    "CREATE EVENT TRIGGER {altered} ON ddl_command_end WHEN TAG IN ('ALTER TABLE', 'ALTER TYPE', "
    "'CREATE TABLE', 'DROP TABLE') EXECUTE FUNCTION {schema}.note_altered()",
    "CREATE EVENT TRIGGER {rewrites} ON table_rewrite EXECUTE FUNCTION {schema}.note_rewrite()",
    "CREATE EVENT TRIGGER {dropped} ON sql_drop EXECUTE FUNCTION {schema}.note_dropped()",
    "ALTER EVENT TRIGGER {altered} ENABLE ALWAYS",
    "ALTER EVENT TRIGGER {dropped} ENABLE ALWAYS",
    "ALTER EVENT TRIGGER {rewrites} ENABLE ALWAYS",
)
_MAKE: Final = (
    "CREATE SCHEMA IF NOT EXISTS {schema}",
    _SHAPES_TABLE,
    *shapes.FUNCTIONS,
    _NOTE_REWRITE,
    _NOTE_ALTERED,
    _NOTE_DROPPED,
    *_MAKE_TRIGGERS,
)
# Which release made them: what another one made is replaced.
_DIGEST: Final = hashlib.sha256("".join(_MAKE).encode()).hexdigest()[:16]
_MARK: Final[LiteralString] = "COMMENT ON EVENT TRIGGER {altered} IS {digest}"
_IS_MADE: Final = """
SELECT true FROM pg_event_trigger
 WHERE evtname = %s AND evtenabled = 'A' AND obj_description(oid, 'pg_event_trigger') = %s
"""
_KNOW_SHAPES: Final[LiteralString] = """
INSERT INTO {schema}.shapes SELECT c.oid, {schema}.shape_of(c.oid)
  FROM pg_class c JOIN pg_publication_rel p ON p.prrelid = c.oid
  JOIN pg_publication b ON b.oid = p.prpubid WHERE b.pubname = {publication}
ON CONFLICT (relation) DO NOTHING
"""
# What changed while the triggers were not there, or were switched off.
_CATCH_UP: Final[LiteralString] = """
WITH found AS (
  SELECT s.relation, {schema}.compared(s.shape, {schema}.shape_of(s.relation)) AS shape
    FROM {schema}.shapes s JOIN pg_class c ON c.oid = s.relation),
kept AS (UPDATE {schema}.shapes s SET shape = f.shape FROM found f WHERE s.relation = f.relation)
SELECT pg_logical_emit_message(true, {prefix}, {schema}.full_name(relation))
  FROM found WHERE (shape ->> 'must_load')::boolean
"""
# Of other captures, too: whoever makes them waits for the other.
_ONE_AT_A_TIME: Final = "SELECT pg_advisory_xact_lock(hashtext('millstream'))"
_DROP_TRIGGER: Final = (
    f"DROP EVENT TRIGGER IF EXISTS {DROPPED_TRIGGER}",
    f"DROP EVENT TRIGGER IF EXISTS {TRIGGER}",
    f"DROP EVENT TRIGGER IF EXISTS {ALTERED_TRIGGER}",
    "DROP FUNCTION IF EXISTS millstream.note_dropped()",
    "DROP FUNCTION IF EXISTS millstream.note_altered()",
    "DROP FUNCTION IF EXISTS millstream.note_rewrite()",
    "DROP FUNCTION IF EXISTS millstream.compared(jsonb, jsonb)",
    "DROP FUNCTION IF EXISTS millstream.shape_of(oid)",
    "DROP FUNCTION IF EXISTS millstream.full_name(oid)",
    "DROP FUNCTION IF EXISTS millstream.written_name(text, text)",
    "DROP TABLE IF EXISTS millstream.shapes",
    "DROP SCHEMA IF EXISTS millstream",  # unless somebody else keeps something there
)
_SLOT_STATE: Final = """
SELECT confirmed_flush_lsn - '0/0', restart_lsn - '0/0', active_pid, wal_status
  FROM pg_replication_slots WHERE slot_name = %s
"""
_PUBLISHED: Final = """
SELECT t.schemaname, t.tablename
  FROM pg_publication_tables t JOIN pg_publication p USING (pubname)
 WHERE pubname = %s AND pubinsert AND pubupdate AND pubdelete AND pubtruncate
"""


def slot_name(capture: str) -> str:
    """A slot's name has small letters, digits and underscores: others are told apart by a hash."""
    plain = f"millstream_{capture}"
    name = _NOT_IN_A_SLOT.sub("_", plain.lower())
    if name == plain and len(name) <= NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(capture.encode()).hexdigest()[:8]
    return f"{name[: NAME_BYTES_MAX - 9]}_{digest}"


class SlotState:
    def __init__(self, row: Sequence[Any]) -> None:
        confirmed, restart, self.pid, self.wal_status = row
        self.confirmed = int(confirmed or 0)
        self.restart = None if restart is None else int(restart)


class Slot:
    """The slot and the publication of one capture; both have the same name."""

    def __init__(self, catalogue: Catalogue, capture: str) -> None:
        self._catalogue = catalogue
        self.name = slot_name(capture)

    def state(self) -> SlotState | None:
        rows = self._catalogue.ask(_SLOT_STATE, [self.name])
        return SlotState(rows[0]) if rows else None

    def has_publication(self) -> bool:
        asked = "SELECT true FROM pg_publication WHERE pubname = %s"
        return bool(self._catalogue.one(asked, [self.name]))

    def published(self) -> list[str]:
        """Those of which all is told."""
        return [full_name(*row) for row in self._catalogue.ask(_PUBLISHED, [self.name])]

    def make(self, tables: Sequence[TableFacts]) -> int:
        """Where the slot begins. What is there already stays as it is."""
        self.make_triggers()
        if not self.has_publication():
            self._run(self.publication_statement(tables))
        self.add_tables(tables)
        state = self.state()
        if state is not None:
            return state.confirmed
        made = "SELECT lsn - '0/0' FROM pg_create_logical_replication_slot(%s, 'pgoutput')"
        return int(self._catalogue.one(made, [self.name]))

    def add_tables(self, tables: Sequence[TableFacts]) -> None:
        """Those that are not published yet."""
        published = {*self.published()}
        missing = [table for table in tables if table.full_name not in published]
        if missing:
            name = sql.Identifier(self.name)
            self._run(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, _list(missing)))
        self.know_shapes()

    def publication_statement(self, tables: Sequence[TableFacts]) -> sql.Composed:
        """An explicit list: FOR ALL TABLES would refuse updates of tables without an identity."""
        options = ["publish_via_partition_root = true"]
        if self._catalogue.server_version >= GENERATED_COLUMNS_SINCE:
            options.append("publish_generated_columns = stored")
        statement = "CREATE PUBLICATION {} FOR TABLE {} WITH (" + ", ".join(options) + ")"
        return sql.SQL(statement).format(sql.Identifier(self.name), _list(tables))

    def make_triggers(self) -> None:
        """Where the login may: DDL that changes old rows is seen then. `checks.py` says so if not.

        Asked at every start: what an older release made is replaced.
        """
        if not self._may_make_trigger() or self._has_triggers():
            return
        with self._catalogue.connection.transaction():
            self._catalogue.ask(_ONE_AT_A_TIME)
            for statement in (*_MAKE, _MARK, _CATCH_UP):
                self._catalogue.connection.execute(self._own(statement))

    def know_shapes(self) -> None:
        """Of tables that are published since: what DDL changes is judged by them."""
        if self._has_triggers():
            self._catalogue.connection.execute(self._own(_KNOW_SHAPES))

    def _own(self, statement: LiteralString) -> sql.Composed:
        return sql.SQL(statement).format(
            schema=sql.Identifier(SCHEMA),
            altered=sql.Identifier(ALTERED_TRIGGER),
            rewrites=sql.Identifier(TRIGGER),
            dropped=sql.Identifier(DROPPED_TRIGGER),
            prefix=sql.Literal(REWRITE_PREFIX),
            dropped_prefix=sql.Literal(DROPPED_PREFIX),
            digest=sql.Literal(_DIGEST),
            publication=sql.Literal(self.name),
        )

    def drop(self) -> None:
        if self.state() is not None:
            self._catalogue.ask("SELECT pg_drop_replication_slot(%s)", [self.name])
        self._run(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(self.name)))
        others = "SELECT true FROM pg_publication WHERE starts_with(pubname, 'millstream_')"
        if self._may_make_trigger() and not self._catalogue.one(others):
            with contextlib.suppress(psycopg.errors.DependentObjectsStillExist):
                for statement in _DROP_TRIGGER:
                    self._run(sql.SQL(statement))

    def _may_make_trigger(self) -> bool:
        asked = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
        return bool(self._catalogue.one(asked))

    def _has_triggers(self) -> bool:
        return bool(self._catalogue.one(_IS_MADE, [ALTERED_TRIGGER, _DIGEST]))

    def _run(self, statement: sql.SQL | sql.Composed) -> None:
        """What another capture has made meanwhile is there too."""
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            self._catalogue.connection.execute(statement)


def _list(tables: Sequence[TableFacts]) -> sql.Composed:
    """Without those that inherit from them: their rows are not the parent's. Of a partitioned
    table, all partitions belong to it all the same."""
    named = [sql.Identifier(table.schema, table.name) for table in tables]
    return sql.SQL(", ").join(sql.SQL("ONLY {}").format(name) for name in named)
