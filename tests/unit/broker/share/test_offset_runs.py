"""Runs of equal values over consecutive offsets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.share.offset_runs import OffsetRuns

PUTS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from("abc")), max_size=25
)


def test_neighbours_of_one_value_are_one_run() -> None:
    runs = OffsetRuns[str](5)
    runs.put(5, 10, "a")
    runs.put(10, 20, "a")
    runs.put(7, 12, "b")
    assert [*runs] == [(5, 7, "a"), (7, 12, "b"), (12, 20, "a")]
    runs.put(7, 12, "a")
    assert [*runs] == [(5, 20, "a")]


def test_what_is_asked_for_is_cut_to_the_question() -> None:
    runs = OffsetRuns[str](0)
    runs.put(0, 10, "a")
    runs.put(10, 20, "b")
    assert runs.within(8, 12) == [(8, 10, "a"), (10, 12, "b")]
    assert runs.within(-5, 1) == [(0, 1, "a")]
    assert runs.within(20, 25) == runs.within(3, 3) == []


def test_dropping_past_the_end_leaves_nothing_and_moves_the_end() -> None:
    runs = OffsetRuns[str](0)
    runs.put(0, 10, "a")
    runs.drop_before(4)
    assert (runs.start, runs.end) == (4, 10)
    runs.drop_before(15)
    assert (runs.start, runs.end, len(runs)) == (15, 15, 0)


def test_a_hundred_thousand_offsets_of_one_value_are_one_run() -> None:
    runs = OffsetRuns[str](0)
    for offset in range(0, 100_000, 100):
        runs.put(offset, offset + 100, "a")
    assert len(runs) == 1


@given(puts=PUTS, drop=st.integers(0, 45), start=st.integers(0, 45))
def test_runs_are_a_dictionary_of_offsets(
    puts: list[tuple[int, int, str]], drop: int, start: int
) -> None:
    runs, model = OffsetRuns[str](0), dict[int, str]()
    for at, length, value in puts:
        begin = min(at, runs.end)
        runs.put(begin, begin + length, value)
        model.update(dict.fromkeys(range(begin, begin + length), value))
    runs.drop_before(drop)
    model = {offset: value for offset, value in model.items() if offset >= drop}
    assert {at: run.value for run in runs for at in range(run.start, run.end)} == model
    assert all(run.start < run.end for run in runs)
    values = [run.value for run in runs]
    assert all(one != other for one, other in pairwise(values))
    wanted = sorted(at for at, value in model.items() if value == "b" and at >= start)
    found = runs.first(lambda value: value == "b", start=max(start, runs.start))
    assert found == (wanted[0] if wanted else None)
