"""What a schema of PostgreSQL says of the views in it, inside of a transaction of the caller's.

`_millstream_views` has who writes a view, `_millstream_generations` what is kept of it; rows are in
`_millstream_rows_<id>_<generation>`, and a SQL view with the view's name shows the generation that
is served. The row of `_millstream_views` is locked by who changes anything of the view.
docs/formats/postgres_views.md draws it. Does not read or write rows.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from millstream.base.ports import BatchReceipt
from millstream.base.positions import positions_from
from millstream.schemas.spark_json import schema_from_spark_json, schema_to_spark_json
from millstream.views.receipts import KeptReceipt, OwnedByAnother
from millstream.views.store import Generation
from millstream.views.stores.postgres.connection import (
    NAME_BYTES_MAX,
    Connection,
    ServerRefused,
    ViewDamaged,
)
from millstream.views.stores.postgres.driver import errors, sql
from millstream.views.stores.postgres.values import type_of
from millstream.views.table_layout import BadView, StoredColumn, TableLayout

FORMAT = 1
OWN = "_millstream_"
MARK = "a view of millstream, made anew with each rebuild"
# The rest of a page is room for the next versions of its rows, which then need no new entry in
# the index.
ROWS_FILLED_PERCENT = 70
# PostgreSQL has these in every table.
SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
# Any number that others are not likely to lock: "Mill" in ASCII.
MAKING_TABLES = 0x4D696C6C

MAKE_TABLES = """
CREATE TABLE IF NOT EXISTS _millstream_views (
  view   text PRIMARY KEY,
  id     integer GENERATED ALWAYS AS IDENTITY UNIQUE,
  format integer NOT NULL,
  job    text NOT NULL,
  epoch  bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS _millstream_generations (
  id         integer REFERENCES _millstream_views (id) ON DELETE CASCADE,
  generation integer,
  served     boolean NOT NULL,
  key        jsonb NOT NULL,
  schema     jsonb NOT NULL,
  query      text,
  batch      bigint,
  positions  jsonb NOT NULL,
  PRIMARY KEY (id, generation)
);
"""


class NameTaken(ServerRefused):
    """A table of somebody else's has the view's name."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who writes a view: the row that is locked."""

    id: int
    job: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Kept:
    """One generation of a view."""

    layout: TableLayout
    is_served: bool
    receipt: KeptReceipt | None


# --- names


def require_names(layout: TableLayout) -> None:
    """PostgreSQL would cut off what is too long."""
    _require_name(layout.view, f"view {layout.view}")
    for column in layout.columns:
        _require_name(column.name, f"view {layout.view}: the column {column.name}")
        if column.name in SYSTEM_COLUMNS or column.name.startswith(OWN):
            raise BadView(
                f"view {layout.view}: no column can be named {column.name} in PostgreSQL. Rename it"
            )


def _require_name(name: str, what: str) -> None:
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        raise BadView(
            f"{what}: a name of {size} bytes; PostgreSQL takes {NAME_BYTES_MAX}. Give it a "
            "shorter one"
        )


def rows_table(id: int, generation: int) -> sql.Identifier:
    return sql.Identifier(f"{OWN}rows_{id}_{generation}")


def names_of(columns: Sequence[StoredColumn]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)


def typed(column: StoredColumn) -> sql.Composed:
    """As it is declared. Texts of a key are in the order of their code points, in every locale."""
    is_text_of_key = column.in_key and type_of(column) == "text"
    collation = ' COLLATE "C"' if is_text_of_key else ""
    return sql.SQL("{} {}").format(sql.Identifier(column.name), words(type_of(column) + collation))


def words(text: str) -> sql.SQL:
    """Of our own tables of types and operators; never a name or value that is given."""
    return sql.SQL(text)


# --- who writes


def make_tables(db: Connection, schema: str) -> None:
    """Two jobs may come here at once, and PostgreSQL's IF NOT EXISTS is not made for that.

    To be called in a transaction of its own: all jobs of the database wait for one another here.
    """
    db.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING_TABLES,))
    if db.execute("SELECT to_regnamespace(quote_ident(%s))", (schema,)).fetchone() == (None,):
        db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    for statement in MAKE_TABLES.split(";\n")[:-1]:
        db.execute(words(statement))


def has_tables(db: Connection) -> bool:
    return db.execute("SELECT to_regclass('_millstream_generations')").fetchone() != (None,)


def claim(db: Connection, view: str, job: str, *, place: str) -> Owner:
    db.execute(
        "INSERT INTO _millstream_views (view, format, job, epoch) VALUES (%s, %s, %s, 0)"
        " ON CONFLICT (view) DO NOTHING",
        (view, FORMAT, job),
    )
    owner = locked(db, view, place=place)
    if owner is None:
        raise ViewDamaged(place=place, problem="its row in _millstream_views goes away")
    if owner.job != job:
        raise OwnedByAnother(place=place, owner=owner.job, job=job)
    db.execute("UPDATE _millstream_views SET epoch = epoch + 1 WHERE id = %s", (owner.id,))
    return Owner(owner.id, job, owner.epoch + 1)


def locked(db: Connection, view: str, *, place: str) -> Owner | None:
    """Nobody else claims or writes the view until the transaction ends."""
    return _owner(db, "WHERE view = %s FOR UPDATE", view, place=place)


def looked_up(db: Connection, view: str, *, place: str) -> Owner | None:
    return _owner(db, "WHERE view = %s", view, place=place)


def _owner(db: Connection, which: LiteralString, view: str, *, place: str) -> Owner | None:
    found: Any = db.execute(
        sql.SQL("SELECT id, job, epoch, format FROM _millstream_views ") + sql.SQL(which), (view,)
    ).fetchone()
    if found is None:
        return None
    *owner, format = found
    require_format(format, place=place)
    return Owner(*owner)


def require_format(format: int, *, place: str) -> None:
    if format > FORMAT:
        problem = f"has format {format}, this version reads up to {FORMAT}: upgrade millstream"
        raise ServerRefused(place=place, problem=problem)


# --- generations


def kept_generation(db: Connection, view: str, id: int, generation: int) -> Kept | None:
    found: Any = db.execute(
        "SELECT key::text, schema::text, served, query, batch, positions"
        " FROM _millstream_generations"
        " WHERE id = %s AND generation = %s",
        (id, generation),
    ).fetchone()
    if found is None:
        return None
    key, schema, is_served, query, batch, positions = found
    receipt = None if query is None else KeptReceipt(query, batch, positions_from(positions))
    return Kept(layout_from(view, key, schema), is_served, receipt)


def layout_from(view: str, key: str, schema: str) -> TableLayout:
    return TableLayout(view, schema_from_spark_json(json.loads(schema)), tuple(json.loads(key)))


def all_generations(db: Connection, id: int) -> list[Generation]:
    found: Any = db.execute(
        "SELECT generation, served, batch, positions FROM _millstream_generations"
        " WHERE id = %s ORDER BY generation",
        (id,),
    )
    return [
        Generation(
            number=number, is_served=served, batch=batch, positions=positions_from(positions)
        )
        for number, served, batch, positions in found
    ]


def make_generation(db: Connection, id: int, generation: int, layout: TableLayout) -> None:
    table = rows_table(id, generation)
    db.execute(
        sql.SQL("CREATE TABLE {} ({}, UNIQUE NULLS NOT DISTINCT ({})) WITH ({})").format(
            table,
            sql.SQL(", ").join(map(typed, layout.columns)),
            names_of(layout.key_columns),
            words(f"fillfactor = {ROWS_FILLED_PERCENT}"),
        )
    )
    told = sql.Literal(f"view {layout.view}, generation {generation}; written by millstream alone")
    db.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, told))
    is_first = not all_generations(db, id)
    db.execute(
        "INSERT INTO _millstream_generations VALUES (%s, %s, %s, '[]', '{}', NULL, NULL, '{}')",
        (id, generation, is_first),
    )
    keep_schema(db, id, generation, layout)
    if is_first:
        show(db, layout.view, id, generation)


def keep_schema(db: Connection, id: int, generation: int, layout: TableLayout) -> None:
    db.execute(
        "UPDATE _millstream_generations SET key = %s, schema = %s"
        " WHERE id = %s AND generation = %s",
        (json.dumps(layout.key), json.dumps(schema_to_spark_json(layout.schema)), id, generation),
    )


def keep_receipt(db: Connection, id: int, generation: int, receipt: BatchReceipt) -> None:
    db.execute(
        "UPDATE _millstream_generations SET query = %s, batch = %s, positions = %s"
        " WHERE id = %s AND generation = %s",
        (receipt.query, receipt.batch, json.dumps(receipt.positions), id, generation),
    )


def grow(db: Connection, id: int, generation: int, kept: Kept, grown: TableLayout) -> None:
    """Columns are added, and types widened: only this needs the SQL view out of the way."""
    widened = [
        new for old, new in _same_columns(kept.layout, grown) if type_of(old) != type_of(new)
    ]
    added = [column for column in grown.columns if kept.layout.column(column.name) is None]
    if not widened and not added:
        return
    rights = hide(db, grown.view) if kept.is_served and widened else []
    changes = [sql.SQL("ADD COLUMN {}").format(typed(column)) for column in added]
    changes += [_retyped(column) for column in widened]
    table = rows_table(id, generation)
    db.execute(sql.SQL("ALTER TABLE {} {}").format(table, sql.SQL(", ").join(changes)))
    if kept.is_served and widened:
        _show_anew(db, grown.view, id, generation, rights)
    elif kept.is_served:
        show(db, grown.view, id, generation)


def _same_columns(kept: TableLayout, grown: TableLayout) -> list[tuple[StoredColumn, StoredColumn]]:
    pairs = ((kept.column(column.name), column) for column in grown.columns)
    return [(old, new) for old, new in pairs if old is not None]


def _retyped(column: StoredColumn) -> sql.Composed:
    return sql.SQL("ALTER COLUMN {} TYPE {}").format(
        sql.Identifier(column.name), words(type_of(column))
    )


def show_if_lost(db: Connection, view: str, id: int, generation: int) -> None:
    """Somebody may have dropped the SQL view: it comes back with the next run."""
    if db.execute("SELECT to_regclass(quote_ident(%s))", (view,)).fetchone() == (None,):
        show(db, view, id, generation)


def drop_generation(db: Connection, id: int, generation: int) -> None:
    db.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(rows_table(id, generation)))
    db.execute(
        "DELETE FROM _millstream_generations WHERE id = %s AND generation = %s", (id, generation)
    )


def drop_view(db: Connection, view: str, id: int) -> None:
    hide(db, view)
    for found in all_generations(db, id):
        drop_generation(db, id, found.number)
    db.execute("DELETE FROM _millstream_views WHERE id = %s", (id,))


# --- what readers see


def serve(db: Connection, view: str, id: int, generation: int) -> None:
    db.execute(
        "UPDATE _millstream_generations SET served = (generation = %s) WHERE id = %s",
        (generation, id),
    )
    show(db, view, id, generation)


def show(db: Connection, view: str, id: int, generation: int) -> None:
    """The SQL view of this generation; views of other people on it stay if its columns do."""
    if not _is_ours(db, view):
        raise NameTaken(place=f"view {view}", problem="another table or view has its name")
    try:
        with db.transaction():
            _create(db, view, id, generation)
    except errors.InvalidTableDefinition:
        _show_anew(db, view, id, generation, hide(db, view))


def _show_anew(
    db: Connection, view: str, id: int, generation: int, rights: Sequence[sql.Composed]
) -> None:
    _create(db, view, id, generation)
    for right in rights:
        db.execute(right)


def _create(db: Connection, view: str, id: int, generation: int) -> None:
    name = sql.Identifier(view)
    rows = rows_table(id, generation)
    db.execute(sql.SQL("CREATE OR REPLACE VIEW {} AS SELECT * FROM {}").format(name, rows))
    db.execute(sql.SQL("COMMENT ON VIEW {} IS {}").format(name, sql.Literal(MARK)))


def _is_ours(db: Connection, view: str) -> bool:
    """Whether the view's name is free, or has the SQL view that we made."""
    found: Any = db.execute(
        "SELECT relkind::text, obj_description(oid, 'pg_class') FROM pg_class"
        " WHERE oid = to_regclass(quote_ident(%s))",
        (view,),
    ).fetchone()
    return found is None or found == ("v", MARK)


def hide(db: Connection, view: str) -> list[sql.Composed]:
    """Drop the SQL view; what it takes to give others their rights on it back."""
    if not _is_ours(db, view):
        return []
    rights: Any = db.execute(
        "SELECT grantee = 0, pg_get_userbyid(grantee), privilege_type, is_grantable"
        " FROM pg_class, aclexplode(relacl)"
        " WHERE oid = to_regclass(quote_ident(%s)) AND grantee <> relowner",
        (view,),
    ).fetchall()
    db.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(sql.Identifier(view)))
    return [_right(view, *right) for right in rights]


def _right(
    view: str, is_of_all: bool, name: str, privilege: LiteralString, is_grantable: bool
) -> sql.Composed:
    return sql.SQL("GRANT {} ON {} TO {}{}").format(
        sql.SQL(privilege),
        sql.Identifier(view),
        sql.SQL("PUBLIC") if is_of_all else sql.Identifier(name),
        sql.SQL(" WITH GRANT OPTION" if is_grantable else ""),
    )
