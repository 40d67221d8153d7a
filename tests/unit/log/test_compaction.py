"""Which segments may be cleaned, and when that is worth it."""

import pytest

from millstream.log.compaction import (
    SEGMENT_OFFSETS_MAX,
    Cleanable,
    SegmentFacts,
    find_cleanable,
    has_room_for,
    is_worth_it,
)
from millstream.log.config import LogConfig

NOW_MS = 1_000_000
CONFIG = LogConfig(is_compacted=True, segment_bytes=250, segment_index_bytes=50)
SEGMENTS = [
    SegmentFacts(
        base_offset=number * 10,
        end_offset=number * 10 + 10,
        size_bytes=100,
        index_bytes=8,
        newest_ms=NOW_MS - 1_000 * (4 - number),
    )
    for number in range(4)
]


def find(
    config: LogConfig = CONFIG, *, cleaned_offset: int = 0, stable_offset: int = 40
) -> Cleanable | None:
    return find_cleanable(
        SEGMENTS, config, cleaned_offset=cleaned_offset, stable_offset=stable_offset, now_ms=NOW_MS
    )


def test_everything_that_was_not_cleaned_is_dirty() -> None:
    found = find(cleaned_offset=20)
    assert found is not None
    assert (len(found.segments), found.first_dirty_offset) == (4, 20)
    assert (found.dirty_bytes, found.dirty_ratio) == (200, 0.5)


def test_a_clean_log_has_nothing_to_do() -> None:
    assert find(cleaned_offset=40) is None
    assert find_cleanable([], CONFIG, cleaned_offset=0, stable_offset=0, now_ms=NOW_MS) is None


@pytest.mark.parametrize(("stable_offset", "count"), [(40, 4), (39, 3), (30, 3), (29, 2)])
def test_a_segment_that_reaches_the_last_stable_offset_stays(
    stable_offset: int, count: int
) -> None:
    found = find(stable_offset=stable_offset)
    assert found is not None
    assert len(found.segments) == count


def test_what_is_too_young_stays_with_all_that_follows_it() -> None:
    found = find(LogConfig(compaction_lag_min_ms=2_500))
    assert found is not None
    assert found.segments[-1].end_offset == 20


def test_a_log_whose_first_dirty_segment_is_too_young_waits() -> None:
    assert find(LogConfig(compaction_lag_min_ms=2_500), cleaned_offset=20) is None


@pytest.mark.parametrize(("ratio", "is_worth"), [(0.49, True), (0.5, False), (1.0, False)])
def test_enough_must_be_dirty(ratio: float, is_worth: bool) -> None:
    found = find(cleaned_offset=20)
    assert found is not None
    config = LogConfig(dirty_ratio_min=ratio)
    assert is_worth_it(found, config, oldest_dirty_ms=-1, now_ms=NOW_MS) is is_worth


@pytest.mark.parametrize(("oldest_ms", "is_worth"), [(NOW_MS - 501, True), (NOW_MS - 500, False)])
def test_what_has_waited_for_too_long_is_cleaned_however_little_it_is(
    oldest_ms: int, is_worth: bool
) -> None:
    found = find(cleaned_offset=30)
    assert found is not None
    config = LogConfig(dirty_ratio_min=1, compaction_lag_max_ms=500)
    assert is_worth_it(found, config, oldest_dirty_ms=oldest_ms, now_ms=NOW_MS) is is_worth


@pytest.mark.parametrize(
    ("size_bytes", "index_bytes", "base_offset", "has_room"),
    [
        (150, 42, 0, True),
        (151, 42, 0, False),
        (150, 43, 0, False),
        (150, 42, 40 - SEGMENT_OFFSETS_MAX, True),
        (150, 42, 39 - SEGMENT_OFFSETS_MAX, False),
    ],
)
def test_neighbours_become_one_as_long_as_a_segment_may_be_so_large(
    size_bytes: int, index_bytes: int, base_offset: int, has_room: bool
) -> None:
    found = has_room_for(
        SEGMENTS[-1],
        base_offset=base_offset,
        size_bytes=size_bytes,
        index_bytes=index_bytes,
        limits=CONFIG,
    )
    assert found is has_room
