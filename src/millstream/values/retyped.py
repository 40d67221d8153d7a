"""Values of a column that has had another type: read by that type, then converted. Pure.

Only what loses nothing is converted, and comes out as the database itself would cast it without a
USING. What depends on a time zone, on the database or on rounding is not: such a value is bad.
docs/formats/capture_values.md lists the pairs.
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from millstream.base.schema import INTEGER_BITS, DataType, DecimalOf, Scalar
from millstream.values.unfit import shown

# A value that is not null becomes this value, or None if that would lose something.
Convert = Callable[[Any], Any]
FLOAT_WHOLE_MAX, DOUBLE_WHOLE_MAX = 2**24, 2**53
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
TEXT_READS_AS: Final = (Scalar.DATE, Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ)


@dataclass(frozen=True, slots=True)
class Retyped:
    """How values of a column of type `old` become those of type `new`: read as `read_as`, then
    converted. Without `convert` the forms of both types are the same."""

    old: DataType
    new: DataType
    read_as: DataType
    convert: Convert | None = None

    def reason(self, column: str, value: Any, *, version: int) -> str:
        found = shown(str(value) if isinstance(value, date) else value)
        return (
            f"field `{column}`: it was {self.old} in version {version} of the table, which this "
            f"record has, and is {self.new} now: {found} cannot be converted without loss. "
            "Run `millstream capture reload` to have the rows of the table written again"
        )


def retyped(old: DataType, new: DataType) -> Retyped:
    if _have_one_form(old, new):
        return Retyped(old, new, read_as=new)
    if old in INTEGER_BITS and isinstance(new, Scalar):
        return Retyped(old, new, old, FROM_INTEGER.get(new, _never))
    if old is Scalar.STRING and new in INTEGER_BITS:
        return Retyped(old, new, old, _integer_reader(INTEGER_BITS[new]))
    if old is Scalar.TIMESTAMP_NTZ and new is Scalar.STRING:
        return Retyped(old, new, Scalar.STRING, lambda text: text.replace("T", " ", 1))
    if isinstance(old, Scalar) and isinstance(new, Scalar):
        return Retyped(old, new, old, OTHERS.get((old, new)) or _from_boolean(old, new))
    return Retyped(old, new, old, _never)


def _have_one_form(old: DataType, new: DataType) -> bool:
    """Whether the JSON of the old type, read as the new one, is the same value or is bad."""
    if old == new:
        return True
    if old in INTEGER_BITS:
        return new in INTEGER_BITS or isinstance(new, DecimalOf)
    if isinstance(old, DecimalOf):
        return isinstance(new, DecimalOf) or new is Scalar.STRING
    if old is Scalar.STRING:
        return isinstance(new, DecimalOf) or new in TEXT_READS_AS
    return old is Scalar.DATE and new in (Scalar.STRING, Scalar.TIMESTAMP_NTZ)


def _never(_value: Any) -> None:
    return None


def _from_boolean(old: Scalar, new: Scalar) -> Convert:
    return int if old is Scalar.BOOLEAN and new in INTEGER_BITS else _never


def _whole_within(most: int) -> Convert:
    return lambda number: float(number) if abs(number) <= most else None


def _integer_reader(bits: int) -> Convert:
    end = 1 << (bits - 1)

    def read(text: str) -> int | None:
        number = int(text) if WHOLE.fullmatch(text) else None
        return number if number is not None and -end <= number < end else None

    return read


def _to_float(number: float) -> float | None:
    try:
        single: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return None
    return single if single == number or number != number else None


FROM_INTEGER: Final[Mapping[Scalar, Convert]] = {
    Scalar.STRING: str,
    Scalar.DOUBLE: _whole_within(DOUBLE_WHOLE_MAX),
    Scalar.FLOAT: _whole_within(FLOAT_WHOLE_MAX),
}
OTHERS: Final[Mapping[tuple[Scalar, Scalar], Convert]] = {
    (Scalar.FLOAT, Scalar.DOUBLE): float,
    (Scalar.DOUBLE, Scalar.FLOAT): _to_float,
}
