from dataclasses import replace

import pytest

from millstream.archive.manifest import ArchivedPartition, Manifest
from millstream.archive.plan import (
    GapBeforeArchive,
    Source,
    TopicIsShorter,
    TopicWasReplaced,
    continue_with,
    left_to_archive,
    must_write_tail,
    new_gaps,
    tail_age_ms_max,
)
from millstream.base.offsets import OffsetRange


def source(**available: tuple[int, int]) -> Source:
    """source(p0=(5, 9)): partition 0 has the offsets [5, 9)."""
    ranges = {int(p[1:]): OffsetRange(start=s, end=e) for p, (s, e) in available.items()}
    return Source(topic="orders", topic_id="id-1", available=ranges)


def archived(**ends: int) -> Manifest:
    partitions = {
        int(p[1:]): ArchivedPartition(offsets=OffsetRange(start=0, end=end))
        for p, end in ends.items()
    }
    return Manifest(topic="orders", topic_id="id-1", partitions=partitions)


def test_the_first_run_starts_where_the_topic_does() -> None:
    first = continue_with(None, source(p0=(5, 9), p1=(0, 0)), allow_gaps=False)
    assert first.partitions[0].offsets == OffsetRange(start=5, end=5)
    left = left_to_archive(first, source(p0=(5, 9), p1=(0, 0)))
    assert left == {0: OffsetRange(start=5, end=9)}


def test_the_next_run_goes_on_where_the_last_one_ended() -> None:
    now = source(p0=(2, 9))
    following = continue_with(archived(p0=4), now, allow_gaps=False)
    assert left_to_archive(following, now) == {0: OffsetRange(start=4, end=9)}


def test_the_start_of_the_topic_may_reach_the_end_of_the_archive() -> None:
    following = continue_with(archived(p0=4), source(p0=(4, 9)), allow_gaps=False)
    assert following.partitions[0].gaps == ()


def test_a_gap_is_refused_with_its_offsets() -> None:
    with pytest.raises(GapBeforeArchive, match=r"1 offsets .* orders\[0\] \[4, 5\).*--allow-gaps"):
        continue_with(archived(p0=4), source(p0=(5, 9)), allow_gaps=False)


def test_an_allowed_gap_is_noted_and_passed_over() -> None:
    before, now = archived(p0=4, p1=6), source(p0=(5, 9), p1=(0, 6))
    following = continue_with(before, now, allow_gaps=True)
    assert following.partitions[0].gaps == (OffsetRange(start=4, end=5),)
    assert left_to_archive(following, now) == {0: OffsetRange(start=5, end=9)}
    assert new_gaps(before, following) == {0: OffsetRange(start=4, end=5)}
    assert new_gaps(following, continue_with(following, now, allow_gaps=True)) == {}


def test_a_partition_that_was_added_is_owed_from_its_start() -> None:
    with pytest.raises(GapBeforeArchive, match=r"orders\[1\] \[0, 3\)"):
        continue_with(archived(p0=4), source(p0=(0, 4), p1=(3, 9)), allow_gaps=False)
    following = continue_with(archived(p0=4), source(p0=(0, 4), p1=(0, 9)), allow_gaps=False)
    assert following.partitions[1].offsets == OffsetRange(start=0, end=0)


def test_another_topic_of_the_same_name_is_refused() -> None:
    other = replace(source(p0=(0, 9)), topic_id="id-2")
    with pytest.raises(TopicWasReplaced, match=r"deleted and created again: .* id-1, .* id-2"):
        continue_with(archived(p0=4), other, allow_gaps=True)


@pytest.mark.parametrize("now", [source(p0=(0, 3)), source()])
def test_a_topic_that_lost_records_is_refused(now: Source) -> None:
    with pytest.raises(TopicIsShorter, match="was archived up to 4"):
        continue_with(archived(p0=4), now, allow_gaps=True)


@pytest.mark.parametrize(
    ("retention_ms", "age_ms_max"),
    [("-1", 86_400_000), ("604800000", 86_400_000), ("3600000", 1_800_000)],
)
def test_a_tail_waits_a_day_or_half_the_retention(retention_ms: str, age_ms_max: int) -> None:
    assert tail_age_ms_max({"retention.ms": retention_ms}) == age_ms_max


@pytest.mark.parametrize(("first_time_ms", "due"), [(900, True), (901, False), (None, False)])
def test_a_tail_is_written_when_its_first_record_is_old_enough(
    first_time_ms: int | None, due: bool
) -> None:
    assert must_write_tail(first_time_ms, age_ms_max=100, now_ms=1_000) is due
