"""Retention arithmetic: which segments go, at the limit and one past it."""

from dataclasses import dataclass

import pytest

from millstream.log.config import LogConfig
from millstream.log.retention import expired_count


@dataclass(frozen=True)
class Aged:
    size_bytes: int
    newest_ms: int


SEGMENTS = [Aged(100, 10), Aged(100, 20), Aged(100, 30)]


@pytest.mark.parametrize(("now_ms", "expected"), [(110, 0), (111, 1), (120, 1), (121, 2), (131, 3)])
def test_a_segment_goes_once_its_newest_record_is_past_retention(
    now_ms: int, expected: int
) -> None:
    assert expired_count(SEGMENTS, LogConfig(retention_ms=100), now_ms=now_ms) == expected


def test_an_old_segment_behind_a_young_one_stays() -> None:
    segments = [Aged(1, 10), Aged(1, 1000), Aged(1, 20)]
    assert expired_count(segments, LogConfig(retention_ms=100), now_ms=200) == 1


@pytest.mark.parametrize(
    ("retention_bytes", "expected"), [(300, 0), (201, 0), (200, 1), (101, 1), (100, 2), (0, 2)]
)
def test_a_segment_goes_if_the_others_hold_enough(retention_bytes: int, expected: int) -> None:
    config = LogConfig(retention_ms=-1, retention_bytes=retention_bytes)
    assert expired_count(SEGMENTS, config, now_ms=1 << 50) == expected


def test_without_limits_nothing_goes() -> None:
    config = LogConfig(retention_ms=-1, retention_bytes=-1)
    assert expired_count(SEGMENTS, config, now_ms=1 << 50) == 0


def test_a_log_that_does_not_delete_keeps_everything() -> None:
    config = LogConfig(retention_ms=0, retention_bytes=0, deletes_old_segments=False)
    assert expired_count(SEGMENTS, config, now_ms=1 << 50) == 0
