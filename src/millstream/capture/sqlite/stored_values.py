"""Values as SQLite stores them, to JSON, without loss. Pure.

A value that its column's type can hold is written as docs/formats/capture_values.md says. SQLite
lets a column hold others: they keep their own form, which a decoder refuses by name, rather than
to be taken for what they are not: {"blob": base64}, {"text": ...}, {"not_utf8": base64}.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring as quoted  # as UTF-8, not escaped to ASCII
from typing import Any, NamedTuple

from millstream.base.schema import DataType, Scalar
from millstream.capture.sqlite.shape import Shape, type_of


class BrokenText(NamedTuple):
    """A text that is not UTF-8: SQLite takes any bytes for one."""

    content: bytes


Stored = int | float | str | bytes | BrokenText | None
Written = Callable[[Stored], str]
ToJson = Callable[[Sequence[Stored]], bytes]


def text_from(content: bytes) -> str | BrokenText:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return BrokenText(content)


def row_to_json(shape: Shape) -> ToJson:
    """Of all columns, in their order."""
    return _object_to_json([(column.name, type_of(column.declared)) for column in shape.columns])


def key_to_json(shape: Shape) -> Callable[[Sequence[Stored]], bytes | None]:
    """Of the key's columns, out of all; None for a table without a key."""
    places = shape.key_places
    if not places:
        return lambda _row: None
    columns = [shape.columns[place] for place in places]
    to_json = _object_to_json([(column.name, type_of(column.declared)) for column in columns])
    return lambda row: to_json([row[place] for place in places])


def key_values(shape: Shape, key: bytes) -> list[Stored]:
    """What `key_to_json` was given."""
    found = json.loads(key)
    types = {column.name: type_of(column.declared) for column in shape.columns}
    return [_read_as(types[column], found[column]) for column in shape.key]


def _read_as(kind: DataType, found: Any) -> Stored:
    if kind is Scalar.BINARY and isinstance(found, str):
        return base64.b64decode(found)
    return int(found) if isinstance(found, bool) else _read(found)


def _object_to_json(fields: Sequence[tuple[str, DataType]]) -> ToJson:
    parts = [(f"{quoted(name)}:", WRITTEN.get(kind, written)) for name, kind in fields]

    def to_json(row: Sequence[Stored]) -> bytes:
        pairs = zip(parts, row, strict=True)
        inner = [name + write(value) for (name, write), value in pairs]
        return ("{" + ",".join(inner) + "}").encode()

    return to_json


def written(value: Stored) -> str:
    """By what it is stored as. Integers have all their digits, and floats read back as the same."""
    match value:
        case None:
            return "null"
        case float():
            return repr(value) if math.isfinite(value) else quoted(_not_finite(value))
        case str():
            return quoted(value)
        case bytes():
            return f'{{"blob":"{base64.b64encode(value).decode()}"}}'
        case BrokenText(content):
            return f'{{"not_utf8":"{base64.b64encode(content).decode()}"}}'
        case _:
            return str(value)


def _not_finite(value: float) -> str:
    return "Infinity" if value > 0 else "-Infinity"  # SQLite stores NaN as NULL


def _written_as_text(value: Stored) -> str:
    found = written(value)
    return quoted(found) if isinstance(value, int | float) and found[0] != '"' else found


def _written_as_boolean(value: Stored) -> str:
    if isinstance(value, int) and value in (0, 1):
        return "true" if value else "false"
    return written(value)


def _written_as_binary(value: Stored) -> str:
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    return f'{{"text":{quoted(value)}}}' if isinstance(value, str) else written(value)


WRITTEN: Mapping[DataType, Written] = {
    Scalar.STRING: _written_as_text,
    Scalar.BOOLEAN: _written_as_boolean,
    Scalar.BINARY: _written_as_binary,
}


def to_text(values: Sequence[Stored]) -> str:
    """A place in a table, to be kept: `from_text` gives the same values."""
    kept = [json.dumps(one) if isinstance(one, float) else written(one) for one in values]
    return f"[{','.join(kept)}]"  # Python reads its own word for an infinite float


def from_text(text: str) -> list[Stored]:
    return [_read(one) for one in json.loads(text)]


def _read(found: Any) -> Stored:
    match found:
        case {"blob": content}:
            return base64.b64decode(content)
        case {"not_utf8": content}:
            return BrokenText(base64.b64decode(content))
        case {"text": text}:
            return str(text)
        case _:
            stored: Stored = found
            return stored
