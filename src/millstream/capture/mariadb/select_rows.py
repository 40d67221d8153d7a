"""The statement that reads rows of a table, and its answer to JSON: the same bytes as the binlog's.

Pure. An answer's row is one packet: for each column its length (lenenc) and its text, or 251 for
null. As in `row_decoder.py`, code is made for each table.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millstream.capture.mariadb.catalogue import CatalogueColumn, CatalogueTable
from millstream.capture.mariadb.column_type import INTEGERS, ColumnType
from millstream.capture.mariadb.row_decoder import (
    base64_text,
    member_reader,
    object_text,
    utf8_text,
)
from millstream.capture.mariadb.value_text import float_text

NULL: Final = 251
NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
# (packet) -> (key, row)
ReadAnswer = Callable[[bytes], tuple[bytes, bytes]]
BYTES_WORDS: Final = ("binary", "varbinary", "geometry")
NUMBER_WORDS: Final = {*INTEGERS, "year", "decimal", "float", "double", "bit", "enum", "set"}


def quoted_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def table_text(table: CatalogueTable) -> str:
    return f"{quoted_name(table.name.database)}.{quoted_name(table.name.table)}"


def select_list(columns: Sequence[CatalogueColumn]) -> str:
    return ", ".join(_expression(column) for column in columns)


def _expression(column: CatalogueColumn) -> str:
    name = quoted_name(column.name)
    if column.type.word in ("bit", "enum", "set"):
        return f"CAST({name} AS UNSIGNED)"
    if column.type.word == "float":  # as it is shown, it has six digits
        return f"CAST({name} AS DOUBLE)"
    if _is_short_year(column.type):
        return _whole_year(name)
    return f"{name} + 0" if column.is_zerofill else name


def _is_short_year(kind: ColumnType) -> bool:
    return kind.word == "year" and kind.length == 2


def _whole_year(name: str) -> str:
    """Of two digits, those that the binlog has: a YEAR(2) is from 1970 to 2069."""
    return f"{name} + IF({name} < 70, 2000, 1900)"


def answer_reader(table: CatalogueTable) -> ReadAnswer:
    names: dict[str, Any] = {"long_size": _long_size}
    lines = ["def read(data):", "    at = 0"]
    for index, column in enumerate(table.columns):
        names[f"form_{index}"] = _form(column.type)
        lines += [
            "    size = data[at]; at += 1",
            f"    if size == {NULL}: v{index} = 'null'",
            "    else:",
            f"        if size > {NULL}: size, at = long_size(data, at, size)",
            f"        v{index} = form_{index}(data[at : at + size]); at += size",
        ]
    places = {column.name: index for index, column in enumerate(table.columns)}
    row = object_text([column.name for column in table.columns], places)
    key = f"{object_text(table.key, places)}.encode()" if table.key else "b''"
    lines.append(f"    return {key}, {row}.encode()")
    exec("\n".join(lines), names)  # the text is ours: names of columns are in it as literals only
    made: ReadAnswer = names["read"]
    return made


def _long_size(data: bytes, at: int, first: int) -> tuple[int, int]:
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at : at + size], "little"), at + size


def _form(kind: ColumnType) -> Callable[[bytes], str]:
    """From the server's text to that in JSON."""
    word = kind.word
    if word in BYTES_WORDS or word.endswith("blob"):
        return base64_text
    if word in FORMS:
        return FORMS[word]
    if word in ("enum", "set"):
        member = member_reader(kind)
        return lambda data: member(int(data))
    if word == "bit":
        return _bit_form(kind.length)
    if word in INTEGERS:
        is_text = word == "bigint" and kind.is_unsigned
        return _quoted if is_text else bytes.decode
    return utf8_text


def _quoted(data: bytes) -> str:
    return f'"{data.decode()}"'


def _bit_form(bits: int) -> Callable[[bytes], str]:
    if bits == 1:
        return lambda data: "true" if data == b"1" else "false"
    return _quoted if bits == 64 else bytes.decode


FORMS: Final[Mapping[str, Callable[[bytes], str]]] = {
    "year": lambda data: str(int(data)),  # no year is 0000
    "decimal": _quoted,
    "float": lambda data: float_text(float(data)),
    "double": lambda data: repr(float(data)),
    "date": _quoted,
    "time": _quoted,
    "uuid": _quoted,
    "inet6": _quoted,
    "inet4": _quoted,
    "datetime": lambda data: f'"{data.decode().replace(" ", "T")}"',
    "timestamp": lambda data: f'"{data.decode().replace(" ", "T")}Z"',
}


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Rows of a table with a key after one and up to another, both as texts to be kept.

    A text is a JSON array of the key's columns: numbers as they are, bytes in base64.
    """

    table: CatalogueTable

    def condition(self, after: str | None, until: str | None) -> str:
        parts = []
        if after is not None:
            parts.append(self._compared(after, ">"))
        if until is not None:
            parts.append(self._compared(until, "<="))
        return " AND ".join(parts) or "1 = 1"

    def _compared(self, text: str, sign: str) -> str:
        """`(a, b) > (1, 2)` in the form that the server finds by its index."""
        names = [
            f"({_whole_year(quoted_name(name))})" if _is_short_year(kind) else quoted_name(name)
            for name, kind in zip(self.table.key, self._kinds(), strict=True)
        ]
        values = [
            self._literal(kind, value)
            for kind, value in zip(self._kinds(), json.loads(text), strict=True)
        ]
        last = f"{names[-1]} {sign} {values[-1]}"
        strict = sign[0]
        for name, value in zip(names[-2::-1], values[-2::-1], strict=True):
            last = f"({name} {strict} {value} OR ({name} = {value} AND {last}))"
        return last if len(names) == 1 else f"{names[0]} {strict}= {values[0]} AND {last}"

    def _kinds(self) -> list[ColumnType]:
        by_name = {column.name: column.type for column in self.table.columns}
        return [by_name[name] for name in self.table.key]

    def _literal(self, kind: ColumnType, value: str) -> str:
        if _is_number(kind):
            if not NUMBER.fullmatch(value):
                raise ValueError(f"{value!r} is no number, in a key of {self.table.name}")
            return value
        if _is_bytes(kind):
            return f"X'{base64.b64decode(value).hex()}'"
        # A literal without quotes and escapes, that is compared as the column's collation says.
        return f"_utf8mb4 X'{value.encode().hex()}'"

    def of_answer(self, packet: bytes) -> str:
        """The key of a row that was read."""
        values = dict(
            zip((column.name for column in self.table.columns), answer_parts(packet), strict=True)
        )
        return self.text([values[name] or b"" for name in self.table.key])

    def text(self, values: Sequence[bytes]) -> str:
        shown = [
            base64.b64encode(value).decode() if _is_bytes(kind) else value.decode()
            for kind, value in zip(self._kinds(), values, strict=True)
        ]
        return json.dumps(shown, ensure_ascii=False)


def _is_number(kind: ColumnType) -> bool:
    return kind.word in NUMBER_WORDS


def _is_bytes(kind: ColumnType) -> bool:
    return kind.word in BYTES_WORDS or kind.word.endswith("blob")


def answer_parts(packet: bytes) -> list[bytes | None]:
    parts: list[bytes | None] = []
    at = 0
    while at < len(packet):
        size, at = packet[at], at + 1
        if size == NULL:
            parts.append(None)
            continue
        if size > NULL:
            size, at = _long_size(packet, at, size)
        parts.append(packet[at : at + size])
        at += size
    return parts
