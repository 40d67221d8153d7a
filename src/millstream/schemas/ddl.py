"""Schemas from Spark's DDL: `id BIGINT NOT NULL, tags ARRAY<STRING>`. Pure; needs no Java.

Reads what Spark reads for the types that we have, with its short names (LONG, DEC, ...) and quoted
names; `str()` and `.ddl` of `base/schema.py` write it. Does not read INTERVAL, VARIANT, TIME,
VOID, CHAR and VARCHAR, DEFAULT and GENERATED: an error says so.
"""

import re
from dataclasses import dataclass
from typing import NoReturn

from millstream.base.schema import (
    BadSchema,
    DataType,
    DecimalOf,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Schema,
    Struct,
)

NESTING_MAX = 64
TOKEN = re.compile(
    r"""\s*(?: (?P<quoted>`(?:[^`]|``)+`)
             | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
             | (?P<word>\w+)
             | (?P<sign>[<>(),:])
             | (?P<end>$) )""",
    re.VERBOSE | re.DOTALL,
)
SHORT_NAMES = {
    "BYTE": Scalar.TINYINT,
    "SHORT": Scalar.SMALLINT,
    "INTEGER": Scalar.INT,
    "LONG": Scalar.BIGINT,
    "REAL": Scalar.FLOAT,
    "TIMESTAMP_LTZ": Scalar.TIMESTAMP,
}
SCALARS = {scalar.value: scalar for scalar in Scalar} | SHORT_NAMES
DECIMALS = {"DECIMAL", "DEC", "NUMERIC"}
KNOWN_TYPES = ", ".join(
    (*map(str, Scalar), "DECIMAL(p,s)", "ARRAY<...>", "MAP<..., ...>", "STRUCT<...>")
)


def schema_from_ddl(text: str) -> Schema:
    """`a INT, b STRING`, or the same as `STRUCT<a: INT, b: STRING>`."""
    parser = _Parser(text)
    if re.match(r"\s*struct\s*<", text, re.IGNORECASE):
        parsed = parser.data_type()
        assert isinstance(parsed, Struct)
    else:
        parsed = Struct(parser.fields(closed_by=""))
    if parser.token.kind != "end":
        parser.refuse("a comma or the end")
    return parsed


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


class _Parser:
    """Stands on one token; each method takes what it is named for, and stops after it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._depth = 0
        self.token = self._next()

    def _next(self) -> _Token:
        found = TOKEN.match(self._text, self._end)
        if found is None:
            rest = self._text[self._end :].lstrip()
            raise BadSchema(f"{self._text!r}: cannot read {rest[:20]!r} in a schema")
        self._end = found.end()
        kind = found.lastgroup or ""
        return _Token(kind, found[kind], found.start(kind))

    def refuse(self, expected: str) -> NoReturn:
        found = repr(self.token.text) if self.token.text else "the end"
        raise BadSchema(
            f"{self._text!r}: expected {expected} at position {self.token.position}, found {found}"
        )

    def _take(self) -> str:
        taken, self.token = self.token.text, self._next()
        return taken

    def _is(self, text: str) -> bool:
        return self.token.kind in ("word", "sign") and self.token.text.upper() == text

    def _skip(self, text: str) -> bool:
        return self._is(text) and bool(self._take())

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            self.refuse(repr(text))

    def fields(self, *, closed_by: str) -> tuple[Field, ...]:
        if self._is(closed_by) or self.token.kind == "end":
            self.refuse("a field, such as 'id BIGINT'")
        found = [self._field()]
        while self._skip(","):
            found.append(self._field())
        return tuple(found)

    def _field(self) -> Field:
        name = self._name()
        self._skip(":")
        data_type = self.data_type()
        required = self._skip("NOT")
        if required:
            self._expect("NULL")
        comment = self._comment() if self._skip("COMMENT") else ""
        return Field(name, data_type, nullable=not required, comment=comment)

    def _name(self) -> str:
        if self.token.kind == "quoted":
            return self._take()[1:-1].replace("``", "`")
        if self.token.kind != "word":
            self.refuse("the name of a field")
        return self._take()

    def _comment(self) -> str:
        if self.token.kind != "text":
            self.refuse("a comment in quotes")
        return re.sub(r"\\(.)", r"\1", self._take()[1:-1], flags=re.DOTALL)

    def data_type(self) -> DataType:
        if self.token.kind != "word":
            self.refuse(f"a type ({KNOWN_TYPES})")
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise BadSchema(f"a type has more than {NESTING_MAX} levels: {self._text[:60]!r}...")
        parsed = self._named_type(self.token.text.upper())
        self._depth -= 1
        return parsed

    def _named_type(self, name: str) -> DataType:
        if name in SCALARS:
            self._take()
            return SCALARS[name]
        if name in DECIMALS:
            self._take()
            return self._decimal()
        if name not in ("ARRAY", "MAP", "STRUCT"):
            self.refuse(f"a type ({KNOWN_TYPES})")
        self._take()
        return self._nested(name)

    def _decimal(self) -> DecimalOf:
        precision, scale = 10, 0  # as in Spark
        if self._skip("("):
            precision = self._number()
            scale = self._number() if self._skip(",") else 0
            self._expect(")")
        return DecimalOf(precision, scale)

    def _number(self) -> int:
        if not self.token.text.isdecimal():
            self.refuse("a number")
        return int(self._take())

    def _nested(self, name: str) -> DataType:
        self._expect("<")
        parsed = self._inside(name)
        self._expect(">")
        return parsed

    def _inside(self, name: str) -> DataType:
        if name == "ARRAY":
            return ListOf(self.data_type())
        if name == "MAP":
            key = self.data_type()
            self._expect(",")
            return MapOf(key, self.data_type())
        return Struct(self.fields(closed_by=">"))
