"""Random events, in random batches, with watermarks and restarts between, against naive windows.

The model knows all events at once and looks at each window's list of them. The book sees them in
batches, forgets what a watermark has passed, and is written down and read back in between.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
)
from millstream.processing.operators.window_changes import (
    END_OF_TIME,
    Change,
    Emit,
    WindowBook,
    book_from,
    changes_in_batch,
)
from millstream.processing.operators.window_kinds import Hopping, Session, Sliding, WindowKind
from millstream.processing.operators.window_operator import WindowPlan
from millstream.processing.operators.window_state import NO_WATERMARK, Event, Result, windows_of
from tests.support.naive_windows import Row, is_in, naive_places, naive_rows

UNHURRIED = settings(deadline=None)
AGGREGATES: tuple[Aggregate, ...] = (
    Count(),
    Sum("amount"),
    Average("amount"),
    Least("amount"),
    Greatest("amount"),
    First("amount"),
    Last("amount"),
    Collected("amount"),
    DistinctCount("amount"),
)
KINDS = st.one_of(
    st.builds(lambda size: Hopping(size_us=size, every_us=size), st.integers(1, 12)),
    st.builds(
        lambda every, times, start: Hopping(size_us=every * times, every_us=every, start_us=start),
        *[st.integers(1, 5), st.integers(1, 4), st.integers(-3, 3)],
    ),
    st.builds(lambda gap: Session(gap_us=gap), st.integers(1, 6)),
    st.builds(lambda size: Sliding(size_us=size), st.integers(1, 12)),
)
Placed = tuple[str, int, int | None]
# A key, a time, an amount: few of each, so that windows are shared and times are equal.
PLACED = st.tuples(
    st.sampled_from("ab"), st.integers(-10, 40), st.none() | st.integers(-3, 3) | st.just(2**53 + 1)
)


@dataclass(frozen=True)
class Run:
    kind: WindowKind
    batches: list[list[Placed]]

    @property
    def events(self) -> list[Placed]:
        return [event for batch in self.batches for event in batch]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    events = draw(st.lists(PLACED, max_size=25))
    cuts = sorted(draw(st.lists(st.integers(0, len(events)), max_size=8)))
    batches = [events[start:end] for start, end in pairwise([0, *cuts, len(events)])]
    return Run(draw(KINDS), batches)


def expected(run: Run) -> list[tuple[str, Row]]:
    return sorted(
        ((key, row) for key in "ab" for row in naive_rows(run.kind, of_key(run.events, key))),
        key=repr,
    )


def of_key(events: Sequence[Placed], wanted: str) -> list[tuple[int, int | None]]:
    return [(at, amount) for key, at, amount in events if key == wanted]


# The book


def told(run: Run, emit: Emit, *, restarts: bool) -> Iterator[Change]:
    """Every batch, a watermark that leaves none of the later events late, and a restart."""
    windows = windows_of(run.kind, AGGREGATES, tells_last=emit == "final")
    book = WindowBook(windows, emit)
    for number, batch in enumerate(run.batches):
        yield from book.add(by_key(batch))
        later = [at for after in run.batches[number + 1 :] for _key, at, _amount in after]
        watermark = min(later, default=END_OF_TIME + 1) - 1
        if (due := book.next_close()) is not None and due <= watermark:
            yield from book.close(watermark)
        if restarts:
            book = book_from(book.to_bytes(), windows, emit)
    assert book.states == {}


def by_key(batch: Sequence[Placed]) -> dict[tuple[Any, ...], list[Event]]:
    return {
        (key,): [(at, (1, *[amount] * 8)) for at, amount in of_key(batch, key)]
        for key in sorted({key for key, _at, _amount in batch})
    }


def row_of(result: Result) -> Row:
    return result.start, result.end, result.values


def table_after(changes: Iterator[Change]) -> list[tuple[str, Row]]:
    """By key, as a view applies them."""
    table: dict[tuple[str, int], tuple[str, Row]] = {}
    for change, (key,), result in changes:
        if change == "delete":
            del table[key, result.start]
        else:
            table[key, result.start] = (key, row_of(result))
    return sorted(table.values(), key=repr)


def multiset_after(changes: Iterator[Change]) -> list[tuple[str, Row]]:
    """By value: what is retracted must be there."""
    rows: Counter[str] = Counter()
    kept: dict[str, tuple[str, Row]] = {}
    for change, (key,), result in changes:
        name = repr((key, row_of(result)))
        kept[name] = (key, row_of(result))
        rows[name] += -1 if change == "retract" else 1
        assert rows[name] in (0, 1), f"{change} {name}"
    return sorted((kept[name] for name, count in rows.items() if count), key=repr)


@UNHURRIED
@given(runs())
def test_upserts_end_as_a_batch_does(run: Run) -> None:
    assert table_after(told(run, "upsert", restarts=True)) == expected(run)


@UNHURRIED
@given(runs())
def test_retractions_and_insertions_end_as_a_batch_does(run: Run) -> None:
    assert multiset_after(told(run, "retract", restarts=True)) == expected(run)


@UNHURRIED
@given(runs())
def test_final_rows_are_told_once_and_are_those_of_a_batch(run: Run) -> None:
    rows = [(key, row_of(result)) for _change, (key,), result in told(run, "final", restarts=True)]
    assert sorted(rows, key=repr) == expected(run)


@UNHURRIED
@given(runs())
def test_a_restart_between_batches_changes_nothing_that_is_told(run: Run) -> None:
    assert [*told(run, "retract", restarts=True)] == [*told(run, "retract", restarts=False)]


@pytest.mark.parametrize("emit", ["upsert", "retract", "final"])
@UNHURRIED
@given(runs())
def test_all_at_once_is_told_row_by_row(emit: Emit, run: Run) -> None:
    windows = windows_of(run.kind, AGGREGATES, tells_last=emit == "final")
    rows = [
        (key, row_of(result))
        for _change, (key,), result in changes_in_batch(windows, emit, by_key(run.events))
    ]
    assert sorted(rows, key=repr) == expected(run)


@UNHURRIED
@given(runs())
def test_one_key_and_start_is_told_once_in_a_batch(run: Run) -> None:
    book = WindowBook(windows_of(run.kind, AGGREGATES), "upsert")
    for batch in run.batches:
        names = [(key, result.start) for _change, key, result in book.add(by_key(batch))]
        assert len(names) == len(set(names))


# What is behind the watermark: it follows the greatest time, and some events come after it


class Late(NamedTuple):
    """What the book told of one key's events, and each event with the watermark of its batch."""

    table: list[tuple[str, Row]]
    events: list[tuple[int, int]]


def with_late_events(run: Run, grace: int) -> Late:
    windows = windows_of(run.kind, [Count()])
    book = WindowBook(windows, "upsert", grace=grace)
    watermark, came = NO_WATERMARK, []
    changes: list[Change] = []
    for batch in run.batches:
        times = [at for _key, at, _amount in batch]
        changes += book.add({("a",): [(at, (1,)) for at in times]} if times else {}, watermark)
        came += [(at, watermark) for at in times]
        changes += book.close(watermark)
        book = book_from(book.to_bytes(), windows, "upsert", grace)
        watermark = max([watermark, *times])
    return Late(table_after(iter(changes)), came)


def expected_with_late(run: Run, events: list[tuple[int, int]], grace: int) -> list[Row]:
    """A window has the events that came while it was open."""
    if isinstance(run.kind, Session):
        taken = [at for at, watermark in events if at + run.kind.gap_us + grace > watermark]
        return [row_of_count(row) for row in naive_rows(run.kind, [(at, None) for at in taken])]
    places = naive_places(run.kind, sorted({at for at, _watermark in events})) if events else ()
    rows = []
    for start, end in places:
        last = end if isinstance(run.kind, Sliding) else end - 1
        taken = [
            at
            for at, watermark in events
            if is_in(run.kind, at, start, end) and watermark <= last + grace
        ]
        # A sliding window is there for the event that it ends with.
        if taken and (not isinstance(run.kind, Sliding) or end in taken):
            rows.append((start, end, (len(taken),)))
    return rows


def row_of_count(row: Row) -> Row:
    return row[0], row[1], row[2][:1]


@UNHURRIED
@given(runs(), st.sampled_from([0, 3]))
def test_a_window_has_the_events_that_came_while_it_was_open(run: Run, grace: int) -> None:
    found = with_late_events(run, grace)
    expected_rows = expected_with_late(run, found.events, grace)
    assert found.table == sorted((("a", row) for row in expected_rows), key=repr)


@UNHURRIED
@given(runs(), st.sampled_from([0, 3]))
def test_an_event_is_late_when_no_window_of_it_is_open(run: Run, grace: int) -> None:
    """What the source removes is what the book would not take, and nothing else."""
    use = WindowPlan(run.kind, (Count(),), "upsert", 1, grace).last_use()
    windows = windows_of(run.kind, [Count()])
    for at, watermark in with_late_events(run, grace).events:
        state = windows.empty()
        windows.add(state, [(at, (1,))], watermark - grace)
        is_over = bool(use.until_us(np.array([at]))[0] <= watermark)
        assert is_over == (windows.next_close(state) is None)


# Aggregates alone


NUMBERS = st.one_of(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=12),
    st.lists(st.decimals(places=3, min_value=-(10**34), max_value=10**34), min_size=1, max_size=12),
    st.lists(st.integers(-(2**59), 2**59), min_size=1, max_size=12),
)


@UNHURRIED
@given(NUMBERS, st.randoms())
def test_sums_and_averages_do_not_depend_on_order(numbers: list[Any], random: Random) -> None:
    for aggregate in (Sum("x"), Average("x")):
        one, other = merged(aggregate, numbers), merged(aggregate, shuffled(numbers, random))
        assert repr(aggregate.result(one)) == repr(aggregate.result(other))


@UNHURRIED
@given(st.lists(st.decimals(places=3, min_value=-(10**34), max_value=10**34), min_size=1))
def test_a_sum_of_decimals_keeps_every_digit(numbers: list[Decimal]) -> None:
    assert Fraction(merged(Sum("x"), numbers)) == sum(map(Fraction, numbers))


def shuffled(numbers: list[Any], random: Random) -> list[Any]:
    return random.sample(numbers, len(numbers))


def merged(aggregate: Sum | Average, numbers: list[Any]) -> Any:
    partial = aggregate.lift(0, numbers[0])
    for number in numbers[1:]:
        partial = aggregate.merge(partial, aggregate.lift(0, number))
    return partial
