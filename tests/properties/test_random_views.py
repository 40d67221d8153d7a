"""Random views over random changelogs: what changes have made of them, after every batch, is what
the view comes to when it is computed anew.

Definitions are trees of conditions, columns, aggregates, distinct values, first rows and joins of
all kinds. Changes are upserts and deletes, or rows that go and come, cut into batches and in random
order inside of them. Every row must be the same to the last digit: amounts are floats that do not
add up, infinite, and not numbers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.changes import CHANGE, DELETE, INSERT, ORDER, RETRACT, UPSERT
from millstream.processing.operators import table_join_state
from millstream.processing.state import ordered_pages, paged_map
from tests.support.kept_views import Answer, kept
from tests.support.known_views import VIEWS
from tests.support.random_views import BATCHES, CUSTOMERS, ORDERS, Change, definitions
from tests.support.view_definitions import Definition, Row, Table

# Ten seconds; on a busy machine many.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True, scope="module")
def pages_are_small() -> Iterator[None]:
    """So that few rows fill many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paged_map, "PAGE_ENTRIES", 2)
        patch.setattr(ordered_pages, "PAGE_ENTRIES", 3)
        patch.setattr(ordered_pages, "ROOT_ENTRIES", 2)
        patch.setattr(table_join_state, "SHARED_ROWS_MAX", 1)
        yield


@dataclass
class Model:
    """The tables themselves, and their changes in the words of a changelog."""

    tables: dict[str, dict[int, Row]] = field(
        default_factory=lambda: {ORDERS.name: {}, CUSTOMERS.name: {}}
    )
    order: int = 0

    def rows(self, definition: Definition) -> list[str]:
        tables = {name: list(rows.values()) for name, rows in self.tables.items()}
        return shown(definition.rows(tables))

    def apply(self, batch: Iterable[Change], *, by_value: bool) -> dict[str, list[Row]]:
        told: dict[str, list[Row]] = {name: [] for name in self.tables}
        for table, row, is_gone in batch:
            told[table.name] += self._change(table, row, is_gone=is_gone, by_value=by_value)
        return told

    def _change(self, table: Table, row: Row, *, is_gone: bool, by_value: bool) -> Iterator[Row]:
        self.order += 1
        (key,) = table.key
        was = self.tables[table.name].pop(row[key], None)
        if not is_gone:
            self.tables[table.name][row[key]] = row
        if by_value and was is not None:
            yield was | {CHANGE: RETRACT, ORDER: self.order}
        if not is_gone:
            yield row | {CHANGE: INSERT if by_value else UPSERT, ORDER: self.order}
        elif not by_value:
            yield dict.fromkeys(row) | {key: row[key], CHANGE: DELETE, ORDER: self.order}


def shown(rows: Iterable[Row]) -> list[str]:
    """In words, in which a float that is not a number is equal to itself, and 0.0 not to -0.0."""
    return sorted(repr(sorted(row.items())) for row in rows)


ANY_VIEW = st.one_of(definitions(), definitions(), st.sampled_from(list(VIEWS.values())))


@given(
    definition=ANY_VIEW,
    batches=BATCHES,
    by_value=st.booleans(),
    disorder=st.randoms(use_true_random=False),
)
@settings(max_examples=300, deadline=None)
def test_what_changes_have_made_of_a_view_is_the_view_computed_anew(
    definition: Definition, batches: list[list[Change]], by_value: bool, disorder: Random
) -> None:
    model, view, answer = Model(), kept(definition), Answer(definition.key)
    for batch in batches:
        told = model.apply(batch, by_value=by_value)
        for changes in told.values():
            disorder.shuffle(changes)
        answer.take(view.take(told))
        assert shown(answer.rows.values()) == model.rows(definition)


@given(definition=ANY_VIEW, batches=BATCHES)
@settings(max_examples=60, deadline=None)
def test_tables_that_became_empty_leave_no_rows_and_no_state(
    definition: Definition, batches: list[list[Change]]
) -> None:
    model, view, answer = Model(), kept(definition), Answer(definition.key)
    for batch in batches:
        answer.take(view.take(model.apply(batch, by_value=False)))
    everything = [
        (table, row, True)
        for table in (ORDERS, CUSTOMERS)
        for row in list(model.tables[table.name].values())
    ]
    answer.take(view.take(model.apply(everything, by_value=False)))
    assert (answer.rows, view.pages()) == ({}, 0)
