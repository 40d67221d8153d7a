"""The statements of a capture by triggers: its own tables, and triggers on captured ones. Pure.

Triggers run inside of whoever writes, so they use nothing but plain SQL, and store values as they
are: columns without a type have no affinity, and keep integers, floats, texts and blobs exactly.

A row that REPLACE removes fires no trigger, unless its writer has set `recursive_triggers`. So a
trigger before each write notes the rows in its way (op '?'), and one after it makes deletes (op
'd') of those that are gone. A note of a row that stayed (OR IGNORE, an upsert) is never read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millstream.capture.sqlite.shape import Shape, UniqueColumns

CAPTURES_PREFIX = "_millstream_"  # of what captures own in a database
NOTED = "?"
NOTHING = "-"  # a place of its own, for a mark without a change
# What the triggers of a table do; the parts of their names.
TRIGGER_KINDS = (
    *("noted_insert", "noted_update", "gone_insert", "gone_update", "gone_delete"),
    *("insert", "update", "delete"),
)
NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"


def name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Names:
    """What one capture owns in a database; several captures do not meet."""

    capture: str

    @property
    def prefix(self) -> str:
        return f"{CAPTURES_PREFIX}{self.capture}_"

    @property
    def changes(self) -> str:
        return f"{self.prefix}changes"

    @property
    def noted(self) -> str:
        return f"{self.prefix}noted"

    @property
    def marks(self) -> str:
        return f"{self.prefix}marks"

    @property
    def shapes(self) -> str:
        return f"{self.prefix}shapes"

    @property
    def state(self) -> str:
        return f"{self.prefix}state"

    @property
    def tables(self) -> tuple[str, ...]:
        return self.changes, self.marks, self.shapes, self.state

    def trigger(self, table: str, what: str) -> str:
        return f"{self.prefix}{what}_{table}"

    def is_trigger_of(self, table: str, trigger: str) -> bool:
        return any(trigger == self.trigger(table, what) for what in TRIGGER_KINDS)


def creating(names: Names) -> Iterator[str]:
    changes = name(names.changes)
    yield (
        f"CREATE TABLE IF NOT EXISTS {changes} (id INTEGER PRIMARY KEY AUTOINCREMENT, op TEXT, "
        "shape INTEGER, at_ms INTEGER, row)"
    )
    yield (
        f"CREATE INDEX IF NOT EXISTS {name(names.noted)} ON {changes} (shape) WHERE op = '{NOTED}'"
    )
    yield (
        f"CREATE TABLE IF NOT EXISTS {name(names.marks)} "
        "(id INTEGER PRIMARY KEY, at_ms INTEGER, reloads TEXT)"
    )
    yield f"CREATE TABLE IF NOT EXISTS {name(names.shapes)} (id INTEGER PRIMARY KEY, shape TEXT)"
    yield (
        f"CREATE TABLE IF NOT EXISTS {name(names.state)} "
        "(id INTEGER PRIMARY KEY CHECK (id = 1), confirmed INTEGER, schema_version INTEGER)"
    )
    yield f"INSERT OR IGNORE INTO {name(names.state)} VALUES (1, 0, 0)"


def widening(names: Names, columns_now: int, columns_wanted: int) -> Iterator[str]:
    """Room for the old and the new value of so many columns."""
    for place in range(columns_now, columns_wanted):
        for side in ("o", "n"):
            yield f"ALTER TABLE {name(names.changes)} ADD COLUMN {side}{place}"


def deleting(shape: Shape) -> str:
    """The row with a key."""
    same = " AND ".join(f"{name(column)} IS ?" for column in shape.key)
    return f"DELETE FROM {name(shape.table)} WHERE {same}"


def triggers(names: Names, shape: Shape, shape_id: int) -> dict[str, str]:
    """By their names. SQLite keeps their text: one that differs is to be made anew."""
    made = _Triggers(names, shape, shape_id)
    return dict(made.all())


@dataclass(frozen=True, slots=True)
class _Triggers:
    names: Names
    shape: Shape
    shape_id: int

    def all(self) -> Iterator[tuple[str, str]]:
        new, old = self.image("n", "NEW"), self.image("o", "OLD")
        if self.shape.uniques:
            yield from self.for_replaced_rows()
        yield self.trigger("insert", "AFTER INSERT", self.change("c", new))
        yield self.trigger("update", "AFTER UPDATE", self.change("u", old | new))
        yield self.trigger("delete", "AFTER DELETE", self.change("d", old))

    def for_replaced_rows(self) -> Iterator[tuple[str, str]]:
        """Only writes that have something in their way, or may have, pay for more than a look."""
        columns = dict.fromkeys(column for unique in self.shape.uniques for column in unique.names)
        update = f"UPDATE OF {', '.join(name(column) for column in columns)}"
        in_way, others = self.in_the_way("NEW"), f"NOT {self.is_row('OLD')}"
        for what, when, condition in (
            ("noted_insert", "BEFORE INSERT", in_way),
            ("noted_update", f"BEFORE {update}", f"({in_way}) AND {others}"),
        ):
            has_some = f"EXISTS (SELECT 1 FROM {name(self.shape.table)} WHERE {condition})"
            statements = (self.forget_kept(), self.note_of(condition))
            yield self.trigger(what, when, *statements, only_when=has_some)
        yield self.trigger("gone_insert", "AFTER INSERT", self.gone())
        yield self.trigger("gone_update", f"AFTER {update}", self.forget("OLD"), self.gone())
        yield self.trigger("gone_delete", "AFTER DELETE", self.forget("OLD"))

    def trigger(
        self, what: str, when: str, *statements: str, only_when: str | None = None
    ) -> tuple[str, str]:
        trigger = self.names.trigger(self.shape.table, what)
        condition = f" WHEN {only_when}" if only_when else ""
        body = " ".join(f"{statement};" for statement in statements)
        return trigger, (
            f"CREATE TRIGGER {name(trigger)} {when} ON {name(self.shape.table)}{condition} "
            f"BEGIN {body} END"
        )

    def image(self, side: str, row: str) -> dict[str, str]:
        """Which column of a change takes which value."""
        return {
            f"{side}{place}": f"{row}.{name(column.name)}"
            for place, column in enumerate(self.shape.columns)
        }

    def change(self, op: str, image: dict[str, str]) -> str:
        return (
            f"INSERT INTO {name(self.names.changes)} (op, shape, at_ms, {', '.join(image)}) "
            f"VALUES ('{op}', {self.shape_id}, {NOW_MS}, {', '.join(image.values())})"
        )

    def note_of(self, condition: str) -> str:
        """Notes the rows that are there now, with their values."""
        table = name(self.shape.table)
        image = self.image("o", table)
        if self.shape.rowid is not None:
            image |= {"row": f"{table}.{name(self.shape.rowid)}"}
        return (
            f"INSERT INTO {name(self.names.changes)} (op, shape, at_ms, {', '.join(image)}) "
            f"SELECT '{NOTED}', {self.shape_id}, {NOW_MS}, {', '.join(image.values())} "
            f"FROM {table} WHERE {condition}"
        )

    def in_the_way(self, row: str) -> str:
        return " OR ".join(self._equals(unique, row) for unique in self.shape.uniques)

    def _equals(self, unique: UniqueColumns, row: str) -> str:
        table = name(self.shape.table)
        pairs = zip(unique.names, unique.collations, strict=True)
        same = [
            f"{table}.{name(column)} = {row}.{name(column)} COLLATE {name(collation)}"
            for column, collation in pairs
        ]
        return f"({' AND '.join(same)})"

    def is_row(self, row: str) -> str:
        """A row of the table is this one."""
        table = name(self.shape.table)
        columns = self._identity()
        return f"({' AND '.join(f'{table}.{name(one)} IS {row}.{name(one)}' for one in columns)})"

    def _identity(self) -> Sequence[str]:
        return self.shape.key if self.shape.rowid is None else (self.shape.rowid,)

    def _noted_row(self, row: str) -> str:
        """A note is of this row: `row` is OLD, NEW or the table. Columns of notes are qualified:
        the table may have one of the same name, which would be meant otherwise."""
        noted = name(self.names.changes)
        if self.shape.rowid is not None:
            return f"{noted}.row IS {row}.{name(self.shape.rowid)}"
        pairs = zip(self.shape.key, self.shape.key_places, strict=True)
        return " AND ".join(f"{noted}.o{place} IS {row}.{name(column)}" for column, place in pairs)

    def _notes(self) -> str:
        return f"op = '{NOTED}' AND shape = {self.shape_id}"

    def _is_there(self) -> str:
        table = name(self.shape.table)
        return f"EXISTS (SELECT 1 FROM {table} WHERE {self._noted_row(table)})"

    def forget_kept(self) -> str:
        """Of writes before this one: what is still there was not replaced."""
        return (
            f"DELETE FROM {name(self.names.changes)} WHERE {self._notes()} AND {self._is_there()}"
        )

    def forget(self, row: str) -> str:
        changes = name(self.names.changes)
        return f"DELETE FROM {changes} WHERE {self._notes()} AND {self._noted_row(row)}"

    def gone(self) -> str:
        """What was in the way of the new row is gone; if it had the new row's place, too."""
        return (
            f"UPDATE {name(self.names.changes)} SET op = 'd' WHERE {self._notes()} "
            f"AND (({self._noted_row('NEW')}) OR NOT {self._is_there()})"
        )
