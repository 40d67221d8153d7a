"""Joins of a stream with a table against naive models: any order, any batches, any watermarks."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.changes import DELETE
from millstream.processing.operators.as_of_state import AsOf
from millstream.processing.operators.enrichment_state import Enrichment
from millstream.processing.operators.stream_table import Arrival, Step, TableChange

TIMES = st.integers(0, 20)
HOWS = st.sampled_from(["left", "inner"])


@dataclass
class Batch:
    """Changes are (valid from, value or None), arrivals are times; then the watermark is this."""

    changes: list[tuple[int, int | None]]
    arrivals: list[int]
    watermark: int


BATCHES = st.lists(
    st.builds(
        Batch,
        st.lists(st.tuples(TIMES, st.none() | st.integers(0, 3)), max_size=3),
        st.lists(TIMES, max_size=3),
        TIMES,
    ),
    max_size=8,
)


def in_time(batches: list[Batch]) -> list[Batch]:
    """Watermarks rise, rows come before theirs, and no version goes behind one."""
    watermark, kept = 0, []
    for batch in batches:
        changes = [one for one in batch.changes if one[1] is not None or one[0] > watermark]
        arrivals = [at for at in batch.arrivals if at > watermark]
        kept.append(Batch(changes, arrivals, watermark))
        watermark = max(watermark, batch.watermark)
    return [*kept, Batch([], [], 100)]


def run(join: Any, batches: list[Batch]) -> list[Step]:
    """As the operator does it: state in plain values between the batches, rows with numbers."""
    plain, order, number, steps = None, 0, 0, []
    for batch in batches:
        state = join.recall(plain)
        changes, arrivals = [], []
        for time, value in batch.changes:
            row = None if value is None else {"value": value}
            changes.append(TableChange(order=order, row=row, from_us=time * 1000))
            order += 1
        for at in batch.arrivals:
            arrivals.append(Arrival(row={"number": number, "at": at}, at_us=at * 1000))
            number += 1
        steps.append(join.step(state, changes[::-1], arrivals, watermark_ms=batch.watermark))
        due_ms = join.due_ms(state)
        assert due_ms is None or due_ms > batch.watermark, "what is due is done"
        plain = state.plain()
    return steps


def answer(versions: dict[int, int | None], at: int) -> int | None:
    known = [time for time, value in versions.items() if time <= at and value is not None]
    return versions[max(known)] if known else None


@settings(deadline=None)  # a busy machine
@given(BATCHES, HOWS)
def test_rows_given_once_have_the_version_that_was_known_then(
    batches: list[Batch], how: Any
) -> None:
    batches = in_time(batches)
    versions: dict[int, int | None] = {}
    expected, late, waiting, given_up_to, number = {}, 0, [], -1, 0
    for batch in batches:
        late += sum(time <= given_up_to for time, _ in batch.changes)
        versions |= dict(batch.changes)
        for at in batch.arrivals:
            waiting.append((number, at))
            number += 1
        for row, at in [one for one in waiting if one[1] <= batch.watermark]:
            expected[row] = answer(versions, at)
            given_up_to = max(given_up_to, at)
        waiting = [one for one in waiting if one[1] > batch.watermark]
    steps = run(AsOf(how=how, late_versions="ignore"), batches)
    assert sum(step.late_versions for step in steps) == late
    rows = [(one.row["number"], one.table_row) for step in steps for one in step.joined]
    if how == "inner":
        expected = {row: value for row, value in expected.items() if value is not None}
    assert len(rows) == len(expected), "each row once"
    assert {row: found and found["value"] for row, found in rows} == expected


@settings(deadline=None)  # a busy machine
@given(BATCHES, HOWS)
def test_corrected_rows_end_as_if_all_versions_had_come_first(
    batches: list[Batch], how: Any
) -> None:
    """Whatever the batches: nothing is settled before the end."""
    batches = in_time(batches)
    versions = {time: value for batch in batches for time, value in batch.changes}
    arrivals = [at for batch in batches for at in batch.arrivals]
    view: dict[int, int | None] = {}
    for step in run(AsOf(how=how, late_versions="correct", keep_ms=50), batches):
        touched = [joined.row["number"] for joined in step.joined]
        assert len(touched) == len(set(touched)), "the net change of a batch"
        for joined in step.joined:
            assert (joined.change == DELETE) <= (joined.row["number"] in view)
            if joined.change == DELETE:
                del view[joined.row["number"]]
            else:
                view[joined.row["number"]] = joined.table_row["value"] if joined.table_row else None
    expected = {number: answer(versions, at) for number, at in enumerate(arrivals)}
    if how == "inner":
        expected = {number: value for number, value in expected.items() if value is not None}
    assert view == expected


@settings(deadline=None)  # a busy machine
@given(BATCHES, HOWS, st.none() | st.integers(0, 10))
def test_enriched_rows_have_the_tables_row_of_their_batch_or_of_the_first_after(
    batches: list[Batch], how: Any, wait: int | None
) -> None:
    batches = in_time(batches)
    value: int | None = None
    expected: list[tuple[int, int | None]] = []
    waiting, number = [], 0
    for batch in batches:
        value = batch.changes[-1][1] if batch.changes else value
        for at in batch.arrivals:
            waiting.append((number, at if wait is None else at + wait))
            number += 1
        for row, until in list(waiting):
            if value is not None or wait is None or until <= batch.watermark:
                waiting.remove((row, until))
                expected += [(row, value)] if value is not None or how == "left" else []
    steps = run(Enrichment(how=how, wait_ms=wait), batches)
    rows = [(one.row["number"], one.table_row) for step in steps for one in step.joined]
    assert [(row, found and found["value"]) for row, found in rows] == expected
