"""What a checkpoint says of a batch."""

import json
from pathlib import Path

import pytest

from millstream.processing.writing.batch_log import PARTITIONS, BatchLog, CheckpointUnreadable


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


def write_entry(checkpoint: Path, number: int, *, moment: int, partitions: int, end: int) -> None:
    facts = {"batchTimestampMs": moment, "conf": {PARTITIONS: str(partitions)}}
    text = "\n".join(["v2", json.dumps(facts), f"a:{position('orders', end)}"])
    (checkpoint / "offsets" / str(number)).write_text(text)


def test_a_number_that_moved_the_state_is_no_batch(checkpoint: Path) -> None:
    """As Spark writes it for `millstream state repartition`."""
    write_entry(checkpoint, 0, moment=100, partitions=2, end=4)
    write_entry(checkpoint, 1, moment=100, partitions=3, end=4)
    write_entry(checkpoint, 2, moment=100, partitions=8, end=4)
    write_entry(checkpoint, 3, moment=200, partitions=8, end=9)
    log = BatchLog(checkpoint)
    assert [log.before(number) for number in range(5)] == [-1, 0, 0, 0, 3]


def test_a_batch_without_records_is_a_batch(checkpoint: Path) -> None:
    write_entry(checkpoint, 0, moment=100, partitions=2, end=4)
    write_entry(checkpoint, 1, moment=101, partitions=2, end=4)
    write_entry(checkpoint, 2, moment=102, partitions=2, end=6)
    assert BatchLog(checkpoint).before(2) == 1
    assert BatchLog(checkpoint).before(7) == 6, "what Spark has removed was a batch"


def test_records_of_a_batch_are_its_offsets_since_the_one_before(checkpoint: Path) -> None:
    write_entry(checkpoint, 0, moment=100, partitions=2, end=4)
    write_entry(checkpoint, 1, moment=101, partitions=2, end=9)
    assert [BatchLog(checkpoint).records_in(number) for number in (0, 1)] == [4, 5]
