"""The text of a whole row, as PostgreSQL writes it, to the texts of its columns. Pure.

(1,tea,,"a ""quoted"" text","")        the third one is null, and the last one empty
"""

import re
from typing import Final

from millstream.base.errors import Corrupt

# A column with quotes around it, or without; then what ends it. Inside of quotes, a quote and a
# backslash are doubled.
_COLUMN: Final = re.compile(rb'(?:"((?:[^"\\]|""|\\.)*)"|([^",()\\]*))([,)])', re.DOTALL)
_DOUBLED: Final = re.compile(rb'""|\\(.)', re.DOTALL)


class BadRecord(Corrupt):
    def __init__(self, text: bytes) -> None:
        super().__init__(f"not the text of a row: {text[:40]!r}")


def columns_of(text: bytes) -> list[bytes | None]:
    columns: list[bytes | None] = []
    at = 1
    while at < len(text):
        found = _COLUMN.match(text, at)
        if found is None:
            raise BadRecord(text)
        quoted, bare, _ = found.groups()
        columns.append((bare or None) if quoted is None else _unquoted(quoted))
        at = found.end()
    return columns


def _unquoted(text: bytes) -> bytes:
    if b'"' not in text and b"\\" not in text:
        return text
    return _DOUBLED.sub(lambda found: found[1] or b'"', text)
