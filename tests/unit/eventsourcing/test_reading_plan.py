"""To read some events, as little of the log as possible is read."""

from collections.abc import Sequence

from millstream.base.offsets import OffsetRange
from millstream.eventsourcing.partition_state import PartitionState
from millstream.eventsourcing.reading_plan import GAP_OFFSETS_MAX, Scan, plan_scans


def state(events: int, *, group: int) -> PartitionState:
    """In transactions of so many, each with its marker; nothing in memory."""
    found = PartitionState("t[0]")
    for seq in range(1, events + 1):
        found.runs.add(seq, seq - 1 + (seq - 1) // group)
    found.seq = events
    found.recent.add(events, ())
    return found


def scans(seqs: Sequence[int], of: PartitionState) -> list[Scan]:
    return plan_scans(seqs, of)[0]


def test_a_stream_that_is_alone_is_one_scan_over_all_markers() -> None:
    found = state(30_000, group=10)
    (scan,) = scans(range(1, 30_001), found)
    assert scan == Scan(OffsetRange(start=0, end=32_999), None)


def test_events_that_are_far_between_are_read_one_by_one() -> None:
    found = state(100_000, group=100)
    seqs = range(1, 100_000, 5_000)
    planned = scans(seqs, found)
    assert [len(scan.within) for scan in planned] == [1] * 20
    assert [scan.within.start for scan in planned] == [found.offset_of(seq) for seq in seqs]


def test_a_small_gap_is_read_over() -> None:
    found = state(100_000, group=100_000)
    (near,) = scans([1, 1 + GAP_OFFSETS_MAX], found)
    assert near.offsets == frozenset({0, GAP_OFFSETS_MAX})
    assert len(scans([1, 2 + GAP_OFFSETS_MAX], found)) == 2


def test_what_is_in_memory_is_not_read() -> None:
    found = state(10, group=10)
    found.recent.add(12, [b"eleven", b"twelve"])
    found.runs.add(11, 11)
    planned, recent = plan_scans([9, 10, 11, 12], found)
    assert [scan.within for scan in planned] == [OffsetRange(start=8, end=10)]
    assert (list(recent.offsets), list(recent.values)) == ([11, 12], [b"eleven", b"twelve"])
