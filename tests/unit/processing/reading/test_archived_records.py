"""From where on a partition can be read, if a part of it is only in the archive."""

import pytest

from millstream.archive.manifest import ArchivedPartition
from millstream.base.offsets import OffsetRange
from millstream.processing.reading.archived_records import first_before, hole_in


def archived(start: int, end: int, *gaps: tuple[int, int]) -> ArchivedPartition:
    return ArchivedPartition(
        offsets=OffsetRange(start=start, end=end),
        gaps=tuple(OffsetRange(start=first, end=last) for first, last in gaps),
    )


@pytest.mark.parametrize(
    ("found", "first"),
    [
        (None, 100),
        (archived(0, 99), 100),
        (archived(0, 100), 0),
        (archived(0, 250), 0),
        (archived(40, 120), 40),
        (archived(0, 100, (10, 20), (50, 60)), 60),
        (archived(0, 200, (100, 130)), 0),
        (archived(0, 200, (90, 130)), 100),
        (archived(150, 200), 100),
    ],
)
def test_a_partition_is_read_from_where_nothing_is_missing(
    found: ArchivedPartition | None, first: int
) -> None:
    assert first_before(found, 100) == first


def test_what_is_missing_between_archive_and_log_is_named() -> None:
    assert hole_in(archived(0, 100), 100) == ""
    assert "[60, 100)" in hole_in(archived(0, 60), 100)
    assert "[10, 20)" in hole_in(archived(0, 100, (10, 20)), 100)
    assert "not archived" in hole_in(None, 100)
