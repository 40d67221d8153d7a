import pytest

from millstream.base.offsets import OffsetRange
from millstream.commands.positions import (
    AtOffset,
    AtTime,
    BadPosition,
    Earliest,
    Last,
    Latest,
    Position,
    Shift,
    format_time_ms,
    parse_position,
    resolve,
)

NOW_MS = 1_800_000_000_000
ALL = (Earliest, Latest, AtOffset, AtTime, Last, Shift)
AVAILABLE = OffsetRange(start=10, end=20)


def parse(text: str, allowed: tuple[type[Position], ...] = ALL) -> Position:
    return parse_position(text, option="--from", allowed=allowed, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ("42", AtOffset(42)),
        ("-10", Last(10)),
        ("shift:+5", Shift(5)),
        ("shift:-5", Shift(-5)),
        ("1h ago", AtTime(NOW_MS - 3_600_000)),
        ("1h 30m ago", AtTime(NOW_MS - 5_400_000)),
        ("90s", AtTime(NOW_MS - 90_000)),
        ("2026-07-01T12:00:00Z", AtTime(1_782_907_200_000)),
        ("2026-07-01T14:00:00+02:00", AtTime(1_782_907_200_000)),
    ],
)
def test_a_position_is_read_as_people_write_it(text: str, position: Position) -> None:
    assert parse(text) == position


@pytest.mark.parametrize("text", ["", "soon", "1 fortnight ago", "shift:x", "2026-13-01", "--5"])
def test_what_is_not_a_position_is_refused_with_examples(text: str) -> None:
    with pytest.raises(BadPosition, match=r"--from: cannot read .* earliest, latest"):
        parse(text)


def test_a_position_of_another_kind_than_allowed_is_refused() -> None:
    with pytest.raises(BadPosition):
        parse("shift:+1", allowed=(Earliest, Latest))


@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (Earliest(), 10),
        (Latest(), 20),
        (AtOffset(15), 15),
        (AtOffset(3), 10),
        (AtOffset(99), 20),
        (Last(4), 16),
        (Last(99), 10),
        (Shift(-3), 12),
        (Shift(+99), 20),
    ],
)
def test_a_position_resolves_within_what_the_partition_has(position: Position, offset: int) -> None:
    assert resolve(position, available=AVAILABLE, committed=15, at_time=None) == offset


def test_a_time_after_the_last_record_is_the_end() -> None:
    assert resolve(AtTime(NOW_MS), available=AVAILABLE, committed=None, at_time=None) == 20
    assert resolve(AtTime(NOW_MS), available=AVAILABLE, committed=None, at_time=17) == 17


def test_a_shift_without_a_commit_starts_at_the_earliest_record() -> None:
    assert resolve(Shift(+3), available=AVAILABLE, committed=None, at_time=None) == 13


def test_a_time_is_written_in_utc_to_the_millisecond() -> None:
    assert format_time_ms(1_782_907_200_007) == "2026-07-01T12:00:00.007Z"
