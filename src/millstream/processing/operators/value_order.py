"""The order of values of one column, as Spark sorts them: nulls first, NaN last. Pure.

Values are those of Arrow's rows: a struct is a dictionary and is compared member by member. Equal
values are one: 0.0 and -0.0 are kept as 0.0, whichever came first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


def rank_of(value: Any) -> tuple[Any, ...]:
    """What a value is compared by."""
    match value:
        case None:
            return (0,)
        case float():
            return (1, True, 0.0) if math.isnan(value) else (1, False, value)
        case list() | tuple():
            return (1, tuple(map(rank_of, value)))
        case dict():
            return (1, tuple(map(rank_of, value.values())))
        case _:
            return (1, value)


def with_plain_zeros(value: Any) -> Any:
    """The value that stands for all that are equal to it."""
    match value:
        case float():
            return value + 0.0  # -0.0 becomes 0.0
        case list() | tuple():
            return [with_plain_zeros(one) for one in value]
        case dict():
            return {name: with_plain_zeros(one) for name, one in value.items()}
        case _:
            return value


def descending_rank_of(value: Any) -> tuple[Any, ...]:
    """The other way round: NaN first, nulls last. Numbers are turned over without a class."""
    match value:
        case None:
            return (0,)
        case float():
            return (-1, -1, 0.0) if math.isnan(value) else (-1, 0, -value)
        case int():
            return (-1, -value)
        case _:
            return (-1, Descending(rank_of(value)))


class Descending:
    """A rank that is less where it was greater."""

    __slots__ = ("rank",)

    def __init__(self, rank: tuple[Any, ...]) -> None:
        self.rank = rank

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and self.rank == other.rank

    def __hash__(self) -> int:
        return hash(self.rank)

    def __lt__(self, other: "Descending") -> bool:
        return other.rank < self.rank


@dataclass(frozen=True, slots=True)
class RowOrder:
    """Compares tuples of values: by these columns in turn, the greatest first where it says so."""

    descending: tuple[bool, ...]

    def __call__(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            descending_rank_of(value) if is_descending else rank_of(value)
            for value, is_descending in zip(values, self.descending, strict=True)
        )
