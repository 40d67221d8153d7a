"""Where windows lie in time."""

import pytest

from millstream.processing.operators.window_kinds import (
    BadWindow,
    Hopping,
    Session,
    Sliding,
    window_us,
)


def test_an_event_is_in_every_window_that_reaches_over_it() -> None:
    kind = Hopping(size_us=10, every_us=5)
    assert [*kind.starts_of(12)] == [10, 5]
    assert [*kind.starts_of(10)] == [10, 5]
    assert [*kind.starts_of(-1)] == [-5, -10]


def test_a_tumbling_window_is_left_when_the_next_one_starts() -> None:
    kind = Hopping(size_us=10, every_us=10)
    assert [[*kind.starts_of(at)] for at in (0, 9, 10)] == [[0], [0], [10]]


def test_windows_can_start_elsewhere() -> None:
    kind = Hopping(size_us=10, every_us=10, start_us=3)
    assert [[*kind.starts_of(at)] for at in (2, 3, 13)] == [[-7], [3], [13]]


def test_a_window_that_leaves_gaps_is_refused() -> None:
    with pytest.raises(BadWindow, match=r"every \(2 ms\) is longer than size \(1 ms\)"):
        Hopping(size_us=1000, every_us=2000)


def test_an_event_is_not_in_countless_windows() -> None:
    day = 24 * 60 * 60 * 1_000_000
    with pytest.raises(BadWindow, match=r"an event would be in 86,400 windows, .* at most 10,000"):
        Hopping(size_us=day, every_us=1_000_000)


@pytest.mark.parametrize("length", [0, -1])
def test_a_window_has_some_length(length: int) -> None:
    for make in (
        lambda: Hopping(size_us=length, every_us=length),
        lambda: Session(gap_us=length),
        lambda: Sliding(size_us=length),
    ):
        with pytest.raises(BadWindow, match="needs some time"):
            make()


@pytest.mark.parametrize("given", ["1 month", "2 years", "1 quarter"])
def test_a_month_is_no_length(given: str) -> None:
    with pytest.raises(BadWindow, match="differ in length"):
        window_us(given, what="size")


def test_lengths_are_written_as_durations() -> None:
    assert window_us("1 minute", what="size") == 60_000_000
    assert window_us(1.5, what="size") == 1_500_000
    with pytest.raises(Exception, match="gap='soon' is not a duration"):
        window_us("soon", what="gap")
