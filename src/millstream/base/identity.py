"""What makes two values the same one: a text that is equal when they are. Pure.

For keys that are kept or compared outside of Spark, by its rules: decimals are equal whatever
their scale, 0.0 is -0.0, NaN is itself, moments are equal in any zone, structs and lists member by
member. It can be stored: a value has the same text in every process. Values of one column have one
type: texts of different types are not told apart.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any


def identity(values: Iterable[Any]) -> str:
    """Of a key of one or more columns."""
    return repr(tuple(_canonical(value) for value in values))


def _canonical(value: Any) -> Any:
    if value is None or isinstance(value, str | int | bytes):
        return value
    if isinstance(value, float):
        return value + 0.0  # -0.0 becomes 0.0
    if isinstance(value, Decimal):
        return _digits(value)
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, Mapping):
        return tuple(_canonical(member) for member in value.values())
    if isinstance(value, list | tuple):
        return [_canonical(member) for member in value]
    return str(value)  # a date


def _digits(value: Decimal) -> str:
    """Not `normalize()`, which rounds to 28 digits."""
    text = f"{value:f}"
    shortest = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if shortest == "-0" else shortest


def _moment(value: datetime) -> str:
    return value.isoformat() if value.tzinfo is None else value.astimezone(UTC).isoformat()
