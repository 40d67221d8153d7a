"""The steps of a join of tables: which join key a row has, and what becomes of its pairs."""

from collections.abc import Iterable

from millstream.processing.operators.table_join_state import (
    LEFT,
    RIGHT,
    PairChange,
    RowChange,
    follow_moves,
    join_changes,
    last_changes,
)
from tests.support.page_dictionary import PageDictionary

INNER, LEFT_OUTER = (False, False), (True, False)


def left(key: str, join: str | None, row: bytes | None, order: int = 0) -> RowChange:
    return RowChange(LEFT, key, join, row, order)


def right(key: str, join: str | None, row: bytes | None, order: int = 0) -> RowChange:
    return RowChange(RIGHT, key, join, row, order)


def joined(
    store: PageDictionary, changes: Iterable[RowChange], kept: tuple[bool, bool] = INNER
) -> set[PairChange]:
    found = list(join_changes(store, changes, kept=kept))
    assert len(found) == len(set(found)), "each pair changes once"
    return set(found)


# Which change counts


def test_the_last_change_of_a_row_counts() -> None:
    first, last = left("1", "a", b"old", 1), left("1", "a", b"new", 2)
    assert last_changes([last, first]) == [last]


def test_of_one_order_what_comes_wins_over_what_goes() -> None:
    gone, came = left("1", None, None, 5), left("1", "a", b"row", 5)
    assert last_changes([came, gone]) == [came]
    assert last_changes([gone, came]) == [came]


def test_rows_of_the_two_sides_with_one_key_are_two() -> None:
    changes = [left("1", "a", b"row"), right("1", "a", b"row")]
    assert last_changes(changes) == changes


# Moves


def test_a_row_that_gets_another_join_key_leaves_the_old_one() -> None:
    store = PageDictionary()
    list(follow_moves(store, [left("1", "a", b"row")]))
    moved = list(follow_moves(store, [left("1", "b", b"moved")]))
    assert moved == [left("1", "a", None), left("1", "b", b"moved")]


def test_a_delete_is_told_where_the_row_was() -> None:
    store = PageDictionary()
    list(follow_moves(store, [left("1", "a", b"row")]))
    assert list(follow_moves(store, [left("1", None, None)])) == [left("1", "a", None)]
    assert store.pages == {}


def test_a_delete_of_a_row_that_is_not_there_is_nothing() -> None:
    assert list(follow_moves(PageDictionary(), [left("1", None, None)])) == []


# Pairs


def test_a_pair_comes_changes_and_goes() -> None:
    store = PageDictionary()
    assert joined(store, [left("1", "a", b"l")]) == set()
    assert joined(store, [right("9", "a", b"r")]) == {PairChange(False, b"l", b"r")}
    assert joined(store, [left("1", "a", b"L")]) == {PairChange(False, b"L", b"r")}
    assert joined(store, [right("9", "a", None)]) == {PairChange(True, b"L", b"r")}


def test_a_row_that_is_written_again_as_it_was_changes_nothing() -> None:
    store = PageDictionary()
    joined(store, [left("1", "a", b"l"), right("9", "a", b"r")])
    assert joined(store, [left("1", "a", b"l"), right("9", "a", b"r")]) == set()


def test_every_row_of_one_side_meets_every_row_of_the_other() -> None:
    changes = [left(key, "a", key.encode()) for key in "123"]
    changes += [right(key, "a", key.encode()) for key in "89"]
    found = joined(PageDictionary(), changes)
    assert {(pair.left, pair.right) for pair in found} == {
        (one, other) for one in (b"1", b"2", b"3") for other in (b"8", b"9")
    }


def test_a_pair_that_came_and_went_in_one_batch_is_not_seen() -> None:
    store = PageDictionary()
    joined(store, [right("9", "a", b"r")])
    assert joined(store, [left("1", "a", b"l", 1), left("1", "a", None, 2)]) == set()


def test_a_row_without_a_match_gives_way_to_its_first_match() -> None:
    store = PageDictionary()
    alone, pair = (b"l", None), (b"l", b"r")
    assert joined(store, [left("1", "a", b"l")], LEFT_OUTER) == {PairChange(False, *alone)}
    assert joined(store, [right("9", "a", b"r")], LEFT_OUTER) == {
        PairChange(True, *alone),
        PairChange(False, *pair),
    }
    assert joined(store, [right("9", "a", None)], LEFT_OUTER) == {
        PairChange(True, *pair),
        PairChange(False, *alone),
    }


def test_a_second_match_leaves_the_first_alone() -> None:
    store = PageDictionary()
    joined(store, [left("1", "a", b"l"), right("8", "a", b"r")], LEFT_OUTER)
    assert joined(store, [right("9", "a", b"s")], LEFT_OUTER) == {PairChange(False, b"l", b"s")}


# What it costs


def test_a_change_of_a_key_with_many_rows_costs_what_it_touches() -> None:
    store = PageDictionary()
    orders = [left(str(number), "ada", b"order %d" % number) for number in range(10_000)]
    joined(store, [*orders, right("ada", "ada", b"customer")])
    assert len(store.pages) > 100, "many rows have pages of their own"
    store.reads = store.writes = 0
    assert joined(store, [left("1", "ada", b"paid")]) == {PairChange(False, b"paid", b"customer")}
    # The group, the first page of its orders, and the page of this one.
    assert (store.reads, store.writes) == (3, 1)
