"""Source text in the making, shared by the two compilers (`reader_source`, `writer_source`).

Each line remembers the field that it is about, so that a compiled function pays nothing for good
error messages: when it fails, the line number in the traceback names the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from struct import Struct
from typing import Any

from millstream.broker.wire.message import Field, Message

# Wire types of a fixed size, and how `struct` spells them.
FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
# The types with a size before them, and that size's own form before flexible versions.
SIZED = {"string": "h", "bytes": "i", "records": "i"}
ARRAY_COUNT = "i"

_NAMES = {"?": "z", "16s": "u"}


class Source:
    """Lines, their indentation, and the names that they use."""

    def __init__(self) -> None:
        self.scope: dict[str, Any] = {}
        self.fields: list[str] = []
        self._lines: list[str] = []
        self._depth = 0

    def add(self, line: str, field: str = "") -> None:
        self._lines.append(" " * self._depth + line)
        self.fields.append(field)

    @contextmanager
    def block(self, head: str, field: str = "") -> Iterator[None]:
        self.add(head, field)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, value: type[Message]) -> str:
        """A name by which the source can refer to the class."""
        name = value.__name__
        self.scope[name] = value
        return name

    def text(self) -> str:
        return "\n".join(self._lines)

    def compile(self, title: str, function: str) -> Callable[..., Any]:
        exec(compile(self.text(), f"<{title}>", "exec"), self.scope)
        compiled: Callable[..., Any] = self.scope[function]
        return compiled

    def field_at(self, error: BaseException) -> str:
        """The field at which `error` left the compiled function."""
        line = error.__traceback__.tb_lineno if error.__traceback__ else 0
        return self.fields[line - 1] if 0 < line <= len(self.fields) else ""


@cache
def layout(formats: tuple[str, ...]) -> Struct:
    return Struct(">" + "".join(formats))


def layout_name(formats: tuple[str, ...]) -> str:
    return "".join(_NAMES.get(one, one) for one in formats)


def bytes_min(field: Field, version: int, *, is_flexible: bool) -> int:
    """The fewest bytes that the field can take on the wire."""
    if field.is_array:
        return 1 if is_flexible else 4
    return element_bytes_min(
        field.kind, version, is_flexible=is_flexible, is_nullable=field.is_nullable_in(version)
    )


def element_bytes_min(
    kind: str | type[Message], version: int, *, is_flexible: bool, is_nullable: bool = False
) -> int:
    if isinstance(kind, str):
        if kind in FIXED:
            return layout((FIXED[kind],)).size
        return 1 if is_flexible else layout((SIZED[kind],)).size
    if is_nullable:
        return 1
    present = [one for one in kind.__schema__.fields if one.tag is None and one.is_in(version)]
    size = sum(bytes_min(one, version, is_flexible=is_flexible) for one in present)
    return size + (1 if is_flexible else 0)
