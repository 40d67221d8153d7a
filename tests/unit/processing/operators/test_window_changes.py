"""What is told of windows, batch by batch. Events are times; what is counted, their number."""

import pickle
from typing import Any

import pytest

from millstream.base.errors import Corrupt
from millstream.processing.operators.aggregates import Collected, Count, Sum
from millstream.processing.operators.window_changes import Emit, WindowBook, book_from
from millstream.processing.operators.window_kinds import Hopping, Session, Sliding, WindowKind
from millstream.processing.operators.window_state import NO_WATERMARK, Windows, windows_of

TUMBLING = Hopping(size_us=10, every_us=10)


class Told:
    """The book of one key, and what it tells: (change, start, end, result)."""

    def __init__(self, kind: WindowKind, emit: Emit, *, grace: int = 0) -> None:
        self.windows = windows_of(kind, [Count()], tells_last=emit == "final")
        self.book = WindowBook(self.windows, emit, grace=grace)

    def add(self, *times: int, watermark: int = NO_WATERMARK) -> list[tuple[Any, ...]]:
        changes = self.book.add({("ada",): [(at, (1,)) for at in times]}, watermark)
        return [(change, r.start, r.end, *r.values) for change, _key, r in changes]

    def close(self, watermark: int) -> list[tuple[Any, ...]]:
        return [(change, *r[:2], *r.values) for change, _key, r in self.book.close(watermark)]


def test_a_window_is_told_again_when_it_changes() -> None:
    told = Told(TUMBLING, "upsert")
    assert told.add(1, 2, 15) == [("upsert", 0, 10, 2), ("upsert", 10, 20, 1)]
    assert told.add(3) == [("upsert", 0, 10, 3)]


def test_what_was_told_is_taken_back_and_the_new_row_told() -> None:
    told = Told(TUMBLING, "retract")
    assert told.add(1, 2) == [("insert", 0, 10, 2)]
    assert told.add(3) == [("retract", 0, 10, 2), ("insert", 0, 10, 3)]


def test_a_final_window_is_told_once_when_the_watermark_reaches_its_end() -> None:
    told = Told(TUMBLING, "final")
    assert told.add(1, 2, 15) == []
    assert told.close(9) == []
    assert told.close(10) == [("insert", 0, 10, 2)]
    assert told.close(19) == []
    assert told.close(20) == [("insert", 10, 20, 1)]


def test_state_is_dropped_with_its_window() -> None:
    told = Told(TUMBLING, "upsert")
    told.add(1, 15)
    assert told.book.next_close() == 10
    assert told.close(10) == []
    assert told.book.next_close() == 20
    told.close(20)
    assert told.book.states == {}
    assert told.book.next_close() is None


def test_a_late_event_merges_two_sessions_and_the_later_one_is_deleted() -> None:
    told = Told(Session(gap_us=5), "upsert")
    assert told.add(0, 10) == [("upsert", 0, 5, 1), ("upsert", 10, 15, 1)]
    assert told.add(5) == [("upsert", 0, 15, 3), ("delete", 10, 15, 1)]


def test_a_session_whose_start_moves_is_deleted_there_and_told_at_its_new_one() -> None:
    told = Told(Session(gap_us=5), "upsert")
    told.add(10)
    assert told.add(7) == [("upsert", 7, 15, 2), ("delete", 10, 15, 1)]


def test_merged_sessions_are_taken_back_each() -> None:
    told = Told(Session(gap_us=5), "retract")
    told.add(0, 10)
    assert told.add(5) == [
        ("retract", 0, 5, 1),
        ("insert", 0, 15, 3),
        ("retract", 10, 15, 1),
    ]


def test_sessions_a_gap_apart_are_one_and_more_are_two() -> None:
    assert Told(Session(gap_us=5), "upsert").add(0, 5) == [("upsert", 0, 10, 2)]
    assert len(Told(Session(gap_us=5), "upsert").add(0, 6)) == 2


def test_a_session_that_comes_and_goes_within_a_batch_is_not_told() -> None:
    assert Told(Session(gap_us=5), "upsert").add(10, 7) == [("upsert", 7, 15, 2)]


def test_a_sliding_window_ends_with_each_event_and_leaves_out_its_own_start() -> None:
    told = Told(Sliding(size_us=10), "upsert")
    assert told.add(0, 9, 10) == [
        ("upsert", -10, 0, 1),
        ("upsert", -1, 9, 2),
        ("upsert", 0, 10, 2),
    ]


def test_a_late_event_revises_the_rows_of_those_that_look_back_on_it() -> None:
    told = Told(Sliding(size_us=10), "upsert")
    told.add(0, 9, 20)
    assert told.add(5) == [("upsert", -5, 5, 2), ("upsert", -1, 9, 3)]


def test_events_at_one_time_share_their_row() -> None:
    told = Told(Sliding(size_us=10), "upsert")
    assert told.add(3, 3) == [("upsert", -7, 3, 2)]
    assert told.add(3) == [("upsert", -7, 3, 3)]


def test_a_sliding_row_is_final_when_the_watermark_is_after_its_event() -> None:
    told = Told(Sliding(size_us=10), "final")
    told.add(0, 5)
    assert told.close(5) == [("insert", -10, 0, 1)]
    told.add(5, watermark=5)  # exactly at the watermark: on time
    assert told.book.next_close() == 6
    assert told.close(6) == [("insert", -5, 5, 3)]
    told.add(9)  # looks back on all, which are told already
    assert told.close(10) == [("insert", -1, 9, 4)]
    assert told.close(30) == []
    assert told.book.states == {}


# What is behind the watermark


def test_an_open_window_takes_an_event_that_is_behind_the_watermark() -> None:
    told = Told(TUMBLING, "upsert")
    told.add(8)
    assert told.add(1, 8, watermark=8) == [("upsert", 0, 10, 3)]
    assert told.add(3, watermark=9) == [("upsert", 0, 10, 4)]


def test_a_window_that_is_over_is_not_opened_again() -> None:
    told = Told(TUMBLING, "upsert")
    told.add(1, 2)
    told.close(10)
    assert told.add(3, watermark=10) == []
    assert told.book.states == {}


def test_an_event_counts_in_those_of_its_windows_that_are_open() -> None:
    told = Told(Hopping(size_us=10, every_us=5), "upsert")
    assert told.add(7) == [("upsert", 0, 10, 1), ("upsert", 5, 15, 1)]
    assert told.add(8, watermark=10) == [("upsert", 5, 15, 2)]
    assert told.add(8, watermark=15) == []


def test_a_window_is_open_for_the_grace_after_its_end() -> None:
    told = Told(TUMBLING, "upsert", grace=3)
    told.add(1)
    assert told.book.next_close() == 13
    assert told.add(2, watermark=12) == [("upsert", 0, 10, 2)]
    assert told.add(3, watermark=13) == []


def test_a_final_window_is_told_when_its_grace_is_over() -> None:
    told = Told(TUMBLING, "final", grace=3)
    told.add(1)
    assert told.close(12) == []
    assert told.close(13) == [("insert", 0, 10, 1)]


def test_a_session_that_ended_is_kept_as_long_as_an_event_can_join_it() -> None:
    told = Told(Session(gap_us=10), "upsert")
    told.add(0)
    told.close(12)
    # Alone it would be open up to 15: it belongs to the session from 0, as in a batch.
    assert told.add(5, watermark=12) == [("upsert", 0, 15, 2)]
    assert told.book.next_close() == 25
    told.close(25)
    assert told.book.states == {}
    assert told.add(15, watermark=25) == []


def test_a_final_session_is_told_at_its_end_and_what_follows_is_another() -> None:
    told = Told(Session(gap_us=10), "final")
    told.add(0)
    assert told.close(10) == [("insert", 0, 10, 1)]
    told.add(5, watermark=10)
    assert told.close(15) == [("insert", 5, 15, 1)]


def test_a_late_event_changes_only_the_sliding_rows_that_are_not_over() -> None:
    told = Told(Sliding(size_us=10), "upsert")
    told.add(5, 12)
    assert told.add(4, watermark=10) == [("upsert", 2, 12, 3)]
    assert told.add(2, watermark=12) == []


def test_a_row_that_stays_as_it_is_is_not_told_again() -> None:
    book = WindowBook(windows_of(TUMBLING, [Collected("x")]), "upsert")
    assert len([*book.add({("ada",): [(1, ("a",))]})]) == 1
    assert [*book.add({("ada",): [(2, (None,))]})] == []


def test_a_book_of_another_format_is_refused() -> None:
    told = Told(TUMBLING, "upsert")
    with pytest.raises(Corrupt, match="format 99, known is 2: rebuild the job"):
        book_from(pickle.dumps((99, None, {}), 5), told.windows, "upsert")


@pytest.mark.parametrize(
    "other",
    [
        windows_of(TUMBLING, [Sum("y")]),
        windows_of(TUMBLING, [Count("x")]),
        windows_of(Session(gap_us=5), [Sum("x")]),
    ],
)
def test_the_book_of_other_windows_or_aggregates_is_refused(other: Windows) -> None:
    book = WindowBook(windows_of(TUMBLING, [Sum("x")]), "upsert")
    assert len([*book.add({("ada",): [(1, (5,))]})]) == 1
    assert book_from(book.to_bytes(), book.windows, "retract").states == book.states
    with pytest.raises(Corrupt, match=r"Sum\(column='x'\).*, and not .*: rebuild the job"):
        book_from(book.to_bytes(), other, "upsert")
