"""What a SQLite file keeps of its view's past: versions, and the changes that led to each.

    _timelines             each generation's: an id of its past, another one when a copy is put back
    _versions              one row for each batch that changed something
    changes_<generation>   each change: the row that is there since, and what was there before

The first version that is there is the floor: changes after it are kept, it and every later moment
can be read. A change is kept with what was there before: so the past is today's rows with later
changes taken back, a feed can say that a row ceased to match, and a row that is written as it was
is no change. docs/formats/view_store.md has the layout; `changes.py` reads it.
"""

import json
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from millstream.base.ports import Positions
from millstream.views.history import FEED_CHANGES_MAX, Keeping, Version
from millstream.views.netting import Netted
from millstream.views.table_layout import BadView, StoredColumn, TableLayout, quoted

MAKE_PAST = """
CREATE TABLE _timelines (
  generation INTEGER PRIMARY KEY,
  id         TEXT NOT NULL,     -- random
  history_ms INTEGER            -- null: none is declared
);
CREATE TABLE _versions (
  generation INTEGER NOT NULL,
  version    INTEGER NOT NULL,
  at_ms      INTEGER NOT NULL,  -- never falls
  seq_end    INTEGER NOT NULL,  -- its last change
  positions  TEXT NOT NULL,     -- where the job had read to with it
  PRIMARY KEY (generation, version)
) WITHOUT ROWID;
CREATE INDEX _versions_by_time ON _versions (generation, at_ms);
"""
TIMELINE_BYTES = 8
# SQLite's tables have 2,000 columns, and a change has each of the view's twice, and four more.
COLUMNS_MAX = 998
# What a table of changes has beside the view's columns, of which none is named `_change`.
SEQ, VERSION = '"_change.seq"', '"_change.version"'
HAD_ROW, HAS_ROW = '"_change.had_row"', '"_change.has_row"'
DELETED = '"_change.deleted"'
WAS = "_change.was."
LAST_VERSION = """
SELECT version, at_ms, seq_end FROM _versions WHERE generation = ? ORDER BY version DESC LIMIT 1
"""
FIRST_VERSION = """
SELECT version, at_ms, seq_end FROM _versions WHERE generation = ? ORDER BY version LIMIT 1
"""
VERSION_AT = """
SELECT version, at_ms, seq_end FROM _versions WHERE generation = ? AND at_ms <= ?
ORDER BY at_ms DESC, version DESC LIMIT 1
"""
VERSION_BEFORE = """
SELECT version, at_ms, seq_end FROM _versions WHERE generation = ? AND seq_end <= ?
ORDER BY version DESC LIMIT 1
"""


@dataclass(frozen=True)
class PastTables:
    """The tables of one generation, and what is said to them. `rows` is named by who writes it."""

    layout: TableLayout
    generation: int
    rows: str

    @property
    def changes(self) -> str:
        return changes_table(self.generation)

    @property
    def incoming(self) -> str:
        return f"temp.{quoted(f'incoming_{int(self.generation)}')}"

    @cached_property
    def names(self) -> str:
        return _names(self.layout.columns)

    @cached_property
    def same_key(self) -> str:
        """Of a row of the view (r) and one that comes in (i)."""
        return " AND ".join(f"r.{one.quoted} = i.{one.quoted}" for one in self.layout.key_columns)

    @cached_property
    def former_names(self) -> str:
        return ", ".join(former_name(column) for column in self._beside_key)

    @property
    def _beside_key(self) -> list[StoredColumn]:
        return [column for column in self.layout.columns if not column.in_key]

    # --- made and removed

    def make(self, db: sqlite3.Connection, *, now_ms: int) -> None:
        """From now on; what led here is not known."""
        self._require_width()
        own = [f"{column.quoted} {column.kept_as}" for column in self.layout.columns]
        former = [f"{former_name(column)} {column.kept_as}" for column in self._beside_key]
        db.execute(
            f"CREATE TABLE {self.changes} ({SEQ} INTEGER PRIMARY KEY, {VERSION} INTEGER NOT NULL, "
            f"{HAD_ROW} INTEGER NOT NULL, {HAS_ROW} INTEGER NOT NULL, {', '.join(own + former)})"
        )
        db.execute("INSERT INTO _versions VALUES (?, 0, ?, 0, '{}')", (self.generation, now_ms))
        db.execute("INSERT INTO _timelines VALUES (?, ?, NULL)", (self.generation, new_timeline()))

    def _require_width(self) -> None:
        width = len(self.layout.columns)
        if width > COLUMNS_MAX:
            raise BadView(
                f"view {self.layout.view} has {width} columns, each field of a struct counted: "
                f"SQLite keeps {COLUMNS_MAX} of a view. Put some into an array or a map"
            )

    def grow(self, db: sqlite3.Connection, added: Iterable[StoredColumn]) -> None:
        self._require_width()
        for column in added:
            for name in (column.quoted, former_name(column)):
                db.execute(f"ALTER TABLE {self.changes} ADD COLUMN {name} {column.kept_as}")
        db.execute(f"DROP TABLE IF EXISTS {self.incoming}")

    def declare(self, db: sqlite3.Connection, keeping: Keeping) -> None:
        """A history is read by key; feeds alone do not need what this costs."""
        index = quoted(f"changes_{int(self.generation)}_by_key")
        if keeping.history_ms is None:
            db.execute(f"DROP INDEX IF EXISTS {index}")
        else:
            key = _names(self.layout.key_columns)
            db.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {self.changes} ({key})")
        db.execute(
            "UPDATE _timelines SET history_ms = ? WHERE generation = ?",
            (keeping.history_ms, self.generation),
        )

    # --- one batch

    def apply(self, db: sqlite3.Connection, netted: Netted, *, starts_over: bool) -> int:
        """Change the rows and keep how; the number of changes.

        A batch that starts the view over deletes every row that it does not bring.
        """
        self._take_in(db, netted)
        if starts_over:
            self._take_out_the_rest(db)
        self._pass_over_what_is_so(db)
        changes = self._keep_changes(db)
        if changes:
            self._change_rows(db)
        return changes

    def _take_in(self, db: sqlite3.Connection, netted: Netted) -> None:
        key = _names(self.layout.key_columns)
        own = ", ".join(f"{column.quoted} {column.kept_as}" for column in self.layout.columns)
        db.execute(
            f"CREATE TABLE IF NOT EXISTS {self.incoming} ({own}, {DELETED} INTEGER NOT NULL, "
            f"PRIMARY KEY ({key})) WITHOUT ROWID"
        )
        db.execute(f"DELETE FROM {self.incoming}")
        for names, columns, deleted, rows in (
            (key, self.layout.key_columns, 1, netted.deletes),
            (self.names, self.layout.columns, 0, netted.upserts),
        ):
            marks = ", ".join("?" for _ in columns)
            db.executemany(
                f"INSERT OR REPLACE INTO {self.incoming} ({names}, {DELETED}) "
                f"VALUES ({marks}, {deleted})",
                rows,
            )

    def _take_out_the_rest(self, db: sqlite3.Connection) -> None:
        key = _names(self.layout.key_columns)
        db.execute(
            f"INSERT INTO {self.incoming} ({key}, {DELETED}) SELECT {key}, 1 FROM {self.rows} AS r "
            f"WHERE NOT EXISTS (SELECT 1 FROM {self.incoming} AS i WHERE {self.same_key})"
        )

    def _pass_over_what_is_so(self, db: sqlite3.Connection) -> None:
        there = f"SELECT 1 FROM {self.rows} AS r WHERE {self.same_key}"
        db.execute(f"DELETE FROM {self.incoming} AS i WHERE {DELETED} AND NOT EXISTS ({there})")
        old, new = (_names(self.layout.columns, of=of) for of in ("r", "i"))
        db.execute(
            f"DELETE FROM {self.incoming} AS i WHERE NOT {DELETED} "
            f"AND EXISTS ({there} AND ({old}) IS ({new}))"
        )

    def _keep_changes(self, db: sqlite3.Connection) -> int:
        """Numbered on from the last one, which is always there."""
        first_of_key = self.layout.key_columns[0].quoted
        new, old = _names(self.layout.columns, of="i"), _names(self._beside_key, of="r")
        into, values = (
            ", ".join(filter(None, names))
            for names in ((self.names, self.former_names), (new, old))
        )
        kept = db.execute(
            f"INSERT INTO {self.changes} ({VERSION}, {HAD_ROW}, {HAS_ROW}, {into}) "
            f"SELECT ?, r.{first_of_key} IS NOT NULL, NOT i.{DELETED}, {values} "
            f"FROM {self.incoming} AS i LEFT JOIN {self.rows} AS r ON {self.same_key}",
            (last_version(db, self.generation).number + 1,),
        )
        return kept.rowcount

    def _change_rows(self, db: sqlite3.Connection) -> None:
        key = _names(self.layout.key_columns)
        db.execute(
            f"DELETE FROM {self.rows} WHERE ({key}) IN "
            f"(SELECT {key} FROM {self.incoming} WHERE {DELETED})"
        )
        db.execute(
            f"INSERT OR REPLACE INTO {self.rows} ({self.names}) "
            f"SELECT {self.names} FROM {self.incoming} WHERE NOT {DELETED}"
        )

    # --- versions

    def add_version(
        self, db: sqlite3.Connection, *, changes: int, now_ms: int, positions: Positions
    ) -> Version:
        last = last_version(db, self.generation)
        version = Version(
            number=last.number + 1,
            at_ms=max(now_ms, last.at_ms),  # a clock may be set back
            seq_end=last.seq_end + changes,
        )
        db.execute(
            "INSERT INTO _versions VALUES (?, ?, ?, ?, ?)",
            (
                self.generation,
                version.number,
                version.at_ms,
                version.seq_end,
                json.dumps(positions),
            ),
        )
        return version

    def stamp(self, db: sqlite3.Connection, version: Version, *, now_ms: int) -> None:
        """Once more when all is done: nobody has seen it before, however long the batch took."""
        db.execute(
            "UPDATE _versions SET at_ms = max(at_ms, ?) WHERE generation = ? AND version = ?",
            (now_ms, self.generation, version.number),
        )

    def trim(self, db: sqlite3.Connection, keeping: Keeping, newest: Version) -> None:
        """Move the floor up to the oldest moment that may still be asked for."""
        horizon_ms = keeping.horizon_ms(newest.at_ms)
        floor = found_version(db, VERSION_AT, self.generation, horizon_ms)
        if floor is not None:
            self.forget_before(db, floor)
        first = found_version(db, FIRST_VERSION, self.generation) or newest
        excess = newest.seq_end - first.seq_end - FEED_CHANGES_MAX
        if keeping.history_ms is None and excess > 0:
            seq_min = newest.seq_end - FEED_CHANGES_MAX
            floor = found_version(db, VERSION_BEFORE, self.generation, seq_min)
            self.forget_before(db, floor or newest)

    def pass_over(self, db: sqlite3.Connection, version: Version) -> None:
        """Of a version whose changes are not kept, an empty one holds the number."""
        db.execute(
            f"INSERT INTO {self.changes} ({SEQ}, {VERSION}, {HAD_ROW}, {HAS_ROW}) "
            "VALUES (?, ?, 0, 0)",
            (version.seq_end, version.number),
        )
        self.forget_before(db, version)

    def forget_before(self, db: sqlite3.Connection, floor: Version) -> None:
        """All but the last change, from which the next ones are numbered on."""
        db.execute(
            f"DELETE FROM {self.changes} WHERE {SEQ} <= ? "
            f"AND {SEQ} < (SELECT max({SEQ}) FROM {self.changes})",
            (floor.seq_end,),
        )
        db.execute(
            "DELETE FROM _versions WHERE generation = ? AND version < ?",
            (self.generation, floor.number),
        )


def make_past(db: sqlite3.Connection) -> None:
    for statement in MAKE_PAST.split(";\n"):
        db.execute(statement)


def has_past(db: sqlite3.Connection) -> bool:
    """False in a file of format 1."""
    found = db.execute("SELECT 1 FROM sqlite_schema WHERE name = '_timelines'").fetchone()
    return found is not None


def drop_past(db: sqlite3.Connection, generation: int) -> None:
    if has_past(db):
        db.execute(f"DROP TABLE IF EXISTS {changes_table(generation)}")
        db.execute("DELETE FROM _versions WHERE generation = ?", (generation,))
        db.execute("DELETE FROM _timelines WHERE generation = ?", (generation,))


def renew_timelines(db: sqlite3.Connection) -> None:
    """What comes after this moment is another future than the one that some have seen."""
    if has_past(db):
        for (generation,) in db.execute("SELECT generation FROM _timelines").fetchall():
            db.execute(
                "UPDATE _timelines SET id = ? WHERE generation = ?", (new_timeline(), generation)
            )


def new_timeline() -> str:
    return secrets.token_hex(TIMELINE_BYTES)


def last_version(db: sqlite3.Connection, generation: int) -> Version:
    found = found_version(db, LAST_VERSION, generation)
    assert found is not None, "a generation is made with its version 0, and the last one stays"
    return found


def found_version(db: sqlite3.Connection, question: str, *facts: int) -> Version | None:
    found = db.execute(question, facts).fetchone()
    if found is None:
        return None
    number, at_ms, seq_end = found
    return Version(number=number, at_ms=at_ms, seq_end=seq_end)


def changes_table(generation: int) -> str:
    return quoted(f"changes_{int(generation)}")


def _names(columns: Sequence[StoredColumn], *, of: str = "") -> str:
    table = f"{of}." if of else ""
    return ", ".join(f"{table}{column.quoted}" for column in columns)


def former_name(column: StoredColumn) -> str:
    """Of what a row had there before; its key it has still."""
    return column.quoted if column.in_key else quoted(f"{WAS}{column.name}")
