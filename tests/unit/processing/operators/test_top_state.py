"""The first rows of groups: who comes up when one goes, and what a change costs."""

from typing import Any

from millstream.processing.operators.top_state import Placed, Top, TopChange
from millstream.processing.operators.value_order import RowOrder
from tests.support.page_dictionary import PageDictionary

# By score, the greatest first, then by name.
BY_SCORE = RowOrder((True, False))
FIRST_TWO = Top(2, BY_SCORE, 1)


def changes(
    store: PageDictionary, *rows: tuple[int, Any, str], top: Top = FIRST_TWO, group: str = "g"
) -> list[tuple[int, str]]:
    """`rows` are weight, score and name; the answer is number and row."""
    placed = (
        Placed(weight, group, (score, name), f"{name} {score}".encode())
        for weight, score, name in rows
    )
    return [_shown(change) for change in top.changes(store, placed)]


def _shown(change: TopChange) -> tuple[int, str]:
    return change.number, change.row.decode()


def test_the_first_rows_are_told_with_their_number() -> None:
    found = changes(PageDictionary(), (1, 5, "ada"), (1, 7, "bob"), (1, 6, "eve"))
    assert found == [(1, "bob 7"), (2, "eve 6")]


def test_when_one_goes_the_next_comes_up() -> None:
    store = PageDictionary()
    changes(store, (1, 5, "ada"), (1, 7, "bob"), (1, 6, "eve"))
    assert changes(store, (-1, 7, "bob")) == [(0, "bob 7"), (2, "ada 5")]


def test_a_row_behind_the_first_changes_nothing() -> None:
    store = PageDictionary()
    changes(store, (1, 5, "ada"), (1, 7, "bob"))
    assert changes(store, (1, 1, "eve")) == []
    assert changes(store, (-1, 1, "eve")) == []


def test_an_update_is_not_told_as_an_end() -> None:
    store = PageDictionary()
    changes(store, (1, 5, "ada"), (1, 7, "bob"))
    assert changes(store, (-1, 5, "ada"), (1, 9, "ada")) == [(1, "ada 9")]


def test_equal_rows_come_by_their_key() -> None:
    assert changes(PageDictionary(), (1, 5, "eve"), (1, 5, "ada")) == [(1, "ada 5"), (2, "eve 5")]


def test_nulls_are_less_than_all_else() -> None:
    rows = [(1, None, "ada"), (1, 0, "bob"), (1, None, "eve")]
    assert changes(PageDictionary(), *rows) == [(1, "bob 0"), (2, "ada None")]
    ascending = Top(2, RowOrder((False, False)), 1)
    assert changes(PageDictionary(), *rows, top=ascending) == [(1, "ada None"), (2, "eve None")]


def test_with_numbers_a_new_first_row_moves_the_others() -> None:
    numbered = Top(3, BY_SCORE, 1, numbered=True)
    store = PageDictionary()
    changes(store, (1, 5, "ada"), (1, 7, "bob"), top=numbered)
    found = changes(store, (1, 9, "eve"), top=numbered)
    assert found == [(1, "eve 9"), (2, "bob 7"), (3, "ada 5")]


def test_groups_are_apart_and_an_empty_one_leaves_nothing() -> None:
    store = PageDictionary()
    changes(store, (1, 5, "ada"), group="g")
    assert changes(store, (1, 1, "bob"), group="h") == [(1, "bob 1")]
    changes(store, (-1, 5, "ada"), group="g")
    changes(store, (-1, 1, "bob"), group="h")
    assert store.pages == {}


def test_a_change_of_a_large_group_costs_a_few_pages() -> None:
    store = PageDictionary()
    changes(store, *((1, number, f"n{number}") for number in range(10_000)))
    store.reads = store.writes = 0
    assert changes(store, (-1, 9_999, "n9999")) == [(0, "n9999 9999"), (2, "n9997 9997")]
    assert store.reads <= 6
    assert store.writes <= 4
