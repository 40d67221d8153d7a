"""What a statement in the binlog means for captured tables. Pure.

In row format statements are for what has no rows: the marks of a transaction, definitions of
tables. None is parsed beyond the names that it begins with. Where it may have changed rows that
are not logged, the answer is to load the table again: too often rather than never. What an ALTER
TABLE does to rows is judged by `alterations.py`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.capture.table_names import full_name

COMMENT: Final = re.compile(r"/\*(?![!M]).*?\*/|--\s[^\n]*\n|#[^\n]*\n", re.DOTALL)
# `/*!50100 TRUNCATE t */` is a statement. A server logs what it did not run as a plain comment.
EXECUTED: Final = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)
SETTINGS_FIRST: Final = re.compile(r"SET\s+STATEMENT\s.*?\sFOR\s+", re.IGNORECASE | re.DOTALL)
NAME: Final = r"(`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"
QUALIFIED: Final = rf"(?:{NAME}\s*\.\s*)?{NAME}"
TRUNCATE: Final = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{QUALIFIED}", re.IGNORECASE)
REPLACE: Final = re.compile(
    rf"CREATE\s+OR\s+REPLACE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{QUALIFIED}", re.IGNORECASE
)
DROP: Final = re.compile(r"DROP\s+TABLES?\s+(?:IF\s+EXISTS\s+)?", re.IGNORECASE)
DROP_DATABASE: Final = re.compile(
    rf"DROP\s+(?:DATABASE|SCHEMA)\s+(?:IF\s+EXISTS\s+)?{NAME}", re.IGNORECASE
)
ALTER: Final = re.compile(
    rf"ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?{QUALIFIED}", re.IGNORECASE
)
RENAME: Final = re.compile(r"RENAME\s+TABLES?\b", re.IGNORECASE)
# It takes rows of, or gives them to, a table that it names later.
OTHER_TABLE: Final = re.compile(r"\b(?:RENAME|EXCHANGE)\b", re.IGNORECASE)
ONE_NAME: Final = re.compile(QUALIFIED)
SAVEPOINT: Final = re.compile(rf"SAVEPOINT\s+{NAME}", re.IGNORECASE)
ROLLBACK_TO: Final = re.compile(
    rf"ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?{NAME}", re.IGNORECASE
)
XA: Final = re.compile(r"XA\s+(\w+)\s+(X'[0-9a-f]*'\s*,\s*X'[0-9a-f]*'\s*,\s*\d+)", re.IGNORECASE)
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


def plain(statement: str) -> str:
    """Without comments, and without settings that hold for this statement alone."""
    text = COMMENT.sub(" ", EXECUTED.sub(r" \1 ", statement)).strip()
    return SETTINGS_FIRST.sub("", text, count=1) if SETTINGS_FIRST.match(text) else text


def emptied(
    statement: str, database: str, tables: Iterable[TableName], *, folds_case: bool = False
) -> list[TableName]:
    """The tables of these that have no rows after it. `folds_case`: as this server does names."""
    text = plain(statement)
    if found := DROP_DATABASE.match(text):
        gone = _folded(_unquoted(found[1]), folds_case)
        return [table for table in tables if _folded(table.database, folds_case) == gone]
    named = [TableName(given or database, table) for given, table in _emptied_names(text)]
    return _among(tables, named, folds_case)


def _emptied_names(text: str) -> list[tuple[str, str]]:
    for pattern in (TRUNCATE, REPLACE):
        if found := pattern.match(text):
            return [(_unquoted(found[1]), _unquoted(found[2]))]
    if begin := DROP.match(text):
        found_all = ONE_NAME.findall(text[begin.end() :])
        return [(_unquoted(given), _unquoted(table)) for given, table in found_all]
    return []


def defined(
    statement: str, database: str, tables: Iterable[TableName], *, folds_case: bool = False
) -> list[TableName]:
    """The tables of these that an ALTER TABLE or a RENAME TABLE is about."""
    text = plain(statement)
    altered = ALTER.match(text)
    if altered is None:
        return mentioned(text, database, tables) if RENAME.match(text) else []
    if OTHER_TABLE.search(text, altered.end()):
        return mentioned(text, database, tables)
    name = TableName(_unquoted(altered[1]) or database, _unquoted(altered[2]))
    return _among(tables, [name], folds_case)


def _among(
    tables: Iterable[TableName], named: Iterable[TableName], folds_case: bool
) -> list[TableName]:
    wanted = {_folded(str(name), folds_case) for name in named}
    return [table for table in tables if _folded(str(table), folds_case) in wanted]


def _folded(name: str, folds_case: bool) -> str:
    return name.lower() if folds_case else name


def mentioned(statement: str, database: str, tables: Iterable[TableName]) -> list[TableName]:
    """The tables of these that it may be about."""
    return [
        table
        for table in tables
        if _has_name(statement, table.table)
        and (table.database == database or _has_name(statement, table.database))
    ]


def first_word(statement: str) -> str:
    found = FIRST_WORD.search(plain(statement))
    return found[0].upper() if found else ""


def _has_name(statement: str, name: str) -> bool:
    """As a word, or as it is spelled between quotes."""
    spelled = {name, name.replace("`", "``"), name.replace('"', '""')}
    words = "|".join(re.escape(one) for one in sorted(spelled))
    return bool(re.search(rf"(?<![\w$])(?:{words})(?![\w$])", statement, re.IGNORECASE))


def _unquoted(name: str | None) -> str:
    if name and name[0] in '`"':
        return name[1:-1].replace(name[0] * 2, name[0])
    return name or ""
