"""The binlog's description of a table, which comes before its rows. Pure.

    table_id      uint48
    flags         uint16
    database      uint8 length, name, 0
    table         uint8 length, name, 0
    columns       lenenc count, then one type code each
    metadata      lenenc length, then 0-2 bytes for each column, by its type
    nullable      a bit for each column
    more          fields of (type, lenenc length, value): with binlog_row_metadata=FULL, names,
                  signs, character sets, members of enums and sets, and the primary key

Numbers are little-endian; a lenenc is a number of 1, 3, 4 or 9 bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.base.errors import Corrupt, Rejected
from millstream.capture.mariadb.column_type import BLOB_SIZES, ColumnType

# Type codes, as the server's sources name them.
TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, VARCHAR, BIT = 10, 11, 12, 13, 15, 16
TIMESTAMP2, DATETIME2, TIME2 = 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON, NEWDECIMAL, ENUM, SET, BLOB = 242, 245, 246, 247, 248, 252
VAR_STRING, STRING, GEOMETRY = 253, 254, 255

INTEGER_WORDS: Final[Mapping[int, str]] = {
    TINY: "tinyint",
    SHORT: "smallint",
    INT24: "mediumint",
    LONG: "int",
    LONGLONG: "bigint",
}
PLAIN_WORDS: Final[Mapping[int, str]] = {
    FLOAT: "float",
    DOUBLE: "double",
    YEAR: "year",
    DATE: "date",
    TIMESTAMP: "timestamp",
    DATETIME: "datetime",
    TIME: "time",
    JSON: "json",
    GEOMETRY: "geometry",
    VECTOR: "varbinary",
}
FRACTION_WORDS: Final[Mapping[int, str]] = {
    TIMESTAMP2: "timestamp",
    DATETIME2: "datetime",
    TIME2: "time",
}
METADATA_BYTES: Final[Mapping[int, int]] = {
    FLOAT: 1, DOUBLE: 1, BLOB: 1, GEOMETRY: 1, JSON: 1, VECTOR: 1, BLOB_COMPRESSED: 1,
    TIMESTAMP2: 1, DATETIME2: 1, TIME2: 1,
    VARCHAR: 2, VARCHAR_COMPRESSED: 2, BIT: 2, NEWDECIMAL: 2, STRING: 2, VAR_STRING: 2,
    ENUM: 2, SET: 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dialect:
    """`character`: the columns of which a server tells the character set."""

    character: frozenset[int]


MYSQL: Final = Dialect(frozenset({STRING, VAR_STRING, VARCHAR, BLOB}))
MARIADB: Final = Dialect(MYSQL.character | {BLOB_COMPRESSED, VARCHAR_COMPRESSED, GEOMETRY})
# The columns of which they tell the sign.
NUMERIC: Final = {*INTEGER_WORDS, FLOAT, DOUBLE, NEWDECIMAL, YEAR}

STRINGS: Final = {STRING, VAR_STRING, VARCHAR, BLOB, BLOB_COMPRESSED, VARCHAR_COMPRESSED}

# Fields after the columns.
SIGNS, DEFAULT_CHARSET, COLUMN_CHARSETS, NAMES, SET_VALUES, ENUM_VALUES = 1, 2, 3, 4, 5, 6
PRIMARY_KEY, PRIMARY_KEY_PREFIXES = 8, 9
ENUM_DEFAULT_CHARSET, ENUM_CHARSETS = 10, 11

BINARY_COLLATION = 63


class MetadataMissing(Rejected):
    """The server describes tables without names: it was told so before these rows were written."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"the binlog has rows of {table} without the names of its columns: "
            "SET GLOBAL binlog_row_metadata = FULL, then load the table anew"
        )
        self.table = table


class UnknownColumnType(Rejected):
    def __init__(self, *, column: int, code: int) -> None:
        super().__init__(f"column {column + 1} has the type code {code}, which is not known here")
        self.column, self.code = column, code


class CutShort(Corrupt):
    def __init__(self, what: str) -> None:
        super().__init__(f"{what} in the binlog is shorter than it says")


@dataclass(frozen=True, slots=True)
class Charset:
    """`bytes_max` of one character; `decode` makes text of bytes."""

    name: str
    bytes_max: int
    decode: Callable[[bytes], str] = field(compare=False)


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A column as it is on the wire (`code`, `meta`), and what it is (`type`)."""

    name: str
    code: int
    meta: int
    type: ColumnType
    is_nullable: bool


@dataclass(frozen=True, slots=True)
class TableMap:
    database: str
    table: str
    columns: tuple[MappedColumn, ...]
    key: tuple[str, ...]


def table_names(body: bytes) -> tuple[str, str]:
    """Database and table of a map, and nothing else of it."""
    database_end = 9 + body[8]
    table_start = database_end + 2
    table_end = table_start + body[database_end + 1]
    return body[9:database_end].decode(), body[table_start:table_end].decode()


def read_table_map(body: bytes, dialect: Dialect, charset_of: Callable[[int], Charset]) -> TableMap:
    """`charset_of` the number of a collation."""
    database, table = table_names(body)
    at = 8 + len(database.encode()) + len(table.encode()) + 4
    count, at = lenenc(body, at)
    codes, at = body[at : at + count], at + count
    size, at = lenenc(body, at)
    metas = list(_metas(codes, body[at : at + size]))
    at += size
    nullable = _bits_up(body[at : at + (count + 7) // 8], count)
    fields = dict(_fields(body, at + (count + 7) // 8))
    if NAMES not in fields:
        raise MetadataMissing(f"{database}.{table}")
    names = list(_texts(fields[NAMES]))
    types = _types(codes, metas, fields, dialect, charset_of)
    columns = zip(names, codes, metas, types, nullable, strict=True)
    return TableMap(
        database,
        table,
        tuple(MappedColumn(*column) for column in _real_codes(columns)),
        tuple(names[index] for index in _key(fields)),
    )


def _real_codes(
    columns: Iterator[tuple[str, int, int, ColumnType, bool]],
) -> Iterator[tuple[str, int, int, ColumnType, bool]]:
    for name, code, meta, kind, is_nullable in columns:
        yield name, real_code(code, meta), meta, kind, is_nullable


def real_code(code: int, meta: int) -> int:
    """Enums and sets are disguised as strings; the first byte of the metadata tells."""
    if code == STRING and meta >> 8 in (ENUM, SET):
        return meta >> 8
    return code


def string_bytes_max(meta: int) -> int:
    """Of a CHAR: lengths over 255 borrow two bits of the type's byte."""
    high, low = meta >> 8, meta & 0xFF
    return low | ((high & 0x30) ^ 0x30) << 4


def lenenc(data: bytes, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _metas(codes: bytes, data: bytes) -> Iterator[int]:
    """Two bytes have the first one on top, but for lengths, which are numbers."""
    at = 0
    for code in codes:
        size = METADATA_BYTES.get(code, 0)
        is_length = code in (VARCHAR, VARCHAR_COMPRESSED)
        yield int.from_bytes(data[at : at + size], "little" if is_length else "big")
        at += size


def _fields(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(body):
        kind = body[at]
        size, start = lenenc(body, at + 1)
        if start + size > len(body):
            raise CutShort("the description of a table")
        yield kind, body[start : start + size]
        at = start + size


def _numbers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = lenenc(data, at)
        yield number


def _texts(data: bytes) -> Iterator[str]:
    yield from (text.decode() for text in _strings(data))


def _strings(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size, at = lenenc(data, at)
        yield data[at : at + size]
        at += size


def _members(data: bytes) -> Iterator[list[bytes]]:
    """Of each enum, or of each set: a count, then so many strings."""
    at = 0
    while at < len(data):
        count, at = lenenc(data, at)
        found = []
        for _ in range(count):
            size, at = lenenc(data, at)
            found.append(data[at : at + size])
            at += size
        yield found


def _bits_up(data: bytes, count: int) -> list[bool]:
    return [bool(data[index // 8] >> index % 8 & 1) for index in range(count)]


def _bits_down(data: bytes, count: int) -> list[bool]:
    return [bool(data[index // 8] >> 7 - index % 8 & 1) for index in range(count)]


def _key(fields: Mapping[int, bytes]) -> list[int]:
    if PRIMARY_KEY_PREFIXES in fields:  # pairs of a column and the length of its prefix
        return list(_numbers(fields[PRIMARY_KEY_PREFIXES]))[::2]
    return list(_numbers(fields.get(PRIMARY_KEY, b"")))


def _collations(fields: Mapping[int, bytes], default: int, each: int, count: int) -> list[int]:
    """A default with exceptions, or one for each column, whichever is shorter."""
    if each in fields:
        return list(_numbers(fields[each]))
    if default not in fields:
        return [BINARY_COLLATION] * count
    usual, *rest = _numbers(fields[default])
    exceptions = dict(zip(rest[::2], rest[1::2], strict=True))
    return [exceptions.get(index, usual) for index in range(count)]


def _types(
    codes: bytes,
    metas: Sequence[int],
    fields: Mapping[int, bytes],
    dialect: Dialect,
    charset_of: Callable[[int], Charset],
) -> Iterator[ColumnType]:
    real = [real_code(code, meta) for code, meta in zip(codes, metas, strict=True)]
    numeric = sum(code in NUMERIC for code in real)
    signs = iter(_bits_down(fields.get(SIGNS, bytes(numeric)), numeric))
    character = sum(code in dialect.character for code in real)
    texts = iter(_collations(fields, DEFAULT_CHARSET, COLUMN_CHARSETS, character))
    listed = sum(code in (ENUM, SET) for code in real)
    lists = iter(_collations(fields, ENUM_DEFAULT_CHARSET, ENUM_CHARSETS, listed))
    members = {
        ENUM: _members(fields.get(ENUM_VALUES, b"")),
        SET: _members(fields.get(SET_VALUES, b"")),
    }
    for index, (code, meta) in enumerate(zip(real, metas, strict=True)):
        is_unsigned = next(signs) if code in NUMERIC else False
        charset = next(texts) if code in dialect.character else BINARY_COLLATION
        if code in (ENUM, SET):
            yield _member_type(code, next(members[code]), charset_of(next(lists)))
        elif code in STRINGS:
            yield _character_type(code, meta, charset_of(charset))
        elif code in INTEGER_WORDS or code in (FLOAT, DOUBLE, NEWDECIMAL):
            yield _number_type(code, meta, is_unsigned=is_unsigned)
        else:
            yield _other_type(index, code, meta)


def _member_type(code: int, members: Sequence[bytes], charset: Charset) -> ColumnType:
    values = tuple(charset.decode(member) for member in members)
    return ColumnType(word="enum" if code == ENUM else "set", values=values, charset=charset.name)


def _number_type(code: int, meta: int, *, is_unsigned: bool) -> ColumnType:
    if code == NEWDECIMAL:
        return ColumnType(
            word="decimal", length=meta >> 8, scale=meta & 0xFF, is_unsigned=is_unsigned
        )
    word = INTEGER_WORDS.get(code) or PLAIN_WORDS[code]
    return ColumnType(word=word, is_unsigned=is_unsigned)


def _character_type(code: int, meta: int, charset: Charset) -> ColumnType:
    is_binary = charset.name == "binary"
    name = "" if is_binary else charset.name
    if code in (BLOB, BLOB_COMPRESSED):
        word = BLOB_SIZES[meta - 1] + ("blob" if is_binary else "text")
        return ColumnType(word=word, charset=name)
    is_fixed = code == STRING
    # A compressed one has a byte more, which says how.
    bytes_max = string_bytes_max(meta) if is_fixed else meta - (code == VARCHAR_COMPRESSED)
    word = ("" if is_fixed else "var") + ("binary" if is_binary else "char")
    return ColumnType(word=word, length=bytes_max // charset.bytes_max, charset=name)


def _other_type(index: int, code: int, meta: int) -> ColumnType:
    if code == BIT:
        return ColumnType(word="bit", length=(meta & 0xFF) * 8 + (meta >> 8))
    if code in FRACTION_WORDS:
        return ColumnType(word=FRACTION_WORDS[code], length=meta)
    if code not in PLAIN_WORDS:
        raise UnknownColumnType(column=index, code=code)
    return ColumnType(word=PLAIN_WORDS[code])
