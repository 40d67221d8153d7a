"""What a capture makes in the database, and takes away again: publication, slot, event trigger.

In this order. A slot remembers the publications of its time: one that was made later is not found
by a server of version 15, or passed over by 18. Neither is ever made again silently: what changed
without them is lost, and a person has to know.
"""

import contextlib
import hashlib
import re
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg import sql

from millstream.capture.postgres.catalogue import (
    GENERATED_COLUMNS_SINCE,
    Catalogue,
    TableFacts,
)
from millstream.capture.postgres.transactions import REWRITE_PREFIX

NAME_BYTES_MAX: Final = 63
_NOT_IN_A_SLOT: Final = re.compile(r"[^a-z0-9_]")
TRIGGER: Final = "millstream_rewrites"
ALTERED_TRIGGER: Final = "millstream_altered"
# Runs inside of the statement that rewrites a table, as whoever does it: it must not fail.
_NOTE_REWRITE: Final = f"""
CREATE OR REPLACE FUNCTION millstream.note_rewrite() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  PERFORM pg_logical_emit_message(true, '{REWRITE_PREFIX}', n.nspname || '.' || c.relname)
     FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = coalesce(pg_partition_root(pg_event_trigger_table_rewrite_oid()),
                           pg_event_trigger_table_rewrite_oid());
END $$
"""
# Rows that are there get a value without a word in the log: of a column that is added with a
# default (it is "missing" in them), or renamed; or they come and go with their partition. What has
# no age was written by this transaction, or inside of it.
_NOTE_ALTERED: Final = f"""
CREATE OR REPLACE FUNCTION millstream.note_altered() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  PERFORM pg_logical_emit_message(true, '{REWRITE_PREFIX}', t.name)
     FROM (SELECT DISTINCT n.nspname || '.' || c.relname AS name
             FROM pg_event_trigger_ddl_commands() d
             JOIN pg_class c ON c.oid = coalesce(pg_partition_root(d.objid), d.objid)
             JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE d.classid = 'pg_class'::regclass AND c.relkind IN ('r', 'p')
              AND (d.object_type = 'table column' OR c.relkind = 'p' OR EXISTS (
                   SELECT FROM pg_attribute a
                    WHERE a.attrelid = d.objid AND a.atthasmissing AND age(a.xmin) <= 0))) t;
END $$
"""
_MAKE_TRIGGER: Final = (
    "CREATE SCHEMA IF NOT EXISTS millstream",
    _NOTE_REWRITE,
    _NOTE_ALTERED,
    f"CREATE EVENT TRIGGER {ALTERED_TRIGGER} ON ddl_command_end WHEN TAG IN ('ALTER TABLE') "
    "EXECUTE FUNCTION millstream.note_altered()",
    f"CREATE EVENT TRIGGER {TRIGGER} ON table_rewrite EXECUTE FUNCTION millstream.note_rewrite()",
)
_DROP_TRIGGER: Final = (
    f"DROP EVENT TRIGGER IF EXISTS {TRIGGER}",
    f"DROP EVENT TRIGGER IF EXISTS {ALTERED_TRIGGER}",
    "DROP FUNCTION IF EXISTS millstream.note_altered()",
    "DROP FUNCTION IF EXISTS millstream.note_rewrite()",
    "DROP SCHEMA IF EXISTS millstream",  # unless somebody else keeps something there
)
_SLOT_STATE: Final = """
SELECT confirmed_flush_lsn - '0/0', restart_lsn - '0/0', active_pid, wal_status
  FROM pg_replication_slots WHERE slot_name = %s
"""
_PUBLISHED: Final = """
SELECT t.schemaname || '.' || t.tablename
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
        return [row[0] for row in self._catalogue.ask(_PUBLISHED, [self.name])]

    def make(self, tables: Sequence[TableFacts]) -> int:
        """Where the slot begins. What is there already stays as it is."""
        self.make_trigger()
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

    def publication_statement(self, tables: Sequence[TableFacts]) -> sql.Composed:
        """An explicit list: FOR ALL TABLES would refuse updates of tables without an identity."""
        options = ["publish_via_partition_root = true"]
        if self._catalogue.server_version >= GENERATED_COLUMNS_SINCE:
            options.append("publish_generated_columns = stored")
        statement = "CREATE PUBLICATION {} FOR TABLE {} WITH (" + ", ".join(options) + ")"
        return sql.SQL(statement).format(sql.Identifier(self.name), _list(tables))

    def make_trigger(self) -> None:
        """Where the login may: rewrites of tables are seen then. `checks.py` says so if not."""
        if self._may_make_trigger() and not self._has_trigger():
            for statement in _MAKE_TRIGGER:
                self._run(sql.SQL(statement))

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

    def _has_trigger(self) -> bool:
        asked = "SELECT true FROM pg_event_trigger WHERE evtname = %s"
        return bool(self._catalogue.one(asked, [TRIGGER]))

    def _run(self, statement: sql.SQL | sql.Composed) -> None:
        """What another capture has made meanwhile is there too."""
        with contextlib.suppress(psycopg.errors.DuplicateObject):
            self._catalogue.connection.execute(statement)


def _list(tables: Sequence[TableFacts]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(table.schema, table.name) for table in tables)
