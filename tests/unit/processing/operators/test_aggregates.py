"""What windows compute, against arithmetic done by hand."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from millstream.base.quantity import INT64_MAX
from millstream.processing.operators.aggregate_state import Weighted, aggregate_rows
from millstream.processing.operators.aggregates import (
    Aggregate,
    Average,
    Collected,
    Count,
    DistinctCount,
    First,
    Greatest,
    Last,
    Least,
    Sum,
    SumTooLarge,
    lift_all,
    merge_all,
    results_of,
)
from tests.support.page_dictionary import PageDictionary

NAN = math.nan


def result(aggregate: Aggregate, values: Sequence[Any], *, times: Sequence[int] = ()) -> Any:
    merged: tuple[Any, ...] = (None,)
    for at, value in zip(times or range(len(values)), values, strict=True):
        merged = merge_all([aggregate], merged, lift_all([aggregate], at, [value]))
    return results_of([aggregate], merged)[0]


def test_nothing_but_nulls_is_nothing() -> None:
    nothing = [None, None]
    assert result(Count("x"), nothing) == result(DistinctCount("x"), nothing) == 0
    assert result(Collected("x"), nothing) == []
    for aggregate in (Sum("x"), Average("x"), Least("x"), Greatest("x"), First("x"), Last("x")):
        assert result(aggregate, nothing) is None


def test_floats_are_summed_exactly_and_rounded_once() -> None:
    assert result(Sum("x"), [0.1] * 10) == 1.0
    assert result(Sum("x"), [1e308, 1e308, -1e308]) == 1e308
    assert result(Sum("x"), [1e16, 1.0, -1e16]) == 1.0
    assert result(Sum("x"), [1e308, 1e308]) == math.inf


def test_a_sum_with_something_infinite_is_that() -> None:
    assert result(Sum("x"), [1.0, math.inf]) == math.inf
    assert math.isnan(result(Sum("x"), [math.inf, -math.inf, 1.0]))
    assert math.isnan(result(Average("x"), [1.0, NAN]))


def test_integers_and_decimals_keep_every_digit() -> None:
    assert result(Sum("x"), [2**60, 1, 2**60]) == 2**61 + 1
    large = Decimal("99999999999999999999999999999999.01")
    assert result(Sum("x"), [large, large]) == Decimal("199999999999999999999999999999998.02")


def test_an_average_of_decimals_has_four_digits_more_and_rounds_half_up() -> None:
    thirds = [Decimal("1.00"), Decimal("1.00"), Decimal("0.00")]
    assert str(result(Average("x"), thirds)) == "0.666667"
    halves = [Decimal("0.1")] + [Decimal("0.0")] * 7999
    assert str(result(Average("x"), halves)) == "0.00001"
    assert str(result(Average("x"), [-one for one in halves])) == "-0.00001"
    assert result(Average("x"), [1, 2]) == 1.5


@pytest.mark.parametrize(
    ("fits", "one"),
    [
        (INT64_MAX - 1, 1),
        (-INT64_MAX, -1),
        (Decimal("9" * 37 + "8"), Decimal(1)),
    ],
)
def test_a_sum_at_the_limit_fits(fits: Any, one: Any) -> None:
    assert result(Sum("x"), [fits, one]) == int(fits) + int(one)


@pytest.mark.parametrize("numbers", [[INT64_MAX, 1], [Decimal("9" * 38), Decimal(1)]])
def test_a_sum_past_the_limit_says_what_to_do(numbers: list[Any]) -> None:
    with pytest.raises(SumTooLarge, match=r"the sum of x is .* cast"):
        result(Sum("x"), numbers)


def test_no_number_is_the_greatest_as_in_spark() -> None:
    assert math.isnan(result(Greatest("x"), [1.0, NAN, 2.0]))
    assert result(Least("x"), [NAN, 1.0, 2.0]) == 1.0


def test_first_and_last_go_by_time_and_then_by_value() -> None:
    values, times = ["c", "b", "d", "a"], [5, 3, 5, 3]
    assert result(First("x"), values, times=times) == "a"
    assert result(Last("x"), values, times=times) == "d"
    assert result(Collected("x"), values, times=times) == ["a", "b", "c", "d"]


def test_values_that_are_equal_count_once() -> None:
    assert result(DistinctCount("x"), [1.0, NAN, NAN, 0.0, -0.0]) == 3
    assert result(DistinctCount("x"), [[1, None], [1, None], {"a": 1}]) == 2


def test_collect_goes_by_time_then_by_value_so_by_value_without_a_time() -> None:
    """In windows and in tables alike: a table has no time."""
    values = [3.0, 1.0, NAN, 2.0, -1.0]
    rows = [Weighted(1, "g", ("g",), (value,)) for value in values]
    (group,) = aggregate_rows(PageDictionary(), rows, [Collected("x")])
    assert group.results is not None
    times = [7] * len(values)
    assert repr(result(Collected("x"), values, times=times)) == repr(group.results[0])
    assert result(Collected("x"), [2.0, 1.0, 9.0], times=[7, 7, 5]) == [9.0, 1.0, 2.0]
