"""What a capture by triggers makes in a database: a schema with three tables and a function. Pure.

A trigger fires once for a statement, after it: rows are locked by then, so of two transactions
that change one row the later one gets the higher number. The function runs as its owner, and with
settings of its own: the text of a value does not depend on who writes it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final, LiteralString

from psycopg import sql

from millstream.capture.postgres import shapes
from millstream.capture.postgres.catalogue import TableFacts
from millstream.capture.postgres.json_forms import SESSION_OPTIONS
from millstream.capture.postgres.slot import slot_name

OWN_SETTINGS: Final = {
    name: value for name, value in SESSION_OPTIONS.items() if name != "row_security"
}

_TABLES: Final[tuple[LiteralString, ...]] = (
    "CREATE SCHEMA IF NOT EXISTS {schema}",
    # Numbers that a session kept for later would come in a wrong order.
    "CREATE SEQUENCE IF NOT EXISTS {schema}.seq CACHE 1",
    """
    CREATE TABLE IF NOT EXISTS {schema}.shapes (
      id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, relation oid NOT NULL,
      schema name NOT NULL, "table" name NOT NULL, names name[] NOT NULL, types oid[] NOT NULL,
      modifiers int[] NOT NULL, generated "char"[] NOT NULL, key name[] NOT NULL)
    """,
    "CREATE INDEX IF NOT EXISTS shapes_of ON {schema}.shapes (relation)",
    """
    CREATE TABLE IF NOT EXISTS {schema}.changes (
      xid xid8 DEFAULT pg_current_xact_id(), seq bigint DEFAULT nextval({seq}),
      at timestamptz NOT NULL DEFAULT clock_timestamp(), op "char" NOT NULL, shape bigint NOT NULL,
      old text, new text, PRIMARY KEY (xid, seq))
      WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)
    """,
    """
    CREATE TABLE IF NOT EXISTS {schema}.marks (
      xid_end bigint, running int, snapshot pg_snapshot NOT NULL, reloads text[] NOT NULL,
      at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (xid_end, running))
    """,
    """
    CREATE TABLE IF NOT EXISTS {schema}.captured (
      relation oid PRIMARY KEY, filenode oid NOT NULL, columns text NOT NULL)
    """,
)

# Names of ours are qualified, and rows are written as `x.*`: a column of the table may have any
# name, of ours too, and must not be taken for what we mean.
_FUNCTION: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
{settings} AS $note$
<<noted>>
DECLARE
  found_shape bigint := {schema}.found_shape(TG_RELID);
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO {schema}.changes (op, shape, new)
    SELECT 'c', noted.found_shape, (x.*)::text FROM new_rows x;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO {schema}.changes (op, shape, old)
    SELECT 'd', noted.found_shape, (x.*)::text FROM old_rows x;
  ELSIF TG_OP = 'UPDATE' THEN
    -- Both tables have the rows in the order in which they were updated.
    INSERT INTO {schema}.changes (op, shape, old, new)
    SELECT 'u', noted.found_shape, o.row, n.row
      FROM (SELECT row_number() OVER () AS place, (x.*)::text AS row FROM old_rows x) o
      FULL JOIN (SELECT row_number() OVER () AS place, (x.*)::text AS row FROM new_rows x) n
        USING (place)
     ORDER BY place;
  ELSE
    INSERT INTO {schema}.changes (op, shape) VALUES ('t', noted.found_shape);
  END IF;
  RETURN NULL;
END $note$
"""
# For tables that inherit or are inherited from, and for partitions that are captured by their own
# names: only triggers of rows are of the rows of one table, whichever table a statement names.
_ROW_FUNCTION: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.note_row() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
{settings} AS $note$
<<noted>>
DECLARE
  found_shape bigint := {schema}.found_shape(TG_RELID);
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO {schema}.changes (op, shape, new) VALUES ('c', found_shape, NEW::text);
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO {schema}.changes (op, shape, old) VALUES ('d', found_shape, OLD::text);
  ELSE
    INSERT INTO {schema}.changes (op, shape, old, new)
    VALUES ('u', found_shape, OLD::text, NEW::text);
  END IF;
  RETURN NULL;
END $note$
"""
# The columns of the key: of its replica identity, if that is an index, as in captures by the log.
_KEY_FUNCTION: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.key_of(of_relation oid) RETURNS name[] LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = pg_catalog AS $note$
  SELECT coalesce(array_agg(k.attname ORDER BY p.place), '{{}}')
    FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid
     AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END,
         unnest(i.indkey) WITH ORDINALITY p(attnum, place), pg_attribute k
   WHERE c.oid = of_relation AND p.place <= i.indnkeyatts AND k.attrelid = c.oid
     AND k.attnum = p.attnum
$note$
"""
# The newest shape of the table, if it is still the same; or a new one.
_FOUND_SHAPE_FUNCTION: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.found_shape(of_relation oid) RETURNS bigint LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog AS $note$
DECLARE
  found_id bigint;
BEGIN
  SELECT s.id INTO found_id
    FROM {schema}.shapes s, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, (
           SELECT array_agg(attname ORDER BY attnum) AS names,
                  array_agg(atttypid ORDER BY attnum) AS types,
                  array_agg(atttypmod ORDER BY attnum) AS modifiers
             FROM pg_attribute WHERE attrelid = of_relation AND attnum > 0 AND NOT attisdropped) a
   WHERE s.relation = of_relation AND c.oid = of_relation AND s.names = a.names
     AND s.types = a.types AND s.modifiers = a.modifiers
     AND s.schema = n.nspname AND s."table" = c.relname AND s.key = {schema}.key_of(of_relation)
   ORDER BY s.id DESC LIMIT 1;
  RETURN coalesce(found_id, {schema}.note_shape(of_relation));
END $note$
"""
# Two sessions may note one shape at a time: neither waits, and one of them is enough.
_SHAPE_FUNCTION: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.note_shape(of_relation oid) RETURNS bigint LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog AS $note$
  INSERT INTO {schema}.shapes
    (relation, schema, "table", names, types, modifiers, generated, key)
  SELECT c.oid, n.nspname, c.relname, a.names, a.types, a.modifiers, a.generated,
         {schema}.key_of(c.oid)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
         LATERAL (SELECT array_agg(attname ORDER BY attnum) AS names,
                         array_agg(atttypid ORDER BY attnum) AS types,
                         array_agg(atttypmod ORDER BY attnum) AS modifiers,
                         array_agg(attgenerated ORDER BY attnum) AS generated
                    FROM pg_attribute
                   WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) a
   WHERE c.oid = of_relation
  RETURNING id
$note$
"""
_FUNCTIONS: Final = (
    *shapes.FUNCTIONS,
    _KEY_FUNCTION,
    _SHAPE_FUNCTION,
    _FOUND_SHAPE_FUNCTION,
    _FUNCTION,
    _ROW_FUNCTION,
)
_STATEMENT_TRIGGERS: Final[Mapping[str, LiteralString]] = {
    "insert": "CREATE TRIGGER {trigger} AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows "
    "FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()",
    "update": "CREATE TRIGGER {trigger} AFTER UPDATE ON {table} REFERENCING OLD TABLE AS old_rows "
    "NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()",
    "delete": "CREATE TRIGGER {trigger} AFTER DELETE ON {table} REFERENCING OLD TABLE AS old_rows "
    "FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()",
}
_ROW_TRIGGERS: Final[Mapping[str, LiteralString]] = {
    "rows": "CREATE TRIGGER {trigger} AFTER INSERT OR UPDATE OR DELETE ON {table} "
    "FOR EACH ROW EXECUTE FUNCTION {schema}.note_row()",
}
_TRUNCATE_TRIGGER: Final[Mapping[str, LiteralString]] = {
    "truncate": "CREATE TRIGGER {trigger} AFTER TRUNCATE ON {table} "
    "FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()",
}
# How pg_trigger.tgenabled says it: always fires also for a session that applies what another server
# sent (session_replication_role = replica). Only who owns the table may ask for it.
FIRES: Final = "O"
FIRES_ALWAYS: Final = "A"
_ENABLE: Final[Mapping[str, LiteralString]] = {
    FIRES: "ALTER TABLE {table} ENABLE TRIGGER {trigger}",
    FIRES_ALWAYS: "ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}",
}
_DROP: Final[LiteralString] = "DROP TRIGGER {trigger} ON {table}"


def schema_name(capture: str) -> str:
    """One for each capture, short enough for PostgreSQL: as its replication slot would be named."""
    return slot_name(capture)


def trigger_names(capture: str, *, has_family: bool) -> dict[str, str]:
    """By what they fire on. `has_family`: the table inherits, or is inherited from."""
    kinds = {**(_ROW_TRIGGERS if has_family else _STATEMENT_TRIGGERS), **_TRUNCATE_TRIGGER}
    return {kind: f"millstream_{kind}_{_digest(capture)}" for kind in kinds}


def all_trigger_names(capture: str) -> set[str]:
    return {
        name
        for has_family in (True, False)
        for name in trigger_names(capture, has_family=has_family).values()
    }


def _digest(capture: str) -> str:
    return hashlib.sha256(capture.encode()).hexdigest()[:12]


def creating(capture: str) -> Iterator[sql.Composed]:
    """What is there stays; functions are replaced, as an older release may have made others."""
    schema = sql.Identifier(schema_name(capture))
    settings = sql.SQL("\n").join(
        sql.SQL("SET {} = {}").format(sql.Identifier(name.lower()), sql.Literal(value))
        for name, value in OWN_SETTINGS.items()
    )
    seq = sql.Literal(f'"{schema_name(capture)}".seq')
    for statement in (*_TABLES, *_FUNCTIONS):
        yield sql.SQL(statement).format(schema=schema, settings=settings, seq=seq)


def making_triggers(
    capture: str, table: TableFacts, found: Mapping[str, str]
) -> Iterator[sql.Composed]:
    """Those that are missing. `found`: names of those that are there, and how they fire."""
    wanted = trigger_names(capture, has_family=table.has_family)
    fires = FIRES_ALWAYS if table.is_owned else FIRES
    statements = {**_STATEMENT_TRIGGERS, **_ROW_TRIGGERS, **_TRUNCATE_TRIGGER}

    def made(statement: LiteralString, trigger: str) -> sql.Composed:
        return sql.SQL(statement).format(
            schema=sql.Identifier(schema_name(capture)),
            table=sql.Identifier(table.schema, table.name),
            trigger=sql.Identifier(trigger),
        )

    for trigger in found.keys() - wanted.values():
        yield made(_DROP, trigger)
    for kind, trigger in wanted.items():
        if trigger not in found:
            yield made(statements[kind], trigger)
        if found.get(trigger, FIRES) not in (fires, FIRES_ALWAYS):
            yield made(_ENABLE[fires], trigger)


def do_fire(capture: str, table: TableFacts, found: Mapping[str, str]) -> bool:
    """Whether all that the table needs are there, and fire for what its users write."""
    wanted = trigger_names(capture, has_family=table.has_family)
    return found.keys() == {*wanted.values()} and {*found.values()} <= {FIRES, FIRES_ALWAYS}
