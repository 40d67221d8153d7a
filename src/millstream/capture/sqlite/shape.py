"""What a table of SQLite looks like to a capture: columns, key, what makes its rows unique. Pure.

SQLite stores any value in any column, unless the table is STRICT. The type that a column gets
here is that of its affinity; `stored_values.py` says what becomes of a value that is none of it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from millstream.base.schema import DataType, Scalar
from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.capture.table_names import full_name

SCHEMA = "main"


@dataclass(frozen=True, slots=True)
class UniqueColumns:
    """Columns of which no two rows have the same values, as these collations compare them."""

    names: tuple[str, ...]
    collations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """`fills`: rows that were there before the column was have something else than null in it."""

    name: str
    declared: str
    is_nullable: bool
    fills: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """`rowid`: the name under which a row's number can be had; None for WITHOUT ROWID."""

    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    uniques: tuple[UniqueColumns, ...]
    rowid: str | None

    @property
    def key_places(self) -> tuple[int, ...]:
        names = [column.name for column in self.columns]
        return tuple(names.index(name) for name in self.key)

    def keeps_values_in(self, later: "Shape") -> bool:
        """Whether old rows hold what they held: nothing but columns that are null came along."""
        known = {(column.name, column.declared) for column in self.columns}
        now = {(column.name, column.declared) for column in later.columns}
        new = [one for one in later.columns if (one.name, one.declared) not in known]
        return known <= now and self.key == later.key and not any(one.fills for one in new)

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)


def shape_from_json(text: str) -> Shape:
    found: dict[str, Any] = json.loads(text)
    return Shape(
        table=found["table"],
        columns=tuple(Column(**column) for column in found["columns"]),
        key=tuple(found["key"]),
        uniques=tuple(_unique(one) for one in found["uniques"]),
        rowid=found["rowid"],
    )


def _unique(found: Mapping[str, Any]) -> UniqueColumns:
    return UniqueColumns(tuple(found["names"]), tuple(found["collations"]))


def captured_table(shape: Shape, topic: str) -> CapturedTable:
    return CapturedTable(
        name=full_name(SCHEMA, shape.table),
        topic=topic,
        columns=tuple(_captured(column) for column in shape.columns),
        key=shape.key,
    )


def _captured(column: Column) -> CapturedColumn:
    return CapturedColumn(
        name=column.name,
        database_type=column.declared,
        type=type_of(column.declared),
        is_nullable=column.is_nullable,
    )


def type_of(declared: str) -> DataType:
    """By SQLite's rules of affinity, in their order; BOOLEAN and BLOB by their names.

    What has NUMERIC affinity (DECIMAL, DATE, DATETIME, JSON) or none holds numbers and texts alike.
    """
    name = declared.upper()
    if "INT" in name:
        return Scalar.BIGINT
    if any(word in name for word in ("CHAR", "CLOB", "TEXT")):
        return Scalar.STRING
    if "BLOB" in name:
        return Scalar.BINARY
    if any(word in name for word in ("REAL", "FLOA", "DOUB")):
        return Scalar.DOUBLE
    return Scalar.BOOLEAN if "BOOL" in name else Scalar.STRING
