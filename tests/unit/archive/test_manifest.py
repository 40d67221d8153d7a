import json
from dataclasses import replace
from typing import Any

import pytest

from millstream.archive.manifest import (
    ArchivedFile,
    ArchivedPartition,
    DamagedManifest,
    Manifest,
    NewerArchive,
    manifest_from_json,
    manifest_to_json,
)
from millstream.base.offsets import OffsetRange


def file(start: int, end: int, records: int | None = None) -> ArchivedFile:
    return ArchivedFile(
        offsets=OffsetRange(start=start, end=end),
        records=end - start if records is None else records,
        size_bytes=100,
        sha256="ab" * 32,
        time_min_ms=1_000,
        time_max_ms=None,
    )


EMPTY = ArchivedPartition(offsets=OffsetRange(start=0, end=0))
MANIFEST = Manifest(
    topic="orders",
    topic_id="id-1",
    config={"retention.ms": "5000"},
    partitions={
        0: EMPTY.with_file(file(0, 10)).with_gap(until=15).with_file(file(15, 20)),
        3: EMPTY.without_records(until=7),
    },
    revision=9,
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert manifest_from_json(manifest_to_json(MANIFEST), place="here") == MANIFEST


def test_a_partition_grows_by_what_follows_it() -> None:
    grown = EMPTY.with_file(file(0, 10)).with_file(file(10, 12))
    assert grown.offsets == OffsetRange(start=0, end=12)
    assert grown.records == 12
    with pytest.raises(ValueError, match=r"\[11, 12\) does not follow \[0, 10\)"):
        EMPTY.with_file(file(0, 10)).with_file(file(11, 12))


@pytest.mark.parametrize(
    ("partition", "complete"),
    [
        (EMPTY, True),
        (EMPTY.with_file(file(0, 10)), True),
        (EMPTY.with_file(file(0, 10, records=9)), False),
        (EMPTY.with_gap(until=3).with_file(file(3, 10)), False),
        (EMPTY.with_file(file(0, 10)).without_records(until=11), False),
        (ArchivedPartition(offsets=OffsetRange(start=5, end=5)).with_file(file(5, 9)), False),
    ],
)
def test_a_partition_is_complete_with_a_record_at_every_offset_from_0(
    partition: ArchivedPartition, complete: bool
) -> None:
    assert partition.is_complete is complete


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(manifest_to_json(MANIFEST)) | fields).encode()


def overlapping() -> bytes:
    two = (file(0, 10), file(9, 20))
    offsets = OffsetRange(start=0, end=20)
    partition = ArchivedPartition(offsets=offsets, files=two)
    return manifest_to_json(replace(MANIFEST, partitions={0: partition}))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        manifest_to_json(MANIFEST)[:-20],
        changed(partitions=[{}]),
        changed(revision=None),
        overlapping(),
    ],
)
def test_a_damaged_manifest_is_named_and_not_used(content: bytes) -> None:
    with pytest.raises(DamagedManifest, match="here: not a manifest"):
        manifest_from_json(content, place="here")


def test_a_newer_format_is_left_alone() -> None:
    with pytest.raises(NewerArchive, match="format 2, this version reads up to 1"):
        manifest_from_json(changed(format=2), place="here")


# --- what is found in files that no manifest names ---------------------------------------------


HELD = ArchivedPartition(
    offsets=OffsetRange(start=4, end=20),
    files=(file(4, 8), file(12, 20)),
    gaps=(OffsetRange(start=8, end=12),),
)


@pytest.mark.parametrize(
    ("found", "lacking"),
    [
        ((4, 8), []),
        ((0, 2), [(0, 2)]),
        ((2, 6), [(2, 4)]),
        ((9, 11), [(9, 11)]),
        ((6, 14), [(8, 12)]),
        ((20, 24), [(20, 24)]),
        ((16, 24), [(20, 24)]),
        ((21, 24), []),
        ((0, 30), [(0, 4), (8, 12), (20, 30)]),
    ],
)
def test_what_is_lacking_is_put_in_and_not_lacking_then(
    found: tuple[int, int], lacking: list[tuple[int, int]]
) -> None:
    offsets = OffsetRange(start=found[0], end=found[1])
    assert [(one.start, one.end) for one in HELD.lacks(offsets)] == lacking
    grown = HELD
    for one in HELD.lacks(offsets):
        grown = grown.with_found(file(one.start, one.end))
    assert grown.lacks(offsets) == []
    manifest = Manifest(topic="orders", topic_id="id", partitions={0: grown})
    assert manifest_from_json(manifest_to_json(manifest), place="here") == manifest


def test_what_is_between_an_earlier_file_and_the_start_is_a_gap() -> None:
    grown = HELD.with_found(file(0, 2))
    assert [str(gap) for gap in grown.gaps] == ["[2, 4)", "[8, 12)"]
    assert str(grown.offsets) == "[0, 20)"
