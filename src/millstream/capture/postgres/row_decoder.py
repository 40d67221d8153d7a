"""A row's bytes to JSON, by functions that are made for one version of a table. Pure.

The columns of a table are known when its rows come, so the code for them is written out once: no
loop, no look-up by type, and all that does not change from row to row is encoded beforehand.

    row(message, at)       -> (key, whole row, end), or None where a value was not sent
    identity(message, at)  -> (key, columns of the replica identity, end), or None
    line(copied)           -> (key, whole row) of a line of COPY

`at` is where the tuple begins, with the number of its columns. `parts` reads a tuple column by
column: for those that have values which were not sent.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from millstream.base.errors import Corrupt
from millstream.capture.postgres import json_forms
from millstream.capture.postgres.json_forms import Form

Read = Callable[[bytes, int], tuple[bytes | None, bytes, int] | None]
ReadLine = Callable[[bytes], tuple[bytes | None, bytes]]

NULL: Final = ord("n")
UNCHANGED: Final = ord("u")
TEXT: Final = ord("t")

# Forms whose expression is written into the code, to save a call. `v` is the value's text.
_INLINE: Final[dict[Form, str]] = {
    json_forms.of_number: "v",
    json_forms.of_plain: "b'\"' + v + b'\"'",
    json_forms.of_boolean: 'b"true" if v == b"t" else b"false"',
    json_forms.of_text: "escaped(v) if must_escape(v) else b'\"' + v + b'\"'",
    json_forms.of_timestamptz: (
        "b'\"' + v[:10] + b'T' + v[11:-3] + b'Z\"' "
        "if v[10:11] == b' ' and v[-3:] == b'+00' else of_timestamptz(v)"
    ),
}


class BadTuple(Corrupt):
    def __init__(self, message: bytes, at: int, *, columns: int) -> None:
        found = int.from_bytes(message[at : at + 2])
        super().__init__(f"PostgreSQL sent a row of {found} columns for a table of {columns}")


class KeyNotSent(Corrupt):
    def __init__(self, key: Sequence[str]) -> None:
        super().__init__(
            f"PostgreSQL did not send the long key ({', '.join(key)}) of a row that was changed. "
            "Servers before 13.6 and 14.2 do so: take a newer one, or ALTER TABLE ... REPLICA "
            "IDENTITY FULL"
        )


class DecodedColumn(NamedTuple):
    name: str
    form: Form


Columns = Sequence[DecodedColumn]
Places = Sequence[int]
WriteCode = Callable[[Columns, Places, Places], list[str]]


class RowDecoder:
    """Reads the rows of one version of a table. `key` and `identity` name some of its columns."""

    def __init__(
        self, columns: Sequence[DecodedColumn], key: Sequence[str], identity: Iterable[str]
    ) -> None:
        self.columns = tuple(columns)
        names = [column.name for column in columns]
        self._key_at = tuple(names.index(name) for name in key)
        self._count = len(names).to_bytes(2)
        self._key_template = _template(self.columns, self._key_at)
        all_at = tuple(range(len(names)))
        identity_at = tuple(sorted(names.index(name) for name in identity))
        self.row: Read = _compiled(_tuple_code, self.columns, all_at, self._key_at)
        self.identity: Read = _compiled(_tuple_code, self.columns, identity_at, self._key_at)
        self.line: ReadLine = _compiled(_line_code, self.columns, all_at, self._key_at)

    def parts(self, message: bytes, at: int) -> tuple[list[bytes | None], int]:
        """The value of each column as JSON, None where it was not sent; and where they end."""
        if message[at : at + 2] != self._count:
            raise BadTuple(message, at, columns=len(self.columns))
        found: list[bytes | None] = []
        at += 2
        for column in self.columns:
            kind = message[at]
            if kind != TEXT:
                found.append(b"null" if kind == NULL else None)
                at += 1
                continue
            end = at + 5 + int.from_bytes(message[at + 1 : at + 5])
            found.append(column.form(message[at + 5 : end]))
            at = end
        return found, at

    def row_of(self, parts: Sequence[bytes | None]) -> bytes:
        """The columns that were sent."""
        named = zip(self.columns, parts, strict=True)
        return b"{%b}" % b",".join(
            json_forms.of_text(column.name.encode()) + b":" + part
            for column, part in named
            if part is not None
        )

    def key_of(self, parts: Sequence[bytes | None]) -> bytes | None:
        if not self._key_at:
            return None
        values = tuple(parts[number] for number in self._key_at)
        if None in values:
            raise KeyNotSent([self.columns[number].name for number in self._key_at])
        return self._key_template % values

    def unavailable(self, parts: Sequence[bytes | None]) -> tuple[str, ...]:
        named = zip(self.columns, parts, strict=True)
        return tuple(column.name for column, part in named if part is None)


def _tuple_code(columns: Columns, wanted: Places, key_at: Places) -> list[str]:
    """Columns that are not wanted are null where the server sends a key."""
    lines = [
        "def read(b, p):",
        "    if b[p : p + 2] != COUNT: raise BadTuple(b, p, columns=COLUMNS)",
        "    p += 2",
    ]
    for number, column in enumerate(columns):
        if number not in wanted:
            lines += ["    if b[p] != 110: return None", "    p += 1"]
            continue
        lines += [
            "    if b[p : p + 4] == SHORT_TEXT:",
            "        e = p + 5 + b[p + 4]",
            "        v = b[p + 5 : e]",
            "        p = e",
            f"        c{number} = {_expression(number, column.form)}",
            "    elif b[p] == 110:",
            f"        c{number} = null",
            "        p += 1",
            "    elif b[p] == 116:",
            "        e = p + 5 + int_of(b[p + 1 : p + 5])",
            "        v = b[p + 5 : e]",
            "        p = e",
            f"        c{number} = {_expression(number, column.form)}",
            "    else: return None",
        ]
    key = _filled("KEY", key_at) if key_at and {*key_at} <= {*wanted} else "None"
    return [*lines, f"    return {key}, {_filled('ROW', wanted)}, p"]


def _line_code(columns: Columns, wanted: Places, key_at: Places) -> list[str]:
    """COPY writes tabs between values, \\N for null, and backslashes before what is special."""
    names = "".join(f"t{number}, " for number in wanted)
    lines = ["def read(b):"]
    if names:
        lines += [f"    {names}= b[:-1].split(b'\\t')"]
    lines += ["    if backslash in b:", *_values_with_backslashes(columns)]
    lines += ["    else:", *_values_without_backslashes(columns)]
    key = _filled("KEY", key_at) if key_at else "None"
    return [*lines, f"    return {key}, {_filled('ROW', wanted)}"]


def _values_with_backslashes(columns: Columns) -> Iterator[str]:
    yield "        pass"
    for number, column in enumerate(columns):
        yield f"        v = t{number}"
        yield f"        if v == copy_null: c{number} = null"
        yield "        else:"
        yield "            v = unescaped(v)"
        yield f"            c{number} = {_expression(number, column.form)}"


def _values_without_backslashes(columns: Columns) -> Iterator[str]:
    yield "        pass"
    for number, column in enumerate(columns):
        yield f"        v = t{number}"
        yield f"        c{number} = {_expression(number, column.form)}"


def _expression(number: int, form: Form) -> str:
    return _INLINE.get(form, f"form{number}(v)")


def _filled(template: str, numbers: Iterable[int]) -> str:
    return f"{template} % ({''.join(f'c{number}, ' for number in numbers)})"


def _compiled(write: WriteCode, columns: Columns, wanted: Places, key_at: Places) -> Any:
    """No name of a table or column gets into the code: only numbers of columns."""
    names: dict[str, Any] = {
        "ROW": _template(columns, wanted),
        "KEY": _template(columns, key_at),
        "COUNT": len(columns).to_bytes(2),
        "COLUMNS": len(columns),
        "SHORT_TEXT": b"t\0\0\0",  # of less than 256 bytes
        "BadTuple": BadTuple,
        "null": b"null",
        "int_of": int.from_bytes,
        "escaped": json_forms.escaped,
        "must_escape": json_forms.must_escape,
        "of_timestamptz": json_forms.of_timestamptz,
        "copy_null": b"\\N",
        "backslash": b"\\",
        "unescaped": unescaped,
    }
    names |= {f"form{number}": column.form for number, column in enumerate(columns)}
    code = "\n".join(write(columns, wanted, key_at))
    exec(compile(code, f"<rows of {len(columns)} columns>", "exec"), names)
    return names["read"]


def _template(columns: Columns, numbers: Places) -> bytes:
    """`{"id":%b,"item":%b}`"""
    names = [json_forms.of_text(columns[number].name.encode()) for number in numbers]
    return b"{" + b",".join([name.replace(b"%", b"%%") + b":%b" for name in names]) + b"}"


_COPY_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_COPY_ESCAPES: Final = {
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
}


def unescaped(text: bytes) -> bytes:
    """A value as COPY writes it, to the value."""
    if b"\\" not in text:
        return text
    return _COPY_ESCAPE.sub(lambda found: _COPY_ESCAPES.get(found[1], found[1]), text)
