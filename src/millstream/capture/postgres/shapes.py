"""What a table's rows depend on besides their own bytes, as the server sees it. Pure: SQL texts.

Some DDL changes the rows that are there without a row being written: a column gets a default, a
name or another type, a label of an enum is renamed, a composite gets an attribute, a partition is
attached. The functions below tell such DDL from DDL that leaves old rows alone:

    written_name(text, text)   "public.orders" of both parts, as `catalogue.full_name` writes it
    full_name(oid)             the same, of a table that is there
    shape_of(oid)              all of this, as jsonb
    compared(before, after)    `after`, with `must_load`: whether old rows are not what they were

Captures by the log call them in an event trigger (slot.py), captures by triggers whenever they look
(postgres_triggers/change_log.py). docs/reference/schema_changes.md lists what follows.
"""

from typing import Final, LiteralString

# As catalogue.full_name: a schema with a dot in it needs quotes, so that the first dot ends it.
WRITTEN_NAME: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.written_name(of_schema text, of_table text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog AS $shape$
  SELECT CASE WHEN of_schema ~ '[."]' THEN '"' || replace(of_schema, '"', '""') || '"'
              ELSE of_schema END
         || '.' ||
         CASE WHEN starts_with(of_table, '"') THEN '"' || replace(of_table, '"', '""') || '"'
              ELSE of_table END
$shape$
"""
FULL_NAME: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.full_name(of_relation oid) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog AS $shape$
  SELECT {schema}.written_name(n.nspname, c.relname)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = of_relation
$shape$
"""

# columns: by name, as rows in a topic have names. `type` is what a domain is made of; varchar and
#   text are one, as their values are. `missing` is what old rows have that were never written.
# labels, attributes: of all enums and composites that columns are made of, however deep.
# parts: the partitions with rows. files, touched: both change when a table is rewritten.
SHAPE_OF: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.shape_of(of_relation oid) RETURNS jsonb LANGUAGE sql STABLE
SET search_path = pg_catalog AS $shape$
  WITH RECURSIVE columns AS (
    SELECT a.attname, a.attnum, a.atttypid, a.attmissingval::text AS missing,
           CASE WHEN a.attgenerated <> '' THEN pg_get_expr(d.adbin, d.adrelid) END AS expression
      FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
     WHERE a.attrelid = of_relation AND a.attnum > 0 AND NOT a.attisdropped
       AND (a.attgenerated = '' OR (a.attgenerated = 's'
            AND current_setting('server_version_num')::int >= 180000))),
  types (oid) AS (
    SELECT atttypid FROM columns
    UNION SELECT part.oid FROM types JOIN pg_type t ON t.oid = types.oid CROSS JOIN LATERAL (
            SELECT t.typbasetype UNION ALL SELECT t.typelem
            UNION ALL SELECT r.rngsubtype FROM pg_range r
                       WHERE r.rngtypid = t.oid OR to_jsonb(r) ->> 'rngmultitypid' = t.oid::text
            UNION ALL SELECT a.atttypid FROM pg_attribute a
                       WHERE t.typrelid <> 0 AND a.attrelid = t.typrelid AND a.attnum > 0
                         AND NOT a.attisdropped) AS part (oid)
           WHERE part.oid <> 0),
  bases (attnum, oid) AS (
    SELECT attnum, atttypid FROM columns
    UNION ALL SELECT b.attnum, t.typbasetype FROM bases b JOIN pg_type t ON t.oid = b.oid
               WHERE t.typtype = 'd')
  SELECT jsonb_build_object(
    'natts', c.relnatts,
    'columns', (
      SELECT coalesce(jsonb_object_agg(attname, jsonb_build_object(
               'at', attnum, 'missing', missing, 'expression', expression,
               'type', CASE b.oid WHEN 1043 THEN 25 ELSE b.oid END::bigint)), '{{}}')
        FROM columns JOIN bases b USING (attnum) JOIN pg_type t ON t.oid = b.oid
       WHERE t.typtype <> 'd'),
    'labels', (
      SELECT coalesce(jsonb_object_agg(e.oid::text, e.enumlabel), '{{}}')
        FROM types JOIN pg_enum e ON e.enumtypid = types.oid),
    'attributes', (
      SELECT coalesce(jsonb_object_agg(t.oid::text, (
               SELECT jsonb_agg(a.attnum ORDER BY a.attnum) FROM pg_attribute a
                WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)), '{{}}')
        FROM types JOIN pg_type t ON t.oid = types.oid WHERE t.typrelid <> 0),
    'parts', CASE c.relkind WHEN 'p' THEN (
      SELECT coalesce(jsonb_agg(relid::oid::bigint ORDER BY relid::oid), '[]')
        FROM pg_partition_tree(c.oid) WHERE isleaf AND relid <> c.oid) END,
    'files', (
      SELECT string_agg(f.relfilenode::text, ' ' ORDER BY f.oid) FROM pg_class f
       WHERE f.oid = c.oid OR f.oid IN (SELECT relid FROM pg_partition_tree(c.oid))),
    'touched', (
      SELECT string_agg(a.xmin::text, ' ' ORDER BY a.attnum) FROM pg_attribute a
       WHERE a.attrelid = c.oid AND a.attnum > 0))
    FROM pg_class c WHERE c.oid = of_relation
$shape$
"""

# A column that comes with a number that is not new was renamed, or was not published before. One
# that comes with the name of one that went leaves old values in the topic, unless it is loaded:
# `gone` has these names, since the table was last loaded.
COMPARED: Final[LiteralString] = """
CREATE OR REPLACE FUNCTION {schema}.compared(before jsonb, after jsonb) RETURNS jsonb LANGUAGE sql
IMMUTABLE SET search_path = pg_catalog AS $shape$
  WITH columns AS (
    SELECT name, b.facts AS had, a.facts AS has
      FROM jsonb_each(before -> 'columns') AS b (name, facts)
      FULL JOIN jsonb_each(after -> 'columns') AS a (name, facts) USING (name)),
  judged AS (
    SELECT EXISTS (
             SELECT FROM columns WHERE had IS NULL AND (
               (has ->> 'at')::int <= (before ->> 'natts')::int
               OR has ->> 'missing' IS NOT NULL OR before -> 'gone' ? name))
        OR EXISTS (
             SELECT FROM columns WHERE had -> 'at' <> has -> 'at' OR had -> 'type' <> has -> 'type'
                OR had ->> 'expression' <> has ->> 'expression')
        OR EXISTS (
             SELECT FROM jsonb_each(before -> 'labels') AS b (oid, found)
               JOIN jsonb_each(after -> 'labels') AS a (oid, found) USING (oid)
              WHERE a.found <> b.found)
        OR EXISTS (
             SELECT FROM jsonb_each(before -> 'attributes') AS b (oid, found)
               JOIN jsonb_each(after -> 'attributes') AS a (oid, found) USING (oid)
              WHERE a.found <> b.found)
        OR coalesce(before -> 'parts' <> after -> 'parts', false) AS must_load)
  SELECT after || jsonb_build_object('must_load', must_load, 'gone',
           CASE WHEN must_load THEN '[]' ELSE coalesce(before -> 'gone', '[]') || (
             SELECT coalesce(jsonb_agg(name), '[]') FROM columns WHERE has IS NULL) END)
    FROM judged
$shape$
"""

FUNCTIONS: Final = (WRITTEN_NAME, FULL_NAME, SHAPE_OF, COMPARED)
