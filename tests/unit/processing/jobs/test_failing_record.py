"""Which record of a batch the application's code fails on."""

from hypothesis import given
from hypothesis import strategies as st

from millstream.base.offsets import OffsetRange
from millstream.processing.jobs.failing_record import Ranges, find_failing
from millstream.processing.reading.offset_plan import Partition


def ranges_of(lengths: list[int]) -> Ranges:
    return [
        (Partition("clicks", number), OffsetRange(start=10 * number, end=10 * number + length))
        for number, length in enumerate(lengths)
        if length
    ]


def offsets_in(ranges: Ranges) -> set[tuple[Partition, int]]:
    return {(part, offset) for part, within in ranges for offset in range(within.start, within.end)}


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=5), data=st.data())
def test_any_single_record_is_found(lengths: list[int], data: st.DataObject) -> None:
    ranges = ranges_of(lengths)
    if not ranges:
        return
    bad = data.draw(st.sampled_from(sorted(offsets_in(ranges))))
    assert find_failing(ranges, lambda part: bad in offsets_in(part), tries_max=20) == bad


@given(data=st.data())
def test_of_several_one_is_found(data: st.DataObject) -> None:
    ranges = ranges_of([30, 0, 7])
    bad = data.draw(st.sets(st.sampled_from(sorted(offsets_in(ranges))), min_size=1))
    found = find_failing(ranges, lambda part: bool(bad & offsets_in(part)), tries_max=20)
    assert found in bad


def test_records_that_fail_only_together_are_not_named() -> None:
    ranges = ranges_of([8])
    both = {(Partition("clicks", 0), 0), (Partition("clicks", 0), 7)}
    assert find_failing(ranges, lambda part: both <= offsets_in(part), tries_max=20) is None


def test_the_search_ends_after_so_many_tries() -> None:
    ranges = ranges_of([8])
    assert find_failing(ranges, lambda _part: True, tries_max=2) is None
    assert find_failing(ranges, lambda _part: True, tries_max=3) == (Partition("clicks", 0), 0)


def test_a_failure_that_does_not_come_again_has_no_record() -> None:
    assert find_failing(ranges_of([1]), lambda _part: False, tries_max=20) is None


def test_nothing_is_found_in_nothing() -> None:
    assert find_failing([], lambda _part: True, tries_max=3) is None
