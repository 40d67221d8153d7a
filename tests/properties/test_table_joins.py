"""Joins of tables that are kept up to date, against joining both tables anew after every batch.

Random upserts and deletes on both sides, with foreign keys that change, cut into random batches
and in random order inside of them. The model keeps two dictionaries.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType

from millstream.base.changes import CHANGE, DELETE, ORDER, UPSERT
from millstream.processing.operators import table_join_state
from millstream.processing.operators.table_join_state import (
    LEFT,
    RIGHT,
    PairChange,
    RowChange,
    follow_moves,
    join_changes,
)
from millstream.processing.state import paged_map
from millstream.processing.state.paged_map import PagedMap
from tests.support.joined_tables import JoinedTables, plan_of, side_of
from tests.support.page_dictionary import PageDictionary

ROWS = 40
KEPT = [(False, False), (True, False), (False, True), (True, True)]
Pair = tuple[bytes | None, bytes | None]


class Change(NamedTuple):
    """A row of `side` has this foreign key now; or the row is gone."""

    side: int
    key: int
    foreign: int | None
    text: int


CHANGES = st.builds(
    Change,
    side=st.sampled_from([LEFT, RIGHT]),
    key=st.integers(0, 5),
    foreign=st.sampled_from([None, 0, 0, 1, 2]),
    text=st.integers(0, 2),
)
BATCHES = st.lists(st.lists(CHANGES, max_size=8), max_size=12)


@pytest.fixture(autouse=True, scope="module")
def pages_are_small() -> Iterator[None]:
    """So that few rows fill many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paged_map, "PAGE_ENTRIES", 2)
        patch.setattr(table_join_state, "SHARED_ROWS_MAX", 1)
        yield


@dataclass
class Model:
    """Both tables, joined anew whenever it is asked."""

    kept: tuple[bool, bool]
    tables: tuple[dict[str, tuple[str, bytes]], dict[str, tuple[str, bytes]]] = field(
        default_factory=lambda: ({}, {})
    )

    def apply(self, change: RowChange) -> None:
        self.tables[change.side].pop(change.key, None)
        if change.row is not None:
            self.tables[change.side][change.key] = str(change.join), change.row

    def pairs(self) -> set[Pair]:
        lefts, rights = (list(table.values()) for table in self.tables)
        met = {(left, right) for j, left in lefts for k, right in rights if j == k}
        found: set[Pair] = set(met)
        if self.kept[LEFT]:
            found |= {(row, None) for _, row in lefts if row not in {left for left, _ in met}}
        if self.kept[RIGHT]:
            found |= {(None, row) for _, row in rights if row not in {right for _, right in met}}
        return found


@dataclass
class Kept:
    """The join under test, and the answer that its changes have made so far."""

    kept: tuple[bool, bool]
    moves: PageDictionary = field(default_factory=PageDictionary)
    groups: PageDictionary = field(default_factory=PageDictionary)
    answer: dict[Pair, Pair] = field(default_factory=dict)

    def take(self, batch: Iterable[RowChange]) -> list[PairChange]:
        placed = list(follow_moves(self.moves, batch))
        changes = list(join_changes(self.groups, placed, kept=self.kept))
        for change in sorted(changes, key=lambda change: not change.gone):
            self._apply(change)
        return changes

    def _apply(self, change: PairChange) -> None:
        pair = (change.left, change.right)
        key = _keys_of(change)
        if change.gone:
            assert self.answer.pop(key, None) == pair, "what is gone was there"
        else:
            self.answer[key] = pair


def _keys_of(change: PairChange) -> Pair:
    return _key_of(change.left), _key_of(change.right)


def _key_of(row: bytes | None) -> bytes | None:
    return None if row is None else row.split(b" ")[0]


def row_change(change: Change, order: int) -> RowChange:
    key = f"{'lr'[change.side]}{change.key}"
    row = f"{key} {change.foreign} {change.text}".encode()
    gone = change.foreign is None
    return RowChange(
        change.side, key, None if gone else str(change.foreign), None if gone else row, order
    )


@pytest.mark.parametrize("kept", KEPT)
@given(batches=BATCHES, disorder=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_changes_of_every_batch_lead_to_the_join_of_both_tables(
    kept: tuple[bool, bool], batches: list[list[Change]], disorder: Random
) -> None:
    model, joined, order = Model(kept), Kept(kept), 0
    for batch in batches:
        changes = [row_change(change, order + place) for place, change in enumerate(batch)]
        order += len(batch)
        for change in changes:
            model.apply(change)
        disorder.shuffle(changes)
        joined.take(changes)
        assert set(joined.answer.values()) == model.pairs()


@pytest.mark.parametrize("kept", KEPT)
@given(batches=BATCHES)
@settings(max_examples=40, deadline=None)
def test_no_pair_is_said_to_change_that_does_not(
    kept: tuple[bool, bool], batches: list[list[Change]]
) -> None:
    joined = Kept(kept)
    for order, batch in enumerate(batches):
        before = dict(joined.answer)
        changes = joined.take([row_change(change, order) for change in batch[:1]])
        came = {_keys_of(change) for change in changes if not change.gone}
        gone = {_keys_of(change) for change in changes if change.gone}
        assert len(changes) == len(came) + len(gone)
        assert came == {key for key, pair in joined.answer.items() if before.get(key) != pair}
        assert gone - came == before.keys() - joined.answer.keys()


@given(batches=BATCHES)
@settings(max_examples=40, deadline=None)
def test_tables_that_became_empty_leave_no_state_behind(batches: list[list[Change]]) -> None:
    joined = Kept((True, True))
    for order, batch in enumerate(batches):
        joined.take([row_change(change, order) for change in batch])
    everything = [Change(side, key, None, 0) for side in (LEFT, RIGHT) for key in range(6)]
    joined.take([row_change(change, len(batches)) for change in everything])
    assert (joined.moves.pages, joined.groups.pages) == ({}, {})


@given(
    changes=st.lists(
        st.tuples(st.sampled_from(["put", "put", "drop", "save"]), st.integers(0, ROWS))
    )
)
@settings(max_examples=60, deadline=None)
def test_a_paged_map_is_a_dictionary_that_survives(changes: list[tuple[str, int]]) -> None:
    store, model = PageDictionary(), dict[str, int]()
    pages = PagedMap(store, "rows")
    for number, (what, key) in enumerate(changes):
        if what == "put":
            pages[str(key)] = model[str(key)] = number
        elif what == "drop":
            assert pages.pop(str(key), None) == model.pop(str(key), None)
        else:
            pages.save()
            pages = PagedMap(store, "rows")
        assert (len(pages), dict(pages)) == (len(model), model)


# Whole rows: columns that both sides have, and a key that is not that of both

ORDERS = StructType([StructField("order", LongType()), StructField("customer", LongType())])
CUSTOMERS = StructType([StructField("customer", LongType()), StructField("name", StringType())])
ORDER_CHANGES = st.tuples(st.integers(0, 4), st.sampled_from([None, 0, 1, 2]), st.booleans())
CUSTOMER_CHANGES = st.tuples(st.integers(0, 2), st.sampled_from(["ada", "bob", None]))


@given(
    batches=st.lists(
        st.tuples(st.lists(ORDER_CHANGES, max_size=5), st.lists(CUSTOMER_CHANGES, max_size=3)),
        max_size=8,
    )
)
@settings(max_examples=40, deadline=None)
def test_an_order_has_one_row_whichever_customer_it_moves_to(
    batches: list[tuple[list[tuple[int, int | None, bool]], list[tuple[int, str | None]]]],
) -> None:
    left = side_of(ORDERS, key=["order"], on=["customer"], kept=True)
    right = side_of(CUSTOMERS, key=["customer"], on=["customer"], kept=False)
    joined = JoinedTables(replace(plan_of(left, right, "left"), key=("order",)))
    orders, customers, answer = dict[int, int | None](), dict[int, str](), dict[int, Any]()
    for order_changes, customer_changes in batches:
        lefts = [_order(orders, place, *one) for place, one in enumerate(order_changes)]
        rights = [_customer(customers, place, *one) for place, one in enumerate(customer_changes)]
        changes = joined.take(lefts, rights)
        assert len({change["order"] for change in changes}) == len(changes)
        for change in changes:
            answer.pop(change["order"], None)
            if change[CHANGE] == UPSERT:
                answer[change["order"]] = change["customer"], change["name"]
        assert answer == {
            order: (customer, customers.get(-1 if customer is None else customer))
            for order, customer in orders.items()
        }


def _order(
    orders: dict[int, int | None], place: int, order: int, customer: int | None, gone: bool
) -> dict[str, Any]:
    orders.pop(order, None)
    if gone:
        return {"order": order, CHANGE: DELETE, ORDER: place}
    orders[order] = customer
    return {"order": order, "customer": customer, CHANGE: UPSERT, ORDER: place}


def _customer(
    customers: dict[int, str], place: int, customer: int, name: str | None
) -> dict[str, Any]:
    customers.pop(customer, None)
    if name is None:
        return {"customer": customer, CHANGE: DELETE, ORDER: place}
    customers[customer] = name
    return {"customer": customer, "name": name, CHANGE: UPSERT, ORDER: place}
