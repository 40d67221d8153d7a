import re
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from millstream.archive import parquet
from millstream.archive.parquet import Columns, FileBuilder, Origin, batches, describe
from millstream.archive.plan import FileLimits
from millstream.archive.selection import Selection
from millstream.base.offsets import OffsetRange
from millstream.base.record import Record
from tests.support.archived_topic import TIME_MS, numbered_records, record_from, to_columns

ORIGIN = Origin(topic="orders", topic_id="id-1", partition=7)
AWKWARD = [
    Record(key=None, value=None, timestamp_ms=-1, offset=0),
    Record(key=b"", value=b"", timestamp_ms=0, offset=1),
    Record(key=b"\x00\xff", value=bytes(range(256)) * 300, timestamp_ms=TIME_MS, offset=5),
    Record(
        key=b"k",
        value=b"v",
        headers=(("a", b"1"), ("a", None), ("", b""), ("ü", b"\xff")) * 20,
        timestamp_ms=TIME_MS + 1,
        offset=9,
    ),
]


def build(records: list[Record], limits: FileLimits | None = None) -> tuple[FileBuilder, Columns]:
    builder = FileBuilder(ORIGIN, 0, limits or FileLimits())
    return builder, builder.add(to_columns(records))


def content_of(records: list[Record]) -> bytes:
    return build(records)[0].finish()[1]


def read(content: bytes, selection: Selection | None = None) -> list[Record]:
    found = batches(content, partition=7, selection=selection or Selection())
    return [record_from(row) for batch in found for row in batch.to_pylist()]


def test_records_are_read_as_they_were_written() -> None:
    assert read(content_of(AWKWARD)) == AWKWARD


def test_the_partition_is_the_first_column() -> None:
    (batch,) = batches(content_of(AWKWARD), partition=7, selection=Selection())
    assert batch.schema.names[0] == "partition"
    assert batch.column("partition").to_pylist() == [7] * 4
    assert batch.schema.field("partition").type == pa.int32()


def test_a_file_says_what_it_is() -> None:
    builder, _ = build(AWKWARD)
    file, content = builder.finish(end=12)
    assert describe(content) == (ORIGIN, file)
    assert file.offsets == OffsetRange(start=0, end=12)
    assert (file.records, file.time_min_ms, file.time_max_ms) == (4, 0, TIME_MS + 1)


def test_what_is_no_whole_file_says_nothing() -> None:
    content = content_of(AWKWARD)
    for cut in (0, 1, 100, len(content) - 1):
        assert describe(content[:cut]) is None
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1]}), sink)
    assert describe(sink.getvalue().to_pybytes()) is None


def test_a_file_is_full_at_its_limit_and_takes_no_more() -> None:
    records = numbered_records(5)
    builder, rest = build(records, FileLimits(records_max=5))
    assert (builder.is_full, len(rest)) == (True, 0)
    builder, rest = build(records, FileLimits(records_max=4))
    assert (builder.is_full, list(rest.offsets)) == (True, [4])
    builder, rest = build(records, FileLimits(records_max=6))
    assert (builder.is_full, len(rest)) == (False, 0)


def test_a_file_is_full_with_its_bytes() -> None:
    """Each record has a key and a value of two bytes."""
    records = numbered_records(5)
    builder, rest = build(records, FileLimits(bytes_max=8))
    assert (builder.is_full, list(rest.offsets)) == (True, [2, 3, 4])
    builder, rest = build(records, FileLimits(bytes_max=9))
    assert (builder.is_full, list(rest.offsets)) == (True, [3, 4])
    builder, rest = build(records, FileLimits(bytes_max=1))
    assert (builder.is_full, list(rest.offsets)) == (True, [1, 2, 3, 4])


@pytest.mark.parametrize(
    ("selection", "offsets"),
    [
        (Selection(start=3), range(3, 10)),
        (Selection(end=3), range(3)),
        (Selection(start=3, end=3), range(0)),
        (Selection(since_ms=TIME_MS + 8), range(8, 10)),
        (Selection(until_ms=TIME_MS + 2), range(2)),
        (Selection(start=4, since_ms=TIME_MS + 1, until_ms=TIME_MS + 6), range(4, 6)),
    ],
)
def test_only_what_is_meant_is_read(
    selection: Selection, offsets: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_RECORDS", 1)
    builder = FileBuilder(ORIGIN, 0, FileLimits())
    for one in numbered_records(10):
        builder.add(to_columns([one]))
    found = read(builder.finish()[1], selection)
    assert [record.offset for record in found] == list(offsets)


def test_row_groups_have_statistics_to_be_passed_over_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_RECORDS", 2)
    builder = FileBuilder(ORIGIN, 0, FileLimits())
    for first in (0, 2):
        builder.add(to_columns(numbered_records(2, start=first)))
    metadata = pq.ParquetFile(pa.BufferReader(builder.finish()[1])).metadata
    assert metadata.num_row_groups == 2
    second = metadata.row_group(1)
    columns = {second.column(i).path_in_schema: second.column(i) for i in range(7)}
    assert (columns["offset"].statistics.min, columns["offset"].statistics.max) == (2, 3)
    assert round(columns["timestamp"].statistics.min.timestamp() * 1000) == TIME_MS + 2
    assert columns["value"].statistics is None
    assert {column.compression for column in columns.values()} == {"ZSTD"}


def test_a_folder_is_read_directly_with_topic_and_partition_as_columns(tmp_path: Path) -> None:
    for number in (0, 1):
        folder = tmp_path / "topic=orders" / f"partition={number}"
        folder.mkdir(parents=True)
        (folder / "a.parquet").write_bytes(content_of(numbered_records(3)))
    (tmp_path / "topic=orders" / "_manifest.json").write_text("{}")
    (tmp_path / "topic=orders" / "partition=0" / "_b.parquet.tmp").write_text("half")
    table = pq.read_table(tmp_path)
    assert table.num_rows == 6
    assert set(table.column("topic").to_pylist()) == {"orders"}
    dataset = pyarrow.dataset.dataset(tmp_path, partitioning="hive")
    assert dataset.to_table(filter=pyarrow.dataset.field("partition") == 1).num_rows == 3


def test_without_pyarrow_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        parquet.PyarrowMissing, match=re.escape("pip install 'millstream[archive]'")
    ):
        parquet.require_pyarrow()
