"""What a checkpoint says of a batch."""

import json
from pathlib import Path

import pytest

from millstream.processing.writing.batch_log import BatchLog, CheckpointUnreadable


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": "5b1c"}))
    return tmp_path


def write_batch(checkpoint: Path, *sources: str) -> None:
    text = "\n".join(["v2", '{"batchWatermarkMs":0}', *sources])
    (checkpoint / "offsets" / "3").write_text(text)


def position(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {"id": "x", "offsets": dict(enumerate(offsets))}, "@clock": 7})


def test_positions_are_those_of_all_sources(checkpoint: Path) -> None:
    write_batch(checkpoint, f"a:{position('orders', 4, 5)}", f"b:{position('clicks', 6)}")
    log = BatchLog(checkpoint)
    assert log.query == "5b1c"
    assert log.positions(3) == {"orders": {0: 4, 1: 5}, "clicks": {0: 6}}


def test_of_two_sources_of_one_topic_the_one_behind_counts(checkpoint: Path) -> None:
    write_batch(checkpoint, f"a:{position('orders', 4, 5)}", f"b:{position('orders', 9, 3)}")
    assert BatchLog(checkpoint.as_uri()).positions(3) == {"orders": {0: 4, 1: 3}}


def test_sources_that_are_no_topics_have_no_position(checkpoint: Path) -> None:
    write_batch(checkpoint, '{"logOffset":0}', "-")
    assert BatchLog(checkpoint).positions(3) == {}


def test_a_checkpoint_that_cannot_be_read_is_told(checkpoint: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match="offsets/9"):
        BatchLog(checkpoint).positions(9)
