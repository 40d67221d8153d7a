"""Aggregates of windows as partials that merge: of one event, of a window, of two windows. Pure.

A merge is exact, and the order of merging does not matter: so a result is the same however events
were split into batches, and whichever came first. Sums keep every digit of integers and decimals;
floats are summed as whole multiples of the smallest one, and rounded once, at the end.

Nulls are left out, as in SQL; the partial of nothing is None. Where time decides (first, last,
collect) and two events have the same one, the smaller value comes first.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

from millstream.base.errors import Rejected
from millstream.base.quantity import INT64_MAX

# Two decimals of 38 digits differ by at most 38 places: their sum, and those of 10^20 of them, fit.
EXACT = Context(prec=100, rounding=ROUND_HALF_UP)
# Every finite float is a whole multiple of 2^-1074.
FLOAT_UNITS = 1 << 1074
# As in Spark: an average of decimals has four digits more after the point.
AVERAGE_DIGITS_MORE = 4
DECIMAL_DIGITS_MAX = 38

Partials: TypeAlias = tuple[Any, ...]


class SumTooLarge(Rejected):
    def __init__(self, *, column: str, total: int | Decimal) -> None:
        super().__init__(
            f"the sum of {column} is {total}, more than its type holds: cast the column to DOUBLE "
            "before, or to DECIMAL(28,0) if it is a whole number"
        )
        self.column, self.total = column, total


class Aggregate(ABC):
    """Of a column, or of whole events. `lift` and `merge` never see a null."""

    function: ClassVar[str]
    column: str | None

    @abstractmethod
    def lift(self, at: int, value: Any) -> Any:
        """The partial of one event."""

    @abstractmethod
    def merge(self, left: Any, right: Any) -> Any: ...

    @abstractmethod
    def result(self, partial: Any) -> Any:
        """None is the partial of nothing."""


@dataclass(frozen=True)
class Count(Aggregate):
    """Events; with a column, those that have a value in it."""

    column: str | None = None
    function: ClassVar[str] = "count"

    def lift(self, at: int, value: Any) -> int:
        return 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, partial: int | None) -> int:
        return partial or 0


@dataclass(frozen=True)
class Sum(Aggregate):
    column: str
    function: ClassVar[str] = "sum"

    def lift(self, at: int, value: Any) -> Any:
        return exact_from(value)

    def merge(self, left: Any, right: Any) -> Any:
        return add_exactly(left, right)

    def result(self, partial: Any) -> Any:
        total: Any = None if partial is None else rounded(partial)
        if is_too_large(total):
            raise SumTooLarge(column=self.column, total=total)
        return total


@dataclass(frozen=True)
class Average(Aggregate):
    """A partial is the exact sum and the count."""

    column: str
    function: ClassVar[str] = "avg"

    def lift(self, at: int, value: Any) -> tuple[Any, int]:
        return exact_from(value), 1

    def merge(self, left: tuple[Any, int], right: tuple[Any, int]) -> tuple[Any, int]:
        return add_exactly(left[0], right[0]), left[1] + right[1]

    def result(self, partial: tuple[Any, int] | None) -> Any:
        return None if partial is None else divided(*partial)


@dataclass(frozen=True)
class Least(Aggregate):
    column: str
    function: ClassVar[str] = "min"

    def lift(self, at: int, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return min(left, right, key=order_of)

    def result(self, partial: Any) -> Any:
        return partial


@dataclass(frozen=True)
class Greatest(Aggregate):
    column: str
    function: ClassVar[str] = "max"

    def lift(self, at: int, value: Any) -> Any:
        return value

    def merge(self, left: Any, right: Any) -> Any:
        return max(left, right, key=order_of)

    def result(self, partial: Any) -> Any:
        return partial


@dataclass(frozen=True)
class First(Aggregate):
    """The value of the earliest event; a partial is its time and it."""

    column: str
    function: ClassVar[str] = "first"

    def lift(self, at: int, value: Any) -> tuple[int, Any]:
        return at, value

    def merge(self, left: tuple[int, Any], right: tuple[int, Any]) -> tuple[int, Any]:
        return min(left, right, key=timed_order_of)

    def result(self, partial: tuple[int, Any] | None) -> Any:
        return None if partial is None else partial[1]


@dataclass(frozen=True)
class Last(Aggregate):
    """The value of the latest event; a partial is its time and it."""

    column: str
    function: ClassVar[str] = "last"

    def lift(self, at: int, value: Any) -> tuple[int, Any]:
        return at, value

    def merge(self, left: tuple[int, Any], right: tuple[int, Any]) -> tuple[int, Any]:
        return max(left, right, key=timed_order_of)

    def result(self, partial: tuple[int, Any] | None) -> Any:
        return None if partial is None else partial[1]


@dataclass(frozen=True)
class Collected(Aggregate):
    """All values, by time: as much state as there are events."""

    column: str
    function: ClassVar[str] = "collect"

    def lift(self, at: int, value: Any) -> list[tuple[int, Any]]:
        return [(at, value)]

    def merge(self, left: list[tuple[int, Any]], right: list[tuple[int, Any]]) -> Any:
        return sorted(left + right, key=timed_order_of)

    def result(self, partial: list[tuple[int, Any]] | None) -> list[Any]:
        return [value for _at, value in partial or []]


@dataclass(frozen=True)
class DistinctCount(Aggregate):
    """Exact: as much state as there are values."""

    column: str
    function: ClassVar[str] = "count_distinct"

    def lift(self, at: int, value: Any) -> frozenset[Any]:
        return frozenset([order_of(value)])

    def merge(self, left: frozenset[Any], right: frozenset[Any]) -> frozenset[Any]:
        return left | right

    def result(self, partial: frozenset[Any] | None) -> int:
        return len(partial or ())


def lift_all(aggregates: Sequence[Aggregate], at: int, values: Sequence[Any]) -> Partials:
    """The partials of one event. `values` has one for each aggregate."""
    return tuple(
        None if value is None else aggregate.lift(at, value)
        for aggregate, value in zip(aggregates, values, strict=True)
    )


def merge_all(aggregates: Sequence[Aggregate], left: Partials, right: Partials) -> Partials:
    return tuple(
        right_one
        if left_one is None
        else left_one
        if right_one is None
        else aggregate.merge(left_one, right_one)
        for aggregate, left_one, right_one in zip(aggregates, left, right, strict=True)
    )


def results_of(aggregates: Sequence[Aggregate], partials: Partials) -> tuple[Any, ...]:
    return tuple(
        aggregate.result(partial) for aggregate, partial in zip(aggregates, partials, strict=True)
    )


def order_of(value: Any) -> tuple[Any, ...]:
    """An order of all values of one type, as Spark has it: nulls first, NaN last."""
    match value:
        case None:
            return (0,)
        case float():
            return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
        case list() | tuple():
            return (1, tuple(map(order_of, value)))
        case dict():
            return (1, tuple(sorted((order_of(key), order_of(one)) for key, one in value.items())))
        case _:
            return (1, value)


def timed_order_of(timed: tuple[int, Any]) -> tuple[int, Any]:
    at, value = timed
    return at, order_of(value)


# Numbers, exactly: an integer and a decimal are themselves. A float is a pair: the finite ones as
# a count of FLOAT_UNITS, and the sum of those that are not.


def exact_from(number: Any) -> Any:
    if not isinstance(number, float):
        return number
    if not math.isfinite(number):
        return 0, number
    top, bottom = number.as_integer_ratio()
    return top * (FLOAT_UNITS // bottom), 0.0


def add_exactly(left: Any, right: Any) -> Any:
    if isinstance(left, tuple):
        return left[0] + right[0], left[1] + right[1]
    if isinstance(left, Decimal):
        return EXACT.add(left, right)
    return left + right


def is_too_large(total: Any) -> bool:
    """For BIGINT, or for 38 digits."""
    if isinstance(total, Decimal):
        return len(total.as_tuple().digits) > DECIMAL_DIGITS_MAX
    return isinstance(total, int) and not -INT64_MAX - 1 <= total <= INT64_MAX


def rounded(exact: Any) -> Any:
    return divided(exact, 1) if isinstance(exact, tuple) else exact


def divided(exact: Any, count: int) -> Any:
    if isinstance(exact, Decimal):
        return _decimal_quotient(exact, count)
    units, beyond = exact if isinstance(exact, tuple) else (exact * FLOAT_UNITS, 0.0)
    if beyond != 0.0:  # infinite, or no number: which is not equal to anything
        return beyond
    return _nearest_float(Fraction(units, count * FLOAT_UNITS))


def _nearest_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _decimal_quotient(total: Decimal, count: int) -> Decimal:
    digits_after = -int(total.as_tuple().exponent)
    scale = min(digits_after + AVERAGE_DIGITS_MORE, DECIMAL_DIGITS_MAX)
    units = Fraction(total) * 10**scale / count
    return Decimal(_half_up(units)).scaleb(-scale, EXACT)


def _half_up(number: Fraction) -> int:
    """Halves go away from zero, as in Spark's decimals."""
    magnitude = (abs(number) * 2 + 1) // 2
    return magnitude if number >= 0 else -magnitude
