"""The watermark of a batch, as Spark's offset log has it."""

from pathlib import Path

import pytest
from pyarrow import fs

from millstream.processing.reading import offset_log
from millstream.processing.reading.offset_log import NotThisStream, local_path, watermark_ms_of

END = {"orders": {"id": "gEYz", "offsets": {"0": 498, "1": 502}}, "@clock": 17}
LINE = '{"@clock": 17, "orders": {"id": "gEYz", "offsets": {"0": 498, "1": 502}}}'


def write(checkpoint: Path, number: int | str, watermark_ms: int, *sources: str) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    metadata = f'{{"batchWatermarkMs":{watermark_ms},"conf":{{"a":"b:c"}}}}'
    text = "\n".join(["v2", metadata, *sources])
    (checkpoint / "offsets" / str(number)).write_text(text)


@pytest.mark.parametrize("line", [LINE, f"orders:{LINE}", f"or_de9rs:{LINE}"])
@pytest.mark.parametrize("as_uri", [False, True])
def test_the_newest_batch_tells_it(tmp_path: Path, line: str, as_uri: bool) -> None:
    write(tmp_path, 9, 7, line)
    write(tmp_path, 10, 1_234, "other:{}", "serialized:-", line)
    write(tmp_path, ".11.crc", 9)
    checkpoint = tmp_path.as_uri() if as_uri else str(tmp_path)
    assert watermark_ms_of(checkpoint, END) == 1_234


def test_a_checkpoint_in_a_store_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 0, 5, LINE)
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(offset_log, "store_of", lambda _uri: (store, ""))
    assert watermark_ms_of("s3://bucket/checkpoint", END) == 5


@pytest.mark.parametrize("reason", ["it has no batch yet", "batch 3 ends elsewhere"])
def test_a_checkpoint_of_another_job_is_refused(tmp_path: Path, reason: str) -> None:
    if "elsewhere" in reason:
        write(tmp_path, 3, 5, 'orders:{"orders": {"id": "gEYz", "offsets": {"0": 9}}}')
    with pytest.raises(NotThisStream, match=reason):
        watermark_ms_of(str(tmp_path), END)


def test_only_paths_and_file_uris_are_local() -> None:
    assert local_path("/a b/c") == "/a b/c"
    assert local_path("file:///a%20b/c") == "/a b/c"
    assert local_path("file:/a/c") == "/a/c"
    assert local_path("hdfs://host/a") is None
