import pytest

from millstream.archive.layout import file_name, offsets_from_name, topic_folder, topic_from_folder
from millstream.archive.manifest import ArchivedFile, ArchivedPartition
from millstream.archive.selection import Selection, keeps_offsets
from millstream.base.offsets import OffsetRange

FILE = ArchivedFile(
    offsets=OffsetRange(start=10, end=20),
    records=10,
    size_bytes=1,
    sha256="",
    time_min_ms=1_000,
    time_max_ms=2_000,
)


@pytest.mark.parametrize(
    ("selection", "may_hold"),
    [
        (Selection(), True),
        (Selection(end=10), False),
        (Selection(end=11), True),
        (Selection(start=19), True),
        (Selection(start=20), False),
        (Selection(since_ms=2_000), True),
        (Selection(since_ms=2_001), False),
        (Selection(until_ms=1_000), False),
        (Selection(until_ms=1_001), True),
        (Selection(start=20, since_ms=1_500), False),
    ],
)
def test_a_file_that_cannot_have_it_is_not_read(selection: Selection, may_hold: bool) -> None:
    assert selection.may_hold(FILE) is may_hold


@pytest.mark.parametrize(
    ("selection", "same"),
    [
        (Selection(), True),
        (Selection(end=5), True),
        (Selection(start=1), False),
        (Selection(until_ms=5), False),
    ],
)
def test_a_complete_partition_from_its_start_keeps_its_offsets(
    selection: Selection, same: bool
) -> None:
    whole = ArchivedPartition(offsets=OffsetRange(start=0, end=0))
    assert keeps_offsets(whole, selection) is same
    assert not keeps_offsets(whole.with_gap(until=3), selection)


def test_names_go_both_ways() -> None:
    offsets = OffsetRange(start=5, end=2**63 - 1)
    assert offsets_from_name(file_name(offsets, "0f" * 32)) == offsets
    assert offsets_from_name("5-6.parquet") is None
    assert offsets_from_name(f"_{file_name(offsets, '0f' * 32)}.tmp") is None
    assert topic_from_folder(topic_folder("a.b-c_D")) == "a.b-c_D"
    assert topic_from_folder("topic=../x") is None
    assert topic_from_folder("_other") is None
