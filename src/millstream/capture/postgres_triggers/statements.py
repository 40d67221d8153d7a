"""What a capture by triggers makes in a database: a schema with three tables and a function. Pure.

A trigger fires once for a statement, after it: rows are locked by then, so of two transactions
that change one row the later one gets the higher number. The function runs as its owner, and with
settings of its own: the text of a value does not depend on who writes it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final, LiteralString

from psycopg import sql

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

_FUNCTION: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
{settings} AS $note$
DECLARE
  found_shape bigint;
BEGIN
  SELECT s.id INTO found_shape
    FROM {schema}.shapes s, (
           SELECT array_agg(attname ORDER BY attnum) AS names,
                  array_agg(atttypid ORDER BY attnum) AS types,
                  array_agg(atttypmod ORDER BY attnum) AS modifiers
             FROM pg_attribute WHERE attrelid = TG_RELID AND attnum > 0 AND NOT attisdropped) a
   WHERE s.relation = TG_RELID AND s.names = a.names AND s.types = a.types
     AND s.modifiers = a.modifiers
   ORDER BY s.id DESC LIMIT 1;
  IF found_shape IS NULL THEN
    found_shape := {schema}.note_shape(TG_RELID);
  END IF;
  IF TG_OP = 'INSERT' THEN
    INSERT INTO {schema}.changes (op, shape, new) SELECT 'c', found_shape, n::text FROM new_rows n;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO {schema}.changes (op, shape, old) SELECT 'd', found_shape, o::text FROM old_rows o;
  ELSIF TG_OP = 'UPDATE' THEN
    -- Both tables have the rows in the order in which they were updated.
    INSERT INTO {schema}.changes (op, shape, old, new)
    SELECT 'u', found_shape, o.row, n.row
      FROM (SELECT row_number() OVER () AS place, x::text AS row FROM old_rows x) o
      FULL JOIN (SELECT row_number() OVER () AS place, x::text AS row FROM new_rows x) n
        USING (place)
     ORDER BY place;
  ELSE
    INSERT INTO {schema}.changes (op, shape) VALUES ('t', found_shape);
  END IF;
  RETURN NULL;
END $note$
"""
# Two sessions may note one shape at a time: neither waits, and one of them is enough.
_SHAPE_FUNCTION: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.note_shape(of_relation oid) RETURNS bigint LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog AS $note$
  INSERT INTO {schema}.shapes
    (relation, schema, "table", names, types, modifiers, generated, key)
  SELECT c.oid, n.nspname, c.relname, a.names, a.types, a.modifiers, a.generated,
         coalesce((SELECT array_agg(k.attname ORDER BY place)
                     FROM pg_index i, unnest(i.indkey) WITH ORDINALITY p(attnum, place),
                          pg_attribute k
                    WHERE i.indrelid = c.oid AND i.indisprimary AND place <= i.indnkeyatts
                      AND k.attrelid = c.oid AND k.attnum = p.attnum), '{{}}')
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
_TRIGGERS: Final[Mapping[str, LiteralString]] = {
    "insert": "CREATE TRIGGER {trigger} AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows "
    "FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()",
    "update": "CREATE TRIGGER {trigger} AFTER UPDATE ON {table} REFERENCING OLD TABLE AS old_rows "
    "NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()",
    "delete": "CREATE TRIGGER {trigger} AFTER DELETE ON {table} REFERENCING OLD TABLE AS old_rows "
    "FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()",
    "truncate": "CREATE TRIGGER {trigger} AFTER TRUNCATE ON {table} "
    "FOR EACH STATEMENT EXECUTE FUNCTION {schema}.note()",
}
_ENABLE: Final[LiteralString] = "ALTER TABLE {table} ENABLE TRIGGER {trigger}"


def schema_name(capture: str) -> str:
    """One for each capture, short enough for PostgreSQL: as its replication slot would be named."""
    return slot_name(capture)


def trigger_names(capture: str) -> dict[str, str]:
    """By what they fire on."""
    return {kind: f"millstream_{kind}_{_digest(capture)}" for kind in _TRIGGERS}


def _digest(capture: str) -> str:
    return hashlib.sha256(capture.encode()).hexdigest()[:12]


def creating(capture: str) -> Iterator[sql.Composed]:
    schema = sql.Identifier(schema_name(capture))
    settings = sql.SQL("\n").join(
        sql.SQL("SET {} = {}").format(sql.Identifier(name.lower()), sql.Literal(value))
        for name, value in OWN_SETTINGS.items()
    )
    seq = sql.Literal(f'"{schema_name(capture)}".seq')
    for statement in (*_TABLES, _SHAPE_FUNCTION, _FUNCTION):
        yield sql.SQL(statement).format(schema=schema, settings=settings, seq=seq)


def making_triggers(
    capture: str, schema: str, table: str, found: Mapping[str, bool]
) -> Iterator[sql.Composed]:
    """Those that are missing. `found`: names of those that are there, and whether they fire."""
    for kind, trigger in trigger_names(capture).items():
        if not found.get(trigger, False):
            statement = _ENABLE if trigger in found else _TRIGGERS[kind]
            yield sql.SQL(statement).format(
                schema=sql.Identifier(schema_name(capture)),
                table=sql.Identifier(schema, table),
                trigger=sql.Identifier(trigger),
            )
