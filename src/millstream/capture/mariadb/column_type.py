"""A column's type, as the binlog and the catalogue tell it, and what it is in our schemas. Pure.

The two sources of it meet here, so that a table looks the same to its initial load and to its
changes. How values are written is docs/formats/capture_mariadb.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.base.schema import DECIMAL_PRECISION_MAX, DataType, DecimalOf, ListOf, Scalar
from millstream.capture.change import CapturedColumn

UNSIGNED_64: Final = DecimalOf(20, 0)
INTEGERS: Final[Mapping[str, tuple[DataType, DataType]]] = {  # signed, unsigned
    "tinyint": (Scalar.TINYINT, Scalar.SMALLINT),
    "smallint": (Scalar.SMALLINT, Scalar.INT),
    "mediumint": (Scalar.INT, Scalar.INT),
    "int": (Scalar.INT, Scalar.BIGINT),
    "bigint": (Scalar.BIGINT, UNSIGNED_64),
}
PLAIN: Final[Mapping[str, DataType]] = {
    "year": Scalar.SMALLINT,
    "float": Scalar.FLOAT,
    "double": Scalar.DOUBLE,
    "date": Scalar.DATE,
    "datetime": Scalar.TIMESTAMP_NTZ,
    "timestamp": Scalar.TIMESTAMP,
    "set": ListOf(Scalar.STRING),
    "binary": Scalar.BINARY,
    "varbinary": Scalar.BINARY,
    "geometry": Scalar.BINARY,
}
BLOB_SIZES: Final = ("tiny", "", "medium", "long")  # by the bytes of a length, 1 to 4
# The catalogue's words for shapes, in the order of their numbers in WKB; the first is of any shape.
GEOMETRIES: Final = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)
# Types that the binlog shows as bytes: the catalogue alone knows them.
DISGUISED: Final[Mapping[str, int]] = {"uuid": 16, "inet6": 16, "inet4": 4}
UTF8_CHARSETS: Final = ("utf8mb4", "utf8mb3", "utf8", "ascii")
DIGITS: Final = re.compile(r"\((\d+)(?:,(\d+))?\)")
MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")
ESCAPED: Final = re.compile(r"''|\\(.)")  # as the catalogue writes members
ESCAPES: Final[Mapping[str, str]] = {"0": "\0", "n": "\n", "r": "\r"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """`word` is the base type. `length`: characters, bytes, bits, digits, or digits of a second.

    `values`: the members of an enum or set. `charset`: of texts, "" for others.
    """

    word: str
    length: int = 0
    scale: int = 0
    is_unsigned: bool = False
    charset: str = ""
    values: tuple[str, ...] = ()

    @property
    def declared(self) -> str:
        """As the database would declare it, without what does not change its values."""
        match self.word:
            case "decimal":
                return f"decimal({self.length},{self.scale})" + self._sign
            case "enum" | "set":
                members = ",".join("'" + value.replace("'", "''") + "'" for value in self.values)
                return f"{self.word}({members})"
            case "char" | "varchar" | "binary" | "varbinary" | "bit":
                return f"{self.word}({self.length})"
            case "datetime" | "timestamp" | "time" if self.length:
                return f"{self.word}({self.length})"
        return self.word + self._sign

    @property
    def _sign(self) -> str:
        return " unsigned" if self.is_unsigned else ""

    @property
    def data_type(self) -> DataType:
        match self.word:
            case word if word in INTEGERS:
                return INTEGERS[word][self.is_unsigned]
            case "bit":
                return _bit_type(self.length)
            case "decimal" if self.length <= DECIMAL_PRECISION_MAX:
                return DecimalOf(self.length, self.scale)
            case word if word.endswith("blob"):
                return Scalar.BINARY
        return PLAIN.get(self.word, Scalar.STRING)

    def column(self, name: str, *, is_nullable: bool) -> CapturedColumn:
        return CapturedColumn(
            name=name,
            database_type=self.declared,
            type=self.data_type,
            is_nullable=is_nullable,
        )


def _bit_type(bits: int) -> DataType:
    if bits == 1:
        return Scalar.BOOLEAN
    return UNSIGNED_64 if bits == 64 else Scalar.BIGINT


def catalogue_type(data_type: str, column_type: str, charset: str | None) -> ColumnType:
    """Of a row of information_schema.columns: `decimal`, `decimal(10,2) unsigned`, None."""
    word = "geometry" if data_type in GEOMETRIES or data_type == "geomcollection" else data_type
    if word in ("enum", "set"):
        members = tuple(_member(found) for found in MEMBER.findall(column_type))
        return ColumnType(word=word, values=members, charset=charset or "")
    length, scale = _digits(word, column_type)
    return ColumnType(
        word=word,
        length=length,
        scale=scale,
        is_unsigned="unsigned" in column_type,
        charset=charset or "",
    )


def _member(quoted: str) -> str:
    return ESCAPED.sub(lambda one: ESCAPES.get(one[1], one[1]) if one[1] else "'", quoted)


def _digits(word: str, column_type: str) -> tuple[int, int]:
    """Those that count: the width of an int(11) is for screens only."""
    if word == "year":  # of two digits the server sends two, and logs all four
        return (2, 0) if column_type.startswith("year(2)") else (0, 0)
    if word in INTEGERS or word in ("float", "double"):
        return 0, 0
    found = DIGITS.search(column_type)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)
