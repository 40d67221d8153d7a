"""The shape of a topic's values: named fields, their types, and which of them may be null. Pure.

Neutral: knows neither Spark nor Arrow nor a format on the wire (`schemas/` translates). The words
are those of Spark's DDL, and `str()` of a schema or a type is DDL that Spark reads as well.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from millstream.base.errors import Rejected

DECIMAL_PRECISION_MAX = 38
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadSchema(Rejected):
    """A declaration that is no schema; the message says where, and what to write instead."""


class Scalar(Enum):
    """The types without parameters. TIMESTAMP is a moment; TIMESTAMP_NTZ a clock without a zone."""

    BOOLEAN = "BOOLEAN"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    STRING = "STRING"
    BINARY = "BINARY"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    TIMESTAMP_NTZ = "TIMESTAMP_NTZ"

    def __str__(self) -> str:
        return self.value


INTEGER_BITS = {Scalar.TINYINT: 8, Scalar.SMALLINT: 16, Scalar.INT: 32, Scalar.BIGINT: 64}


@dataclass(frozen=True, slots=True)
class DecimalOf:
    """`precision` digits, `scale` of them after the point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 0 <= self.scale <= self.precision <= DECIMAL_PRECISION_MAX or self.precision < 1:
            raise BadSchema(
                f"{self}: a decimal has 1 to {DECIMAL_PRECISION_MAX} digits, and no more of them "
                "after the point than in all"
            )

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ListOf:
    element: "DataType"
    element_nullable: bool = True

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    key: "DataType"
    value: "DataType"
    value_nullable: bool = True

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: "DataType"
    nullable: bool = True
    comment: str = ""

    def __str__(self) -> str:
        return self.to_ddl(between=" ")

    def to_ddl(self, *, between: str) -> str:
        required = "" if self.nullable else " NOT NULL"
        comment = f" COMMENT {_quoted_text(self.comment)}" if self.comment else ""
        return f"{_quoted_name(self.name)}{between}{self.type}{required}{comment}"


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in order, at least one; their names differ in more than case, as Spark wants it."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            raise BadSchema("a schema needs at least one field, such as 'id BIGINT'")
        seen: set[str] = set()
        for field in self.fields:
            if not field.name:
                raise BadSchema("a field has an empty name: give it one")
            if field.name.lower() in seen:
                raise BadSchema(f"the field {field.name!r} is there twice: names ignore case")
            seen.add(field.name.lower())

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(field.to_ddl(between=': ') for field in self.fields)}>"

    @property
    def ddl(self) -> str:
        """As the columns of a table are declared: `id BIGINT NOT NULL, at TIMESTAMP`."""
        return ", ".join(str(field) for field in self.fields)

    def field(self, name: str) -> Field | None:
        """Exactly this name: values spell a field in one way."""
        return next((field for field in self.fields if field.name == name), None)


DataType: TypeAlias = Scalar | DecimalOf | ListOf | MapOf | Struct
# What the values of a topic look like: the struct at the top.
Schema: TypeAlias = Struct


def _quoted_name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return "`" + name.replace("`", "``") + "`"


def _quoted_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
