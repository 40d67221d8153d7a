"""What the server's own tables tell: columns, keys, character sets. One thread at a time."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from millstream.capture.change import CapturedTable
from millstream.capture.mariadb.column_type import (
    DISGUISED,
    UTF8_CHARSETS,
    ColumnType,
    catalogue_type,
)
from millstream.capture.mariadb.connection import Session
from millstream.capture.mariadb.row_decoder import DecodeText
from millstream.capture.mariadb.statements import TableName
from millstream.capture.mariadb.table_map import Charset, TableMap

COLUMNS: Final = """
    SELECT column_name, data_type, column_type, character_set_name, is_nullable, column_default,
           generation_expression
    FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
    ORDER BY ordinal_position"""
KEY: Final = """
    SELECT column_name FROM information_schema.statistics
    WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index"""
CHARSETS: Final = "SELECT character_set_name, maxlen FROM information_schema.character_sets"
# With the numbers of collations that fit several character sets, which `collations` leaves out.
MARIADB_COLLATIONS: Final = """
    SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"""
COLLATIONS: Final = "SELECT id, character_set_name FROM information_schema.collations"
COLLATIONS_WITH_ID: Final = """
    SELECT 1 FROM information_schema.columns WHERE table_schema = 'information_schema'
    AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND column_name = 'ID'"""
# Character sets of several bytes: the server's name, and Python's.
CODECS: Final[Mapping[str, str]] = {
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "big5": "big5",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
}


@dataclass(frozen=True, slots=True)
class CatalogueColumn:
    """`fills`: rows that were there before the column was have something else than null in it."""

    name: str
    type: ColumnType
    is_nullable: bool
    fills: bool
    is_zerofill: bool


@dataclass(frozen=True, slots=True)
class CatalogueTable:
    name: TableName
    columns: tuple[CatalogueColumn, ...]
    key: tuple[str, ...]

    def captured(self, topic: str) -> CapturedTable:
        return CapturedTable(
            name=str(self.name),
            topic=topic,
            columns=tuple(
                column.type.column(column.name, is_nullable=column.is_nullable)
                for column in self.columns
            ),
            key=self.key,
        )


class Catalogue:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._charsets: dict[int, tuple[str, int]] = {}
        self._decoders: dict[str, DecodeText] = {}

    def table(self, name: TableName) -> CatalogueTable | None:
        """None: there is no such table."""
        found = self._session.rows(COLUMNS, name.database, name.table)
        if not found:
            return None
        columns = tuple(_column(*[_text(value) for value in row]) for row in found)
        keys = self._session.rows(KEY, name.database, name.table)
        return CatalogueTable(name, columns, tuple(key for (key,) in keys))

    def charset_of(self, collation: int) -> Charset:
        """Of a number that a description of a table has."""
        if not self._charsets:
            sizes = dict(self._session.rows(CHARSETS))
            has_ids = bool(self._session.rows(COLLATIONS_WITH_ID))
            for number, name in self._session.rows(MARIADB_COLLATIONS if has_ids else COLLATIONS):
                if number:
                    self._charsets[number] = (name, int(sizes[name]))
        name, bytes_max = self._charsets[collation]
        return Charset(name, bytes_max, self.text_decoder(name))

    def text_decoder(self, charset: str) -> DecodeText:
        if charset not in self._decoders:
            self._decoders[charset] = self._decoder(charset)
        return self._decoders[charset]

    def _decoder(self, charset: str) -> DecodeText:
        if charset in UTF8_CHARSETS or charset == "binary":
            return lambda data: data.decode("utf-8", "backslashreplace")
        if charset in CODECS:
            codec = CODECS[charset]
            return lambda data: data.decode(codec, "backslashreplace")
        table = self._bytes_of(charset)
        return lambda data: data.decode("latin-1").translate(table)

    def _bytes_of(self, charset: str) -> dict[int, str]:
        """What each byte stands for, in the server's own opinion."""
        every = bytes(range(256)).hex()
        statement = f"SELECT CONVERT(_{charset} X'{every}' USING utf8mb4)"
        ((characters,),) = self._session.rows(statement)
        return dict(enumerate(characters))

    def undisguised(self, table: TableMap) -> TableMap:
        """With the types that the binlog shows as bytes, where the catalogue knows better."""
        suspects = {
            column.name
            for column in table.columns
            if column.type.word == "binary" and column.type.length in DISGUISED.values()
        }
        found = self.table(TableName(table.database, table.table)) if suspects else None
        known = {column.name: column.type for column in found.columns} if found else {}
        columns = tuple(
            replace(column, type=known[column.name])
            if column.name in suspects
            and DISGUISED.get(_word(known.get(column.name))) == column.type.length
            else column
            for column in table.columns
        )
        return replace(table, columns=columns)


def _word(kind: ColumnType | None) -> str:
    return kind.word if kind else ""


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def _column(
    name: str | None,
    data_type: str | None,
    column_type: str | None,
    charset: str | None,
    is_nullable: str | None,
    default: str | None,
    expression: str | None,
) -> CatalogueColumn:
    return CatalogueColumn(
        name=name or "",
        type=catalogue_type((data_type or "").lower(), column_type or "", charset),
        is_nullable=is_nullable == "YES",
        fills=is_nullable != "YES" or (default or "NULL") != "NULL" or bool(expression),
        is_zerofill="zerofill" in (column_type or ""),
    )
