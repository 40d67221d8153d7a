"""Which records of a batch are asked for their traces."""

from millstream.base.ports import BatchReceipt
from millstream.processing.reading.trace_headers import (
    PARTITIONS_MAX,
    RECORDS_OF_PARTITION_MAX,
    ranges_of,
)

FEW = RECORDS_OF_PARTITION_MAX


def receipt(ends: dict[int, int], starts: dict[int, int] | None = None) -> BatchReceipt:
    return BatchReceipt(
        job="j",
        epoch=1,
        query="q",
        batch=1,
        positions={"clicks": ends},
        start=None if starts is None else {"clicks": starts},
    )


def test_the_newest_records_of_each_partition_that_has_new_ones() -> None:
    found = ranges_of(receipt({0: 5, 1: 9, 2: 100}, {0: 5, 1: 7, 2: 100 - FEW - 1}))
    assert found == [("clicks", 1, 7, 9), ("clicks", 2, 100 - FEW, 100)]


def test_a_first_batch_has_no_start() -> None:
    assert ranges_of(receipt({0: FEW + 1})) == [("clicks", 0, 1, FEW + 1)]


def test_no_more_partitions_than_the_bound() -> None:
    assert len(ranges_of(receipt(dict.fromkeys(range(PARTITIONS_MAX + 1), 1)))) == PARTITIONS_MAX
