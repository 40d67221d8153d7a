"""Small parts that conversions of values are built of, in every store that has its own. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

Convert = Callable[[Any], Any]


def same(value: Any) -> Any:
    return value


def or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def pairs_of(found: Any) -> Any:
    """Of a map, as Arrow or Python gives it."""
    return found.items() if isinstance(found, Mapping) else found
