"""What changes come to: net changes, replaced rows, totals."""

import math
from collections.abc import Iterable
from decimal import Decimal
from itertools import permutations
from typing import Any

import pytest

from millstream.base.changes import CHANGE, DELETE, INSERT, ORDER, RETRACT, UPSERT
from millstream.base.identity import identity
from millstream.processing.operators.aggregate_state import GroupResult, Weighted, aggregate_rows
from millstream.processing.operators.aggregates import Average, Count, Sum, SumTooLarge
from millstream.processing.operators.changelog_state import (
    KeyNamesTwoRows,
    Replaced,
    net_changes,
    replaced_rows,
)
from millstream.processing.operators.table_join_state import RowChange
from tests.support.page_dictionary import PageDictionary

Row = dict[str, Any]


def change(kind: str, order: int = 0, **row: Any) -> Row:
    return {**row, CHANGE: kind, ORDER: order}


def net(*changes: Row) -> list[Row]:
    """The same in whatever order the changes are."""
    answers = [
        [{name: value for name, value in row.items() if name != ORDER} for row in found]
        for found in (net_changes(order, ["id"]) for order in permutations(changes))
    ]
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


# The net change of a batch


def test_the_last_upsert_of_a_key_counts() -> None:
    found = net(change(UPSERT, 1, id=7, name="ada"), change(UPSERT, 2, id=7, name="bob"))
    assert found == [{"id": 7, "name": "bob", CHANGE: UPSERT}]


def test_a_delete_that_comes_last_leaves_the_key_alone() -> None:
    found = net(change(UPSERT, 1, id=7, name="ada"), change(DELETE, 2, id=7, name=None))
    assert found == [{"id": 7, CHANGE: DELETE}]


def test_of_one_order_what_comes_wins() -> None:
    found = net(change(UPSERT, 3, id=7, name="ada"), change(DELETE, 3, id=7, name=None))
    assert found == [{"id": 7, "name": "ada", CHANGE: UPSERT}]


def test_a_row_without_a_change_is_an_upsert() -> None:
    assert net_changes([{"id": 7}], ["id"]) == [{"id": 7, CHANGE: UPSERT}]


def test_rows_that_came_and_went_cancel_in_any_order() -> None:
    found = net(
        change(RETRACT, id=7, name="ada"),
        change(INSERT, id=7, name="bob"),
        change(RETRACT, id=7, name="bob"),
        change(INSERT, id=7, name="eve"),
    )
    assert found == [{"id": 7, "name": "eve", CHANGE: UPSERT}]


def test_a_retract_alone_is_a_delete_and_with_its_insert_nothing() -> None:
    assert net(change(RETRACT, id=7, name="ada")) == [{"id": 7, CHANGE: DELETE}]
    assert net(change(RETRACT, id=7, name="ada"), change(INSERT, id=7, name="ada")) == []


def test_a_key_that_two_rows_are_left_of_is_refused() -> None:
    two = [change(INSERT, id=7, name="ada"), change(INSERT, id=7, name="bob")]
    with pytest.raises(KeyNamesTwoRows, match=r"two rows with the key \{'id': 7\}"):
        net_changes(two, ["id"])


# Rows that replace others


def replaced(store: PageDictionary, *rows: tuple[str, bytes | None]) -> list[Replaced]:
    changes = [RowChange(0, key, "()", row, order) for order, (key, row) in enumerate(rows)]
    return list(replaced_rows(store, changes))


def test_an_update_takes_the_old_row_back() -> None:
    store = PageDictionary()
    assert replaced(store, ("7", b"ada")) == [Replaced(False, b"ada")]
    assert replaced(store, ("7", b"bob")) == [Replaced(True, b"ada"), Replaced(False, b"bob")]
    assert replaced(store, ("7", b"bob")) == []
    assert replaced(store, ("7", None)) == [Replaced(True, b"bob")]
    assert store.pages == {}


def test_a_row_that_came_and_went_in_one_batch_was_never_there() -> None:
    assert replaced(PageDictionary(), ("7", b"ada"), ("7", None)) == []


# Totals

AGGREGATES = (Count(), Count("amount"), Sum("amount"), Average("amount"))


def totals(store: PageDictionary, *rows: tuple[int, str, Any]) -> list[GroupResult]:
    """`rows` are weight, group and amount."""
    return list(aggregate_rows(store, map(_weighted, rows), AGGREGATES))


def _weighted(row: tuple[int, str, Any]) -> Weighted:
    weight, group, amount = row
    return Weighted(weight, identity([group]), (group,), (1, amount, amount, amount))


def test_totals_go_down_when_rows_go() -> None:
    store = PageDictionary()
    assert totals(store, (1, "a", 3), (1, "a", 4)) == [GroupResult(("a",), (2, 2, 7, 3.5))]
    assert totals(store, (-1, "a", 3)) == [GroupResult(("a",), (1, 1, 4, 4.0))]


def test_a_group_without_rows_is_gone_and_leaves_nothing() -> None:
    store = PageDictionary()
    totals(store, (1, "a", 3))
    assert totals(store, (-1, "a", 3)) == [GroupResult(("a",), None)]
    assert store.pages == {}


def test_a_group_that_came_and_went_in_one_batch_is_not_seen() -> None:
    assert totals(PageDictionary(), (1, "a", 3), (-1, "a", 3)) == []


def test_a_group_whose_results_stay_the_same_is_not_seen() -> None:
    store = PageDictionary()
    totals(store, (1, "a", 3))
    assert totals(store, (-1, "a", 3), (1, "a", 3)) == []


def test_a_row_that_moves_changes_two_groups() -> None:
    store = PageDictionary()
    totals(store, (1, "a", 3), (1, "a", 4))
    assert totals(store, (-1, "a", 3), (1, "b", 3)) == [
        GroupResult(("a",), (1, 1, 4, 4.0)),
        GroupResult(("b",), (1, 1, 3, 3.0)),
    ]


def test_nulls_count_as_rows_and_not_as_values() -> None:
    found = totals(PageDictionary(), (1, "a", None))
    assert found == [GroupResult(("a",), (1, 0, None, None))]


def amounts_after(gone: Iterable[Any], left: Iterable[Any]) -> tuple[Any, ...] | None:
    store = PageDictionary()
    kept = [(1, "a", amount) for amount in left]
    passing = [(1, "a", amount) for amount in gone]
    totals(store, *kept, *passing)
    (found,) = totals(store, *((-1, "a", amount) for _, _, amount in passing))
    return found.results


def test_what_is_taken_back_leaves_no_trace_in_a_sum() -> None:
    assert amounts_after(gone=[1e300, 0.1], left=[0.2]) == (1, 1, 0.2, 0.2)
    huge, cent = Decimal("9" * 36), Decimal("0.01")
    assert amounts_after(gone=[huge], left=[cent]) == (1, 1, cent, Decimal("0.010000"))
    assert amounts_after(gone=[math.inf, -math.inf, math.nan], left=[1.5]) == (1, 1, 1.5, 1.5)


def test_a_sum_with_infinity_in_it_is_infinite() -> None:
    assert amounts_after(gone=[1.0], left=[math.inf, 2.0]) == (2, 2, math.inf, math.inf)


@pytest.mark.parametrize("amounts", [(2**62, 2**62), (Decimal("9" * 38), Decimal(1))])
def test_a_sum_that_its_type_cannot_hold_is_refused_by_its_name(amounts: tuple[Any, Any]) -> None:
    with pytest.raises(SumTooLarge, match="the sum of amount"):
        totals(PageDictionary(), *((1, "a", amount) for amount in amounts))
