"""What the database says of its tables, types and keys, now.

One connection of the thread that asks; it is opened when it is needed, and again when it is lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, LiteralString, NamedTuple

import psycopg

from millstream.capture.postgres.types import TypeFacts
from millstream.capture.postgres.wire import Relation, RelationColumn
from millstream.capture.table_names import full_name
from millstream.capture.table_names import split_name as split_full_name

DEFAULT_SCHEMA: Final = "public"
GENERATED_COLUMNS_SINCE: Final = 180000  # the version that can publish stored ones

_TABLES: Final = """
SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text,
       has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE'),
       row_security_active(c.oid),
       c.relkind = 'r' AND EXISTS (
         SELECT FROM pg_inherits h WHERE h.inhrelid = c.oid OR h.inhparent = c.oid),
       i.key, i.identity_key
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL (
         SELECT array_agg(a.attname::text ORDER BY k.place)
                  FILTER (WHERE i.indisprimary AND i.indisvalid) AS key,
                array_agg(a.attname::text ORDER BY k.place)
                  FILTER (WHERE i.indisreplident) AS identity_key
           FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k(attnum, place), pg_attribute a
          WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)
            AND k.place <= i.indnkeyatts AND a.attrelid = c.oid AND a.attnum = k.attnum) i
 WHERE (n.nspname, c.relname) IN (SELECT * FROM unnest(%s::text[], %s::text[]))
   AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_COLUMNS: Final = """
SELECT a.attname, a.atttypid, a.atttypmod FROM pg_attribute a
 WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
   AND (a.attgenerated = '' OR (%s AND a.attgenerated = 's'))
 ORDER BY a.attnum
"""
_TYPES: Final = """
WITH RECURSIVE asked AS (
  SELECT t.* FROM pg_type t WHERE t.oid = ANY(%s::oid[])
  UNION SELECT t.* FROM pg_type t, asked a
         WHERE t.oid IN (a.typbasetype, CASE a.typcategory WHEN 'A' THEN a.typelem ELSE 0 END))
SELECT oid, typtype::text, typbasetype, typtypmod,
       CASE typcategory WHEN 'A' THEN typelem ELSE 0 END, typdelim::text FROM asked
"""
_TYPE_NAMES: Final = "SELECT format_type(o, m) FROM unnest(%s::oid[], %s::int[]) AS c(o, m)"


class TableFacts(NamedTuple):
    """A relation of any kind, as the catalogue has it. `key` is of its primary key."""

    oid: int
    schema: str
    name: str
    kind: str  # r: a table, p: a partitioned one; v, m, f: none that can be captured
    persistence: str  # p: permanent, u: not logged, t: temporary
    identity: str
    is_readable: bool
    is_owned: bool
    is_filtered: bool  # by row security
    has_family: bool  # it inherits from another table, or others from it; or it is a partition
    key: tuple[str, ...]
    identity_key: tuple[str, ...]  # of the index that is its replica identity, for identity i

    @property
    def full_name(self) -> str:
        return full_name(self.schema, self.name)


class Catalogue:
    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._types: dict[int, TypeFacts] = {}

    @property
    def connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._conninfo, autocommit=True)
        return self._connection

    @property
    def server_version(self) -> int:
        return self.connection.info.server_version

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, query: LiteralString, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, given).fetchall()

    def one(self, query: LiteralString, given: Sequence[Any] = ()) -> Any:
        """The first value of the first row; None if there is none."""
        rows = self.ask(query, given)
        return rows[0][0] if rows else None

    def tables(self, names: Iterable[str]) -> list[TableFacts]:
        """Those of these names that are there, in the order of the names."""
        asked = [split_name(name) for name in names]
        rows = self.ask(_TABLES, [[one[0] for one in asked], [one[1] for one in asked]])
        found = {(row[1], row[2]): _facts(row) for row in rows}
        return [found[one] for one in dict.fromkeys(asked) if one in found]

    def relation(self, table: TableFacts) -> Relation:
        """As the stream would describe it."""
        columns = self.ask(_COLUMNS, [table.oid, self.server_version >= GENERATED_COLUMNS_SINCE])
        identity = {"d": table.key, "i": table.identity_key}.get(table.identity, ())
        described = tuple(
            RelationColumn(name, oid, modifier, table.identity == "f" or name in identity)
            for name, oid, modifier in columns
        )
        return Relation(table.oid, table.schema, table.name, table.identity, described)

    def types(self, oids: Iterable[int]) -> Mapping[int, TypeFacts]:
        """These, and those that they are made of."""
        missing = sorted({*oids} - self._types.keys())
        if missing:
            found = [TypeFacts(*row) for row in self.ask(_TYPES, [missing])]
            self._types |= {one.oid: one for one in found}
        return self._types

    def type_names(self, columns: Sequence[RelationColumn]) -> list[str]:
        oids = [column.type_oid for column in columns]
        modifiers = [column.type_modifier for column in columns]
        return [row[0] for row in self.ask(_TYPE_NAMES, [oids, modifiers])]


def _facts(row: tuple[Any, ...]) -> TableFacts:
    *facts, key, identity_key = row
    return TableFacts._make((*facts, tuple(key or ()), tuple(identity_key or ())))


def split_name(name: str) -> tuple[str, str]:
    """`orders` is public.orders."""
    return split_full_name(name, DEFAULT_SCHEMA)
