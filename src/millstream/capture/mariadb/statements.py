"""What a statement in the binlog means for captured tables. Pure.

In row format statements are for what has no rows: the marks of a transaction, definitions of
tables. None is parsed beyond the names that it begins with. Where it may have changed rows that
are not logged, the answer is to load the table anew: too often rather than never.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.capture.table_names import full_name

COMMENT: Final = re.compile(r"/\*(?![!M]).*?\*/|--\s[^\n]*\n|#[^\n]*\n", re.DOTALL)
NAME: Final = r"(`(?:[^`]|``)+`|[\w$]+)"
QUALIFIED: Final = rf"(?:{NAME}\s*\.\s*)?{NAME}"
TRUNCATE: Final = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{QUALIFIED}", re.IGNORECASE)
REPLACE: Final = re.compile(
    rf"CREATE\s+OR\s+REPLACE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{QUALIFIED}", re.IGNORECASE
)
DROP: Final = re.compile(r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
DROP_DATABASE: Final = re.compile(
    rf"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?{NAME}", re.IGNORECASE
)
ONE_NAME: Final = re.compile(QUALIFIED)
SAVEPOINT: Final = re.compile(rf"SAVEPOINT\s+{NAME}", re.IGNORECASE)
ROLLBACK_TO: Final = re.compile(
    rf"ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?{NAME}", re.IGNORECASE
)
XA: Final = re.compile(r"XA\s+(\w+)\s+(X'[0-9a-f]*'\s*,\s*X'[0-9a-f]*'\s*,\s*\d+)", re.IGNORECASE)
WITHOUT_ROWS: Final = re.compile(r"\b(?:PARTITION|PARTITIONING|TABLESPACE)\b", re.IGNORECASE)
FIRST_WORD: Final = re.compile(r"\w+")


class Mark(Enum):
    """Where in a transaction a statement stands."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    OTHER = "other"


MARKS: Final = {
    "BEGIN": Mark.BEGIN,
    "START TRANSACTION": Mark.BEGIN,
    "COMMIT": Mark.COMMIT,
    "ROLLBACK": Mark.ROLLBACK,
}


def mark_of(statement: str) -> Mark:
    return MARKS.get(statement.strip().upper(), Mark.OTHER)


def savepoint_set(statement: str) -> str | None:
    found = SAVEPOINT.match(statement)
    return _unquoted(found[1]) if found else None


def savepoint_rolled_back_to(statement: str) -> str | None:
    found = ROLLBACK_TO.match(statement)
    return _unquoted(found[1]) if found else None


def xa_step(statement: str) -> tuple[str, str] | None:
    """`XA COMMIT X'61',X'',1`: the word, and the transaction's name in one spelling."""
    found = XA.match(statement)
    return (found[1].upper(), re.sub(r"\s", "", found[2]).lower()) if found else None


def xa_name(body: bytes) -> str:
    """The same name, of an XA_PREPARE event."""
    form = int.from_bytes(body[1:5], "little")
    first = int.from_bytes(body[5:9], "little")
    second = int.from_bytes(body[9:13], "little")
    names = body[13 : 13 + first], body[13 + first : 13 + first + second]
    return f"x'{names[0].hex()}',x'{names[1].hex()}',{form}"


@dataclass(frozen=True, slots=True)
class TableName:
    database: str
    table: str

    def __str__(self) -> str:
        return full_name(self.database, self.table)


def emptied(statement: str, database: str, tables: Iterable[TableName]) -> list[TableName]:
    """The tables of these that have no rows after it."""
    plain = COMMENT.sub(" ", statement).strip()
    if found := DROP_DATABASE.match(plain):
        return [table for table in tables if table.database == _unquoted(found[1])]
    named = {TableName(given or database, table) for given, table in _emptied_names(plain)}
    return [table for table in tables if table in named]


def _emptied_names(plain: str) -> list[tuple[str, str]]:
    for pattern in (TRUNCATE, REPLACE):
        if found := pattern.match(plain):
            return [(_unquoted(found[1]), _unquoted(found[2]))]
    if begin := DROP.match(plain):
        found_all = ONE_NAME.findall(plain[begin.end() :])
        return [(_unquoted(given), _unquoted(table)) for given, table in found_all]
    return []


def mentioned(statement: str, database: str, tables: Iterable[TableName]) -> list[TableName]:
    """The tables of these that it may be about."""
    return [
        table
        for table in tables
        if _has_word(statement, table.table)
        and (table.database == database or _has_word(statement, table.database))
    ]


def changes_rows_unseen(statement: str) -> bool:
    """Whether rows may come or go with it that are not in the binlog."""
    return bool(WITHOUT_ROWS.search(statement)) or first_word(statement) == "RENAME"


def first_word(statement: str) -> str:
    found = FIRST_WORD.search(COMMENT.sub(" ", statement))
    return found[0].upper() if found else ""


def _has_word(statement: str, name: str) -> bool:
    return bool(re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", statement, re.IGNORECASE))


def _unquoted(name: str | None) -> str:
    if name and name.startswith("`"):
        return name[1:-1].replace("``", "`")
    return name or ""
