"""The version that held at a row's time, as one key sees it: tax rates and sales."""

import pytest

from millstream.base.changes import DELETE, UPSERT
from millstream.processing.operators.as_of_state import MARK_KEPT_MS, AsOf, AsOfState
from millstream.processing.operators.stream_table import EVER_US, Arrival, Row, TableChange

ONCE = AsOf(how="left", late_versions="ignore")
REVISED = AsOf(how="left", late_versions="correct")

Answer = tuple[str, int | None]


def sale(name: str, at_ms: int | None) -> Arrival:
    return Arrival(row={"sale": name}, at_us=None if at_ms is None else at_ms * 1000)


def rate(percent: int | None, *, since_ms: int | None, order: int = 0) -> TableChange:
    row = None if percent is None else {"percent": percent}
    return TableChange(order=order, row=row, from_us=None if since_ms is None else since_ms * 1000)


def step(
    join: AsOf,
    state: AsOfState,
    changes: list[TableChange] | None = None,
    arrivals: list[Arrival] | None = None,
    *,
    watermark_ms: int | None = 0,
) -> list[Answer]:
    result = join.step(state, changes or [], arrivals or [], watermark_ms=watermark_ms)
    return [(joined.row["sale"], percent_of(joined.table_row)) for joined in result.joined]


def percent_of(table_row: Row | None) -> int | None:
    return table_row["percent"] if table_row else None


def late_versions(join: AsOf, state: AsOfState, change: TableChange) -> int:
    return join.step(state, [change], [], watermark_ms=100).late_versions


# Versions


def test_a_version_holds_from_its_time_to_the_next_ones() -> None:
    rates = [rate(16, since_ms=10), rate(19, since_ms=20)]
    sales = [sale("a", 9), sale("b", 10), sale("c", 19), sale("d", 20), sale("e", 90)]
    assert step(ONCE, AsOfState(), rates, sales, watermark_ms=100) == [
        ("a", None),
        ("b", 16),
        ("c", 16),
        ("d", 19),
        ("e", 19),
    ]


def test_a_version_without_a_time_holds_since_ever() -> None:
    ever = TableChange(order=0, row={"percent": 7}, from_us=EVER_US)
    assert step(ONCE, AsOfState(), [ever], [sale("a", -5)], watermark_ms=100) == [("a", 7)]


def test_the_later_change_of_a_version_replaces_it() -> None:
    rates = [rate(19, since_ms=10, order=1), rate(91, since_ms=10, order=0)]
    assert step(ONCE, AsOfState(), rates, [sale("a", 10)], watermark_ms=10) == [("a", 19)]


def test_a_deleted_version_leaves_its_time_to_the_one_before() -> None:
    rates = [rate(16, since_ms=10), rate(19, since_ms=20), rate(None, since_ms=20, order=1)]
    assert step(ONCE, AsOfState(), rates, [sale("a", 25)], watermark_ms=25) == [("a", 16)]


def test_a_deletion_without_a_time_is_of_all_versions_before_it() -> None:
    rates = [rate(16, since_ms=10), rate(None, since_ms=None, order=1)]
    back = rate(5, since_ms=30, order=2)
    sales = [sale("a", 25), sale("b", 35)]
    answers = step(ONCE, AsOfState(), [*rates, back], sales, watermark_ms=40)
    assert answers == [("a", None), ("b", 5)]


def test_a_row_without_a_time_has_no_version() -> None:
    rates = [rate(16, since_ms=0)]
    inner = AsOf(how="inner", late_versions="ignore")
    assert step(ONCE, AsOfState(), rates, [sale("a", None)]) == [("a", None)]
    assert step(inner, AsOfState(), rates, [sale("a", None)]) == []


# Late versions are ignored


def test_a_row_is_given_once_when_the_watermark_reaches_its_time() -> None:
    state = AsOfState()
    assert step(ONCE, state, [rate(16, since_ms=0)], [sale("a", 50)], watermark_ms=49) == []
    assert ONCE.due_ms(state) == 50
    assert step(ONCE, state, [rate(19, since_ms=40)], watermark_ms=50) == [("a", 19)]
    assert step(ONCE, state, watermark_ms=60) == []
    assert ONCE.due_ms(state) is None


def test_a_version_after_the_answer_is_counted_and_serves_those_to_come() -> None:
    state = AsOfState()
    step(ONCE, state, [rate(16, since_ms=0)], [sale("a", 50)], watermark_ms=60)
    assert late_versions(ONCE, state, rate(19, since_ms=50, order=1)) == 1
    assert step(ONCE, state, [], [sale("b", 110)], watermark_ms=120) == [("b", 19)]


def test_a_version_of_a_time_that_nobody_asked_for_is_not_late() -> None:
    state = AsOfState()
    step(ONCE, state, [rate(16, since_ms=0)], [sale("a", 50)], watermark_ms=60)
    assert late_versions(ONCE, state, rate(19, since_ms=51, order=1)) == 0
    assert late_versions(ONCE, AsOfState(), rate(19, since_ms=5)) == 0


def test_of_the_versions_behind_the_watermark_the_last_stays() -> None:
    state = AsOfState()
    rates = [rate(percent, since_ms=percent) for percent in (10, 20, 30, 40)]
    step(ONCE, state, rates, [sale("a", 35)], watermark_ms=30)
    assert [row["percent"] for _, row in state.versions] == [30, 40]


def test_a_version_that_goes_behind_the_watermark_leaves_nothing() -> None:
    state = AsOfState()
    step(ONCE, state, [rate(10, since_ms=10), rate(20, since_ms=20)], watermark_ms=30)
    step(ONCE, state, [rate(None, since_ms=20, order=1)], watermark_ms=30)
    assert step(ONCE, state, [], [sale("a", 35)], watermark_ms=40) == [("a", None)]


def test_a_key_that_the_table_does_not_know_is_forgotten_after_a_day() -> None:
    state = AsOfState()
    assert step(ONCE, state, [], [sale("a", 50)], watermark_ms=60) == [("a", None)]
    due_ms = ONCE.due_ms(state)
    assert due_ms == 50 + MARK_KEPT_MS
    step(ONCE, state, watermark_ms=due_ms - 1)
    assert state.plain() is not None
    step(ONCE, state, watermark_ms=due_ms)
    assert state.plain() is None


# Late versions correct


def test_a_row_is_given_at_once_and_again_when_its_answer_changes() -> None:
    state = AsOfState()
    assert step(REVISED, state, [], [sale("a", 50)]) == [("a", None)]
    assert step(REVISED, state, [rate(16, since_ms=0)]) == [("a", 16)]
    assert step(REVISED, state, [rate(19, since_ms=50)]) == [("a", 19)]
    assert step(REVISED, state, [rate(7, since_ms=51)]) == []
    assert step(REVISED, state, [rate(None, since_ms=50, order=1)]) == [("a", 16)]


def test_a_batch_gives_the_net_change_of_a_row() -> None:
    state = AsOfState()
    step(REVISED, state, [rate(16, since_ms=0)], [sale("a", 50)])
    there_and_back = [rate(19, since_ms=40), rate(None, since_ms=40, order=1)]
    assert step(REVISED, state, there_and_back) == []
    assert step(REVISED, state, [rate(16, since_ms=0, order=5)]) == [], "the same version again"


def test_a_version_that_is_replaced_without_an_order_changes_the_answer_too() -> None:
    state = AsOfState()
    step(REVISED, state, [rate(16, since_ms=0)], [sale("a", 50)])
    assert step(REVISED, state, [rate(None, since_ms=0), rate(19, since_ms=0)]) == [("a", 19)]
    assert step(REVISED, state, [rate(7, since_ms=0)]) == [("a", 7)]


@pytest.mark.parametrize(("how", "change"), [("left", UPSERT), ("inner", DELETE)])
def test_a_row_whose_only_version_goes_is_alone_or_gone(how: str, change: str) -> None:
    join = AsOf(how=how, late_versions="correct")  # type: ignore[arg-type]  # one of the two
    state = AsOfState()
    step(join, state, [rate(16, since_ms=0)], [sale("a", 50)])
    [gone] = join.step(state, [rate(None, since_ms=0, order=1)], [], watermark_ms=0).joined
    assert (gone.table_row, gone.change) == (None, change)


def test_an_inner_row_without_a_version_waits_in_silence() -> None:
    join = AsOf(how="inner", late_versions="correct")
    state = AsOfState()
    assert step(join, state, [], [sale("a", 50)]) == []
    assert step(join, state, [rate(16, since_ms=0)]) == [("a", 16)]


def test_rows_are_revised_until_the_watermark_is_beyond_what_is_kept() -> None:
    join = AsOf(how="left", late_versions="correct", keep_ms=30)
    state = AsOfState()
    step(join, state, [rate(16, since_ms=0)], [sale("a", 50)])
    assert join.due_ms(state) == 80
    assert step(join, state, [rate(19, since_ms=20)], watermark_ms=79) == [("a", 19)]
    step(join, state, watermark_ms=80)
    assert state.held == []
    assert late_versions(join, state, rate(7, since_ms=30)) == 1


def test_state_survives_as_plain_values() -> None:
    state = AsOfState()
    step(REVISED, state, [rate(16, since_ms=0)], [sale("a", 50)])
    assert REVISED.recall(state.plain()) == state


def test_a_row_that_is_given_once_is_held_for_the_watermark_alone() -> None:
    """`keep` is for answers that are corrected."""
    join, state = AsOf(how="left", late_versions="ignore", keep_ms=1000), AsOfState()
    rates = [rate(16, since_ms=10)]
    assert step(join, state, rates, [sale("a", 20)], watermark_ms=0) == []
    assert join.due_ms(state) == 20
    assert step(join, state, watermark_ms=20) == [("a", 16)]
    assert not state.held
