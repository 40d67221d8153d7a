"""The least, the greatest, the distinct and all values of groups, while rows come and go."""

import math
from typing import Any

from millstream.base.identity import identity
from millstream.processing.operators.aggregate_state import GroupResult, Weighted, aggregate_rows
from millstream.processing.operators.aggregates import (
    Average,
    Collected,
    Count,
    DistinctCount,
    Greatest,
    Least,
    Sum,
)
from tests.support.page_dictionary import PageDictionary

ORDERED = (Least("amount"), Greatest("amount"), DistinctCount("amount"), Collected("amount"))


def changed(
    store: PageDictionary, *rows: tuple[int, Any], group: Any = "a", of: Any = ORDERED
) -> list[GroupResult]:
    """`rows` are weight and amount."""
    weighted = (
        Weighted(weight, identity([group]), (group,), (amount,) * len(of))
        for weight, amount in rows
    )
    return list(aggregate_rows(store, weighted, of))


def results(store: PageDictionary, *rows: tuple[int, Any]) -> tuple[Any, ...] | None:
    (found,) = changed(store, *rows)
    return found.results


def test_when_the_least_goes_the_next_is_there() -> None:
    store = PageDictionary()
    assert results(store, (1, 3), (1, 1), (1, 2)) == (1, 3, 3, [1, 2, 3])
    assert results(store, (-1, 1)) == (2, 3, 2, [2, 3])
    assert results(store, (-1, 3)) == (2, 2, 1, [2])


def test_a_value_that_two_rows_have_goes_with_the_second() -> None:
    store = PageDictionary()
    assert results(store, (1, 1), (1, 1), (1, 5)) == (1, 5, 2, [1, 1, 5])
    assert results(store, (-1, 1)) == (1, 5, 2, [1, 5])
    assert results(store, (-1, 1)) == (5, 5, 1, [5])


def test_a_group_of_nulls_has_rows_and_no_values() -> None:
    store = PageDictionary()
    assert results(store, (1, None)) == (None, None, 0, [])
    assert results(store, (-1, None)) is None
    assert store.pages == {}


def test_of_floats_nan_is_the_greatest_and_zeros_are_one() -> None:
    found = results(PageDictionary(), (1, -0.0), (1, math.nan), (1, 0.0), (1, math.inf))
    assert repr(found) == "(0.0, nan, 3, [0.0, 0.0, inf, nan])"


def test_structs_are_compared_member_by_member_in_their_order() -> None:
    low, high = {"b": 1, "a": 9}, {"b": 2, "a": 0}
    assert results(PageDictionary(), (1, high), (1, low)) == (low, high, 2, [low, high])


def test_a_group_is_shown_alike_whichever_zero_came_first() -> None:
    for zero in (0.0, -0.0):
        ((by, _),) = changed(PageDictionary(), (1, 1), group=zero)
        assert repr(by) == "(0.0,)"


def test_aggregates_of_one_column_share_its_values() -> None:
    alone, shared = PageDictionary(), PageDictionary()
    rows = [(1, number) for number in range(1_000)]
    changed(alone, *rows, of=ORDERED[:1])
    changed(shared, *rows, of=ORDERED)
    assert len(shared.pages) == len(alone.pages)


def test_groups_without_aggregates_are_the_distinct_values() -> None:
    store = PageDictionary()
    assert changed(store, (1, 1), (1, 1), of=()) == [GroupResult(("a",), ())]
    assert changed(store, (-1, 1), of=()) == []
    assert changed(store, (-1, 1), of=()) == [GroupResult(("a",), None)]


def test_a_change_of_a_large_group_costs_a_few_pages() -> None:
    store = PageDictionary()
    of = (Count(), Sum("amount"), Average("amount"), Least("amount"), DistinctCount("amount"))
    changed(store, *((1, number) for number in range(20_000)), of=of)
    store.reads = store.writes = 0
    (found,) = changed(store, (-1, 0), (1, 20_000), of=of)
    assert found.results == (20_000, 200_010_000, 10_000.5, 1, 20_000)
    assert store.reads <= 8
    assert store.writes <= 6
