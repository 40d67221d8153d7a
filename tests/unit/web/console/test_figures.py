"""Numbers, times and curves as people read them."""

import pytest

from millstream.web.console.figures import (
    CURVE_POINTS_MAX,
    CURVE_POINTS_MIN,
    UNKNOWN,
    ago,
    clock,
    count,
    counted,
    curve,
    duration,
    iso,
    rate,
    short,
    size,
    thinned,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, UNKNOWN),
        (0, "0"),
        (9_999, "9,999"),
        (10_000, "10k"),
        (12_345, "12.3k"),
        (999_499, "999k"),
        (999_999, "1M"),
        (3_140_000, "3.14M"),
        (10**12, "1,000G"),
    ],
)
def test_a_long_number_is_cut_to_three_digits(number: int | None, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("per_second", "text"), [(None, UNKNOWN), (0, "0/s"), (0.25, "0.2/s"), (273.4, "273/s")]
)
def test_a_rate_is_of_a_second(per_second: float | None, text: str) -> None:
    assert rate(per_second) == text


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [(None, UNKNOWN), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (381 << 10, "381 KiB")],
)
def test_a_size_has_a_unit(bytes_: int | None, text: str) -> None:
    assert size(bytes_) == text


@pytest.mark.parametrize(
    ("ms", "text"), [(None, UNKNOWN), (12, "12ms"), (1_500, "1.5s"), (3_600_000, "1h")]
)
def test_a_duration_is_rough(ms: int | None, text: str) -> None:
    assert duration(ms) == text


def test_what_is_not_known_is_a_dash_and_never_zero() -> None:
    assert {count(None), counted(None, "row").split()[0], clock(None), ago(None, 7)} == {UNKNOWN}


def test_one_is_not_many() -> None:
    assert [counted(number, "row") for number in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


def test_a_moment_is_of_utc() -> None:
    assert clock(1_794_963_600_007) == "2026-11-18 01:00:00.007"
    assert iso(1_794_963_600_007) == "2026-11-18T01:00:00.007+00:00"


@pytest.mark.parametrize("at_ms", [-1, 2**62])
def test_a_time_that_no_calendar_has_is_not_known(at_ms: int) -> None:
    assert (clock(at_ms), iso(at_ms)) == (UNKNOWN, "")


def test_a_clock_that_is_ahead_is_no_negative_past() -> None:
    assert [ago(then, 100_000) for then in (90_000, 100_000, 200_000)] == ["10s ago", "now", "now"]


# --- curves


def test_a_curve_needs_two_values() -> None:
    assert curve([], width=10, height=10).line == ""
    alone = curve([3], width=10, height=10)
    assert (alone.line, alone.last) == ("", 3)


def test_a_curve_reaches_from_the_bottom_to_its_peak() -> None:
    drawn = curve([0.0] * CURVE_POINTS_MIN + [8.0], width=100, height=20)
    assert (drawn.peak, drawn.last) == (8, 8)
    assert drawn.line.startswith("M0.0 18.5")
    assert drawn.line.endswith("L100.0 1.5")
    assert drawn.area.endswith("L100.0 20 L0.0 20 Z")


def test_a_curve_of_nothing_but_zeros_lies_at_the_bottom() -> None:
    assert "1.5" not in curve([0, 0, 0], width=90, height=20).line.replace("18.5", "")


def test_where_nothing_is_known_the_line_has_a_gap() -> None:
    drawn = curve([1, 2, None, 3, 4], width=100, height=20)
    assert drawn.line.count("M") == 2


def test_of_many_points_the_peaks_stay() -> None:
    values: list[float | None] = [0.0] * 1_000
    values[617] = 9.0
    found = thinned(values, CURVE_POINTS_MAX)
    assert len(found) <= CURVE_POINTS_MAX
    assert max(one for one in found if one is not None) == 9.0
