"""The table of changes inside of the captured database: made, cut into transactions, emptied.

SQLite gives no name to a transaction, but lets only one write at a time: the last change that a
reader sees is the end of a transaction. The capture marks such ends: what lies between two marks
is a number of whole transactions, is handed over as one, and is the same whenever it is read
again. A mark also names tables that are to be loaded anew.
"""

import json
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from millstream.capture.change import TRUNCATED
from millstream.capture.sqlite import trigger_sql
from millstream.capture.sqlite.catalogue import read_shape, schema_version
from millstream.capture.sqlite.shape import Shape, shape_from_json
from millstream.capture.sqlite.stored_values import Stored
from millstream.capture.sqlite.trigger_sql import (
    CAPTURES_PREFIX,
    NOTED,
    NOTHING,
    NOW_MS,
    Names,
    name,
)

# So many are read, or deleted, at once: a few milliseconds in which writers may have to wait.
SLICE_ROWS = 10_000
# id, op, shape, at_ms, row; then the old and the new value of each column in turn.
FIXED_COLUMNS = 5
TRIGGERS = "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY rowid"
TABLE_NAMED = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"

GONE = "gone:"  # before the name of a table, instead of a shape

StoredChange = Sequence[Stored]


@dataclass(frozen=True, slots=True)
class Mark:
    """The last change of some transactions. `reloads`: by the names that SQLite has for tables."""

    id: int
    at_ms: int
    reloads: tuple[str, ...]


class ChangeTable:
    """Of one capture. Who calls a method that writes is in a transaction that does."""

    def __init__(self, db: sqlite3.Connection, names: Names) -> None:
        self.names = names
        self._db = db
        self._changes, self._marks = name(names.changes), name(names.marks)
        self._state = name(names.state)
        self._shapes: dict[int, Shape] = {}

    @property
    def is_there(self) -> bool:
        return self._db.execute(TABLE_NAMED, (self.names.changes,)).fetchone() is not None

    def last_id(self) -> int:
        """Of all changes that ever were.

        SQLite writes its sequence when a statement ends well. One that ends with OR FAIL or
        RAISE(FAIL) keeps the rows that it wrote before: their changes are after the sequence.
        """
        last = self._db.execute(
            f"SELECT id FROM {self._changes} WHERE op <> '{NOTED}' ORDER BY id DESC LIMIT 1"
        ).fetchone()
        return max(last[0] if last else 0, self._sequence())

    def _sequence(self) -> int:
        """No change after it was ever deleted, so no id after it can be used twice."""
        found = self._db.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = ?", (self.names.changes,)
        ).fetchone()
        return found[0] if found else 0

    def last_mark(self) -> int:
        """What was confirmed was marked."""
        (found,) = self._db.execute(f"SELECT max(id) FROM {self._marks}").fetchone()
        return max(found or 0, self.confirmed())

    def confirmed(self) -> int:
        found: int = self._db.execute(f"SELECT confirmed FROM {self._state}").fetchone()[0]
        return found

    def schema_version(self) -> int:
        """Of the database, when its triggers were last looked at."""
        found: int = self._db.execute(f"SELECT schema_version FROM {self._state}").fetchone()[0]
        return found

    def shape(self, shape_id: int) -> Shape:
        if shape_id not in self._shapes:
            (text,) = self._db.execute(
                f"SELECT shape FROM {name(self.names.shapes)} WHERE id = ?", (shape_id,)
            ).fetchone()
            self._shapes[shape_id] = shape_from_json(text)
        return self._shapes[shape_id]

    # --- reading ------------------------------------------------------------------------------

    def marks(self, after: int) -> list[Mark]:
        rows = self._db.execute(
            f"SELECT * FROM {self._marks} WHERE id > ? ORDER BY id LIMIT {SLICE_ROWS}", (after,)
        )
        return [Mark(id, at_ms, tuple(json.loads(reloads))) for id, at_ms, reloads in rows]

    def between(self, after: int, until: int) -> Iterator[StoredChange]:
        """In their order, slice by slice: no lock is held while a slice is used."""
        while after < until:
            rows = self._db.execute(
                f"SELECT * FROM {self._changes} WHERE id > ? AND id <= ? "
                f"ORDER BY id LIMIT {SLICE_ROWS}",
                (after, until),
            ).fetchall()
            yield from (row for row in rows if row[1] in ("c", "u", "d", "t"))
            after = rows[-1][0] if rows else until

    # --- writing ------------------------------------------------------------------------------

    def create(self) -> None:
        for statement in trigger_sql.creating(self.names):
            self._db.execute(statement)

    def mark(self, ends: Collection[int] = (), reloads: Collection[str] = ()) -> int:
        """Mark where the changes so far end, and these ends of transactions before."""
        if reloads or self._sequence() < self.last_id():
            # This also moves the sequence past all ids: changes before a mark may be deleted.
            self._db.execute(f"INSERT INTO {self._changes} (op) VALUES ('{NOTHING}')")
        last, last_mark = self.last_id(), self.last_mark()
        for end in {*ends, last}:
            if end > last_mark:
                named = json.dumps(sorted(reloads) if end == last else [])
                self._db.execute(f"INSERT INTO {self._marks} VALUES (?, {NOW_MS}, ?)", (end, named))
        return last

    def forget_until(self, confirmed: int) -> bool:
        """Deletes a slice of what was confirmed; whether that was all."""
        deleted = self._db.execute(
            f"DELETE FROM {self._changes} WHERE id IN (SELECT id FROM {self._changes} "
            f"WHERE id <= ? ORDER BY id LIMIT {SLICE_ROWS})",
            (confirmed,),
        )
        self._db.execute(f"DELETE FROM {self._marks} WHERE id <= ?", (confirmed,))
        self._db.execute(f"UPDATE {self._state} SET confirmed = max(confirmed, ?)", (confirmed,))
        return deleted.rowcount < SLICE_ROWS

    def renew_triggers(self, tables: Collection[str]) -> set[str]:
        """Make the triggers those of the tables as they are now: which tables are to be loaded.

        Those that had none, or others while they were written to: rows may have changed without a
        trigger that knew all of their columns. And those whose old rows have other values now, as
        a column was renamed, or added with a default. Of a table that is gone, a `t` is noted.
        """
        last_mark = self.last_mark()
        self._drop_strays()
        for table in tables:
            self._note_if_gone(table)
        stale = {table for table in tables if self._renew(table, last_mark)}
        found = schema_version(self._db)
        self._db.execute(f"UPDATE {self._state} SET schema_version = ?", (found,))
        return stale

    def _renew(self, table: str, last_mark: int) -> bool:
        shape = read_shape(self._db, table)
        if shape is None:
            return False
        self._widen(len(shape.columns))
        wanted = trigger_sql.triggers(self.names, shape, self._shape_id(shape))
        found = self._triggers_on(shape.table)
        if found == wanted and self._are_newest(found, shape.table):
            return False
        former = self._shape_of_triggers(shape.table, found)
        for trigger in found:
            self._db.execute(f"DROP TRIGGER {name(trigger)}")
        for statement in wanted.values():
            self._db.execute(statement)
        has_old_values = former is not None and former.keeps_values_in(shape)
        return not has_old_values or self._has_changes(shape.table, last_mark)

    def _note_if_gone(self, table: str) -> None:
        """Once: what is noted is kept beside the shapes until the table is there again."""
        shapes, noted = name(self.names.shapes), f"{GONE}{table}"
        if read_shape(self._db, table) is not None:
            self._db.execute(f"DELETE FROM {shapes} WHERE shape = ?", (noted,))
            return
        known = [number for number, _ in self._shapes_of(table)]
        told = self._db.execute(f"SELECT 1 FROM {shapes} WHERE shape = ?", (noted,)).fetchone()
        if known and told is None:
            self._db.execute(f"INSERT INTO {shapes} (shape) VALUES (?)", (noted,))
            self._db.execute(
                f"INSERT INTO {self._changes} (op, shape) VALUES ('{TRUNCATED}', ?)", (known[-1],)
            )

    def _shape_of_triggers(self, table: str, found: dict[str, str]) -> Shape | None:
        """For which shape they were made; None if they are not as they were made."""
        for number, shape in self._shapes_of(table):
            if trigger_sql.triggers(self.names, shape, number) == found:
                return shape
        return None

    def _shapes_of(self, table: str) -> list[tuple[int, Shape]]:
        rows = self._db.execute(
            f"SELECT id FROM {name(self.names.shapes)} WHERE shape NOT LIKE '{GONE}%' ORDER BY id"
        )
        found = [(number, self.shape(number)) for (number,) in rows.fetchall()]
        return [one for one in found if one[1].table.lower() == table.lower()]

    def _drop_strays(self) -> None:
        """A table that got another name took its triggers along, and is not captured any more."""
        for trigger, table, _ in self._own_triggers():
            if not self.names.is_trigger_of(table, trigger):
                self._db.execute(f"DROP TRIGGER {name(trigger)}")

    def _are_newest(self, found: Collection[str], table: str) -> bool:
        """SQLite runs the newest trigger first. One of the application that runs before ours may
        write the row again, or end with RAISE: its changes would be in the wrong order, or lost."""
        rows = self._db.execute(TRIGGERS).fetchall()
        on_table = [trigger for trigger, on, _ in rows if on.lower() == table.lower()]
        since_oldest = on_table[min(on_table.index(trigger) for trigger in found) :]
        return all(trigger.startswith(CAPTURES_PREFIX) for trigger in since_oldest)

    def _triggers_on(self, table: str) -> dict[str, str]:
        return {trigger: sql for trigger, on, sql in self._own_triggers() if on == table}

    def _own_triggers(self) -> list[tuple[str, str, str]]:
        """Those that write into this table: another capture's name may begin with this one's."""
        rows = self._db.execute(TRIGGERS).fetchall()
        return [
            row for row in rows if row[0].startswith(self.names.prefix) and self._changes in row[2]
        ]

    def _widen(self, columns: int) -> None:
        (found,) = self._db.execute(
            "SELECT count(*) FROM pragma_table_info(?)", (self.names.changes,)
        ).fetchone()
        for statement in trigger_sql.widening(self.names, (found - FIXED_COLUMNS) // 2, columns):
            self._db.execute(statement)

    def _shape_id(self, shape: Shape) -> int:
        shapes, text = name(self.names.shapes), shape.to_json()
        found = self._db.execute(f"SELECT id FROM {shapes} WHERE shape = ?", (text,)).fetchone()
        if found is None:
            made = self._db.execute(f"INSERT INTO {shapes} (shape) VALUES (?)", (text,))
            assert made.lastrowid is not None
            return made.lastrowid
        number: int = found[0]
        return number

    def _has_changes(self, table: str, after: int) -> bool:
        shapes = self._db.execute(
            f"SELECT DISTINCT shape FROM {self._changes} WHERE id > ? AND op IN ('c', 'u', 'd')",
            (after,),
        )
        return any(self.shape(shape_id).table == table for (shape_id,) in shapes.fetchall())

    def drop(self) -> None:
        for trigger, _, _ in self._own_triggers():
            self._db.execute(f"DROP TRIGGER {name(trigger)}")
        for table in self.names.tables:
            self._db.execute(f"DROP TABLE IF EXISTS {name(table)}")
