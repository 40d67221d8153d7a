"""One JSON value to one row: the slow path, and the meaning of a value. Pure.

JSON as Python's `json` reads it: of a key that is there twice the last counts, and NaN, Infinity
and -Infinity are numbers for FLOAT and DOUBLE, also as texts ("NaN"), as JSON has no such numbers
and captures, Protobuf and others write them so. A field takes only what it holds exactly: no other
text for a number, no 1.0 for an integer, nothing out of range; DECIMAL takes text too. Missing is
null; fields that are not in the schema are passed over, also with words that only Arrow knows
(Inf, -NaN). `json_blocks.py` reads no value in another way than this.
"""

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from millstream.base.schema import (
    INTEGER_BITS,
    BadSchema,
    DataType,
    DecimalOf,
    ListOf,
    MapOf,
    Scalar,
    Schema,
    Struct,
)
from millstream.values.exact_decimal import exact_decimal
from millstream.values.unfit import Unfit, shown, too_large

Read = Callable[[Any], Any]
# Microseconds of one tick of an epoch timestamp.
DAY_MICROS = 86_400 * 1_000_000
EPOCH_DAY = date(1970, 1, 1).toordinal()
EPOCH_MICROS: Final[Mapping[str, int]] = {"s": 1_000_000, "ms": 1_000, "us": 1}
# From the year 1 to 9999, as in SQL: Python's own times, in which rows are handled, have no others.
DAYS = range(date.min.toordinal() - EPOCH_DAY, date.max.toordinal() - EPOCH_DAY + 1)
MICROS = range(DAYS.start * DAY_MICROS, DAYS.stop * DAY_MICROS)
INTEGER = re.compile(r"-?[0-9]{1,40}")  # more digits fit nowhere
DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Digits beyond microseconds are cut off: other languages write nanoseconds.
TIMESTAMP = re.compile(
    DATE.pattern
    + r"(?:[ T][0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?"
    + r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FLOAT_NORMAL_MIN = 2.0**-126
NOT_FINITE = {"NaN", "Infinity", "-Infinity"}


class Number(str):
    """A number as it was written: only the type of its field says how to read it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class OddWord:
    """A word for a number that JSON does not know (Inf, -NaN): no type takes it."""


_JSON = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=Number)
_JSON_WITH_ODD_WORDS = json.JSONDecoder(
    parse_int=Number, parse_float=Number, parse_constant=lambda _word: OddWord()
)
# Texts are matched first, so that no word in a text counts.
TEXT_OR_ODD_WORD = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?\b(?:Infinity|Inf|NaN)\b', re.DOTALL)


class JsonRows:
    """Reads values one by one. `epoch` is the unit of timestamps that are numbers."""

    def __init__(self, schema: Schema, *, epoch: str = "ms") -> None:
        if epoch not in EPOCH_MICROS:
            raise BadSchema(f"epoch={epoch!r}: the unit is one of {', '.join(EPOCH_MICROS)}")
        self._read_struct = _reader(schema, EPOCH_MICROS[epoch])

    def row(self, value: bytes) -> dict[str, Any]:
        try:
            document = parse(value)
        except Unfit as error:
            return self._row_past_odd_words(value, error)
        if not isinstance(document, dict):
            raise Unfit(f"not a JSON object but {_kind(document)}: {shown(document)}")
        row: dict[str, Any] = self._read_struct(document)
        return row

    def _row_past_odd_words(self, value: bytes, error: Unfit) -> dict[str, Any]:
        """Fields that the schema does not have may hold Inf and -NaN: Arrow passes over them, and
        a value must not depend on its neighbours. `error` says what is wrong with all others."""
        document = parse_past_odd_words(value)
        if type(document) is not dict:
            raise error
        try:
            row: dict[str, Any] = self._read_struct(document)
        except Unfit:
            raise error from None
        return row


def parse(value: bytes) -> Any:
    try:
        return _JSON.decode(value.decode())
    except UnicodeDecodeError as error:
        byte = value[error.start]
        raise Unfit(f"not UTF-8: byte 0x{byte:02x} at position {error.start}") from None
    except json.JSONDecodeError as error:
        raise Unfit(f"not JSON: {error.msg} at position {error.pos}") from None


def parse_past_odd_words(value: bytes) -> Any:
    """The document with an `OddWord` for each such word; None if it cannot be read so either."""
    if b"Inf" not in value and b"NaN" not in value:
        return None
    try:
        known = TEXT_OR_ODD_WORD.sub(_known_word, value.decode())
        return _JSON_WITH_ODD_WORDS.decode(known)
    except ValueError:  # not UTF-8, or not JSON
        return None


def _known_word(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else "NaN"


def _kind(found: Any) -> str:
    match found:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case Number():
            return "a number"
        case str():
            return "a text"
        case list():
            return "an array"
        case _:
            return "an object"


def _reader(data_type: DataType, epoch_micros: int) -> Read:
    match data_type:
        case Scalar():
            return _scalar_reader(data_type, epoch_micros)
        case DecimalOf():
            return _decimal_reader(data_type)
        case ListOf(element, nullable):
            return _list_reader(_reader(element, epoch_micros), nullable)
        case MapOf(Scalar.STRING, value, nullable):
            return _map_reader(_reader(value, epoch_micros), nullable)
        case MapOf():
            raise BadSchema(f"{data_type}: the keys of a map are STRING in JSON")
        case Struct():
            return _struct_reader(data_type, epoch_micros)


def _struct_reader(struct: Struct, epoch_micros: int) -> Read:
    parts = [
        (field.name, _reader(field.type, epoch_micros), field.nullable) for field in struct.fields
    ]

    def read(found: Any) -> dict[str, Any]:
        if type(found) is not dict:
            raise _mismatch("STRUCT", found)
        return {
            name: _read_part(found, name, read_one, nullable) for name, read_one, nullable in parts
        }

    return read


def _read_part(found: dict[str, Any], name: str, read: Read, nullable: bool) -> Any:
    inner = found.get(name)
    if inner is None:
        if nullable:
            return None
        how = "is null" if name in found else "is missing"
        raise Unfit(f"it is NOT NULL, and {how}", path=name)
    try:
        return read(inner)
    except Unfit as error:
        raise error.inside(name) from None


def _list_reader(read_one: Read, nullable: bool) -> Read:
    read_element = _element_reader(read_one, nullable)

    def read(found: Any) -> list[Any]:
        if type(found) is not list:
            raise _mismatch("ARRAY", found)
        return [read_element(one) for one in found]

    return read


def _map_reader(read_one: Read, nullable: bool) -> Read:
    read_element = _element_reader(read_one, nullable)

    def read(found: Any) -> list[tuple[str, Any]]:
        if type(found) is not dict:
            raise _mismatch("MAP", found)
        return [(_read_string(key), read_element(one)) for key, one in found.items()]

    return read


def _element_reader(read_one: Read, nullable: bool) -> Read:
    def read(found: Any) -> Any:
        if found is None:
            if nullable:
                return None
            raise Unfit("it may not hold a null", path="[]")
        try:
            return read_one(found)
        except Unfit as error:
            raise error.inside("[]") from None

    return read


def _scalar_reader(scalar: Scalar, epoch_micros: int) -> Read:
    if scalar in INTEGER_BITS:
        return _integer_reader(scalar)
    if scalar in (Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ):
        return lambda found: _read_timestamp(found, epoch_micros)
    return SCALAR_READERS[scalar]


def _integer_reader(scalar: Scalar) -> Read:
    end = 1 << (INTEGER_BITS[scalar] - 1)

    def read(found: Any) -> int:
        if type(found) is not Number or not INTEGER.fullmatch(found):
            raise _mismatch(str(scalar), found)
        number = int(found)
        if not -end <= number < end:
            raise too_large(scalar, found)
        return number

    return read


def _decimal_reader(decimal: DecimalOf) -> Read:
    def read(found: Any) -> Decimal:
        if type(found) not in (Number, str) or not DECIMAL.fullmatch(found):
            raise _mismatch(str(decimal), found)
        return exact_decimal(Decimal(found), decimal, written=found)

    return read


def _read_boolean(found: Any) -> bool:
    if type(found) is not bool:
        raise _mismatch("BOOLEAN", found)
    return found


def _read_string(found: Any) -> str:
    if type(found) is not str:
        raise _mismatch("STRING", found)
    if not found.isascii():
        try:
            found.encode()
        except UnicodeEncodeError:
            raise Unfit(f"half of a surrogate pair in {shown(found)}") from None
    return found


def _read_double(found: Any) -> float:
    if type(found) is not Number and not (type(found) is str and found in NOT_FINITE):
        raise _mismatch("DOUBLE", found)
    number = float(found)
    if math.isinf(number) and found not in NOT_FINITE:
        raise too_large("DOUBLE", found)
    return number


def _read_float(found: Any) -> float:
    """Rounded once, from the text: a double halfway between two floats would be rounded twice."""
    double = _read_double(found)
    if found in NOT_FINITE or not double:
        return double
    is_halfway = struct.unpack(">Q", struct.pack(">d", double))[0] & 0x1FFFFFFF == 0x10000000
    if is_halfway or abs(double) < FLOAT_NORMAL_MIN:
        number: float = pa.scalar(str(found)).cast(pa.float32()).as_py()
    else:
        number = _rounded_to_float(double)
    if math.isinf(number):
        raise too_large("FLOAT", found)
    return number


def _rounded_to_float(double: float) -> float:
    try:
        number: float = struct.unpack("<f", struct.pack("<f", double))[0]
    except OverflowError:
        return math.inf
    return number


def _read_binary(found: Any) -> bytes:
    try:
        return base64.b64decode(_read_string(found), validate=True)
    except (binascii.Error, ValueError):
        raise Unfit(f"expected base64 for BINARY, found {shown(found)}") from None


def _read_date(found: Any) -> int:
    """Days since 1970."""
    days = _days(found) if type(found) is str else None
    if days is None:
        raise Unfit(f"expected a DATE such as '2026-12-31', found {shown(found)}")
    if days not in DAYS:
        raise too_large("DATE", found)
    return days


def _days(text: str) -> int | None:
    if DATE.fullmatch(text):
        try:
            return date.fromisoformat(text).toordinal() - EPOCH_DAY
        except ValueError:  # the year 0000, or none at all
            pass
    return _cast(text, pa.date32())


def _read_timestamp(found: Any, epoch_micros: int) -> int:
    """Microseconds since 1970. A text without a zone is UTC."""
    micros: int | None = None
    if type(found) is Number and INTEGER.fullmatch(found):
        micros = int(found) * epoch_micros
    elif type(found) is str:
        micros = _micros(found)
    if micros is None:
        raise Unfit(
            "expected a TIMESTAMP such as '2026-12-31T23:59:59Z' or a whole number since 1970, "
            f"found {shown(found)}"
        )
    if micros not in MICROS:
        raise too_large("TIMESTAMP", found)
    return micros


def _micros(text: str) -> int | None:
    if TIMESTAMP.fullmatch(text):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            pass
        else:
            in_utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return (in_utc - EPOCH) // timedelta(microseconds=1)
    micros = _cast(text, pa.timestamp("us"))
    return _cast(text, pa.timestamp("us", tz="UTC")) if micros is None else micros


def _cast(text: str, to: pa.DataType) -> int | None:
    """By Arrow's rules, which are those of the fast path; slow, and so for odd texts only."""
    try:
        return int(pa.scalar(text).cast(to).value)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None


SCALAR_READERS: Final[Mapping[Scalar, Read]] = {
    Scalar.BOOLEAN: _read_boolean,
    Scalar.STRING: _read_string,
    Scalar.DOUBLE: _read_double,
    Scalar.FLOAT: _read_float,
    Scalar.BINARY: _read_binary,
    Scalar.DATE: _read_date,
}


def _mismatch(expected: str, found: Any) -> Unfit:
    return Unfit(f"expected {expected}, found {_kind(found)}: {shown(found)}")
