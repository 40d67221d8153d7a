"""Reads a view from its SQLite file, from any process, also while its job writes.

    view.get("ada")                                  one row, or None
    view.get((start, end), "/home")                  a key of several columns, one of them a window
    view.get({"url": "/home", "window": {...}})      the same by name
    view.scan(where={"url": "/home", "count >=": 5}, order_by=["-count"], limit=10)

Every call sees the view as of one batch of its job. Writes nothing.
"""

import contextlib
import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from millstream.base.errors import Rejected
from millstream.base.ports import Positions
from millstream.base.schema import DataType, DecimalOf, Field, Schema, Struct
from millstream.values.row_fitting import row_fitter
from millstream.values.unfit import Unfit
from millstream.views.stores.sqlite_store import (
    BUSY_SECONDS_MAX,
    has_tables,
    layout_from,
    require_view,
    rows_table,
    translated,
)
from millstream.views.stores.sqlite_values import (
    Stored,
    null_of,
    row_reader,
    stored_key,
    stored_value,
)
from millstream.views.table_layout import StoredColumn, TableLayout

Row = dict[str, Any]
CONDITION = re.compile(r"(?P<column>.+?)\s*(?P<operator>=|!=|<=|>=|<|>)?")
SERVED = "SELECT generation, key, schema, positions FROM _generations WHERE served = 1"
BY_VALUE = "BY_VALUE"


class ViewNotFound(Rejected):
    def __init__(self, *, view: str, path: Path) -> None:
        super().__init__(f"view {view} is not there yet ({path}): run its job once")
        self.view, self.path = view, path


class BadQuestion(Rejected):
    """A key, a condition or an order that the view cannot answer."""


class ServedView:
    """The generation that readers see, at one moment."""

    def __init__(self, view: str, generation: int, key: str, schema: str) -> None:
        self.layout = layout_from(view, key, schema)
        names = ", ".join(column.quoted for column in self.layout.columns)
        self.select = f"SELECT {names} FROM {rows_table(generation)}"
        self.read: Callable[[Sequence[Stored]], Row] = row_reader(self.layout)

    @cached_property
    def by_key(self) -> str:
        conditions = " AND ".join(f"{column.quoted} = ?" for column in self.layout.key_columns)
        return f"{self.select} WHERE {conditions}"

    @cached_property
    def fit_key(self) -> Callable[[Any], Row]:
        fields = (Field(field.name, field.type) for field in self.layout.key_schema)
        return row_fitter(Struct(tuple(fields)), passes_over_extra=False)

    def key_values(self, given: Sequence[Any]) -> list[Stored]:
        """Of a key by place, one value for each column, or by name, as one mapping."""
        try:
            return stored_key(self.layout, self.fit_key(named_key(self.layout, given)))
        except Unfit as error:
            raise BadQuestion(f"view {self.layout.view}: the key's {error}") from None


class ViewReader:
    """Thread-safe; close it when you are done."""

    def __init__(self, path: Path, *, view: str) -> None:
        self.path, self.view = path, view
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._known: dict[tuple[Any, ...], ServedView] = {}

    def get(self, *key: Any) -> Row | None:
        """The row of this key, or None."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Any]) -> list[Row | None]:
        """The rows of these keys, all as of one moment; None where there is none.

        A key of several columns is a tuple or a mapping.
        """
        with self._served() as (db, served, _):
            found = []
            for key in keys:
                parts = key if isinstance(key, tuple) else (key,)
                row = db.execute(served.by_key, served.key_values(parts)).fetchone()
                found.append(None if row is None else served.read(row))
            return found

    def scan(
        self,
        *,
        where: Mapping[str, Any] | None = None,
        order_by: str | Sequence[str] = (),
        limit: int | None = None,
    ) -> list[Row]:
        """Rows that meet all conditions: {"url": "/", "count >=": 5, "window.start <": noon}.

        `order_by` names columns, "-count" the greatest first; without it rows come by key.
        """
        with self._served() as (db, served, _):
            conditions, values = conditions_of(served.layout, where or {})
            text = f"{served.select}{conditions}{order_of(served.layout, order_by)} LIMIT ?"
            rows = db.execute(text, [*values, -1 if limit is None else limit])
            return [served.read(row) for row in rows]

    def count(self) -> int:
        with self._served() as (db, served, _):
            ((found,),) = db.execute(f"SELECT count(*) FROM ({served.select})")
            return int(found)

    def position(self) -> Positions:
        """Where the job has read to, in this view: the next offset by topic and partition."""
        with self._served() as (_, _, positions):
            return {
                topic: {int(number): int(offset) for number, offset in offsets.items()}
                for topic, offsets in json.loads(positions).items()
            }

    @property
    def schema(self) -> Schema:
        with self._served() as (_, served, _):
            return served.layout.schema

    def close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _served(self) -> Iterator[tuple[sqlite3.Connection, ServedView, str]]:
        """One moment of the view: what is read inside belongs together."""
        with self._lock, translated(self.path):
            db = self._connected()
            db.execute("BEGIN")
            try:
                found = db.execute(SERVED).fetchone()
                if found is None:
                    raise ViewNotFound(view=self.view, path=self.path)
                *facts, positions = found
                yield db, self._layout_of(tuple(facts)), positions
            finally:
                db.execute("ROLLBACK")

    def _layout_of(self, facts: tuple[Any, ...]) -> ServedView:
        if facts not in self._known:
            self._known = {facts: ServedView(self.view, *facts)}
        return self._known[facts]

    def _connected(self) -> sqlite3.Connection:
        if self._db is None:
            if not self.path.exists():
                raise ViewNotFound(view=self.view, path=self.path)
            db = open_for_reading(self.path)
            if not has_tables(db):  # its job has opened it, and not claimed it yet
                db.close()
                raise ViewNotFound(view=self.view, path=self.path)
            self._db = db
        return self._db


def open_for_reading(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",  # never makes a file; readers write the index
        uri=True,
        timeout=BUSY_SECONDS_MAX,
        isolation_level=None,
        check_same_thread=False,
    )
    require_view(db, path)
    db.execute("PRAGMA query_only = 1")
    db.create_collation(BY_VALUE, _compare_decimals)
    return db


def _compare_decimals(left: str, right: str) -> int:
    one, other = Decimal(left), Decimal(right)
    return (one > other) - (one < other)


def named_key(layout: TableLayout, given: Sequence[Any]) -> Row:
    if len(given) == 1 and isinstance(given[0], Mapping) and set(given[0]) == set(layout.key):
        given = [given[0][name] for name in layout.key]
    if len(given) != len(layout.key):
        raise BadQuestion(
            f"view {layout.view} is read by {', '.join(layout.key)}: {len(layout.key)} values, "
            f"not {len(given)}"
        )
    parts = zip(layout.key_schema, given, strict=True)
    return {field.name: named_struct(field.type, value) for field, value in parts}


def named_struct(kind: DataType, value: Any) -> Any:
    """A struct may be given by place: a window as (start, end)."""
    if isinstance(kind, Struct) and isinstance(value, tuple | list):
        if len(value) != len(kind.fields):
            raise BadQuestion(f"{kind} has {len(kind.fields)} parts, {len(value)} are given")
        pairs = zip(kind, value, strict=True)
        return {field.name: named_struct(field.type, part) for field, part in pairs}
    return value


def conditions_of(layout: TableLayout, where: Mapping[str, Any]) -> tuple[str, list[Stored]]:
    """SQL that names only columns of the layout; every value is a parameter."""
    parts: list[str] = []
    values: list[Stored] = []
    for text, value in where.items():
        condition = CONDITION.fullmatch(text.strip())
        column = _column(layout, condition["column"] if condition else text)
        stored = _stored(layout, column, value)
        parts.append(_condition(column, (condition and condition["operator"]) or "=", stored))
        values.append(stored)
    return (" WHERE " + " AND ".join(parts) if parts else ""), values


def _condition(column: StoredColumn, operator: str, stored: Stored) -> str:
    if operator in ("=", "!="):
        return f"{column.quoted} {'IS' if operator == '=' else 'IS NOT'} ?"
    if stored == null_of(column):
        raise BadQuestion(f"{column.name} {operator} null is never true: compare with a value")
    return f"{_comparable(column)} {operator} ?"


def _stored(layout: TableLayout, column: StoredColumn, value: Any) -> Stored:
    fit = row_fitter(Struct((Field(column.name, column.type),)), passes_over_extra=False)
    try:
        return stored_value(column, fit({column.name: value})[column.name])
    except Unfit as error:
        raise BadQuestion(f"view {layout.view}: {error}") from None


def _column(layout: TableLayout, name: str) -> StoredColumn:
    found = layout.column(name)
    if found is None or found.says_presence:
        known = ", ".join(one.name for one in layout.columns if not one.says_presence)
        raise BadQuestion(f"view {layout.view} has no column {name} to compare: {known}")
    return found


def _comparable(column: StoredColumn) -> str:
    """Decimals are text, whose order is another one."""
    collation = f" COLLATE {BY_VALUE}" if isinstance(column.type, DecimalOf) else ""
    return column.quoted + collation


def order_of(layout: TableLayout, order_by: str | Sequence[str]) -> str:
    named = [order_by] if isinstance(order_by, str) else list(order_by)
    terms = [
        _comparable(_column(layout, name.removeprefix("-")))
        + (" DESC" if name.startswith("-") else "")
        for name in named
    ]
    terms += [_comparable(column) for column in layout.key_columns]
    return f" ORDER BY {', '.join(terms)}"
