"""The files of a partition, byte by byte as they are committed in `segments/`.

The same appends must give the same bytes, and the bytes must be read as the same records. If this
fails, the format has changed: old data would not be read. `python -m tests.golden.test_segments`
writes the files anew, for a change that is meant and has a new format version.
"""

from pathlib import Path

import pytest

from millstream.base.record import Record
from millstream.log.config import LogConfig
from millstream.log.log_directory import LogDirectory
from millstream.log.record_batch import decode_records, encode_batch
from tests.support.batches import NOW_MS, read_batches, read_records
from tests.support.simulated_disk import SimulatedDisk

GOLDEN = Path(__file__).parent / "segments"
ORDERS = ("orders", 0)
CONFIG = LogConfig(segment_bytes=350, index_interval_bytes=100)
TOPIC_ID = bytes(range(16))
KEPT_FILES = [
    "log-start-offset-checkpoint",
    "log-start-offset-checkpoint.checked",
    "recovery-point-offset-checkpoint",
    "recovery-point-offset-checkpoint.checked",
]


def batches() -> list[bytearray]:
    """Nine batches: without a producer and from one, with keys, nulls and headers."""
    made = []
    for number in range(9):
        records = [
            Record(
                key=b"key %d" % number if number % 2 else None,
                value=b"value %d.%d" % (number, n) if n != 1 else None,
                headers=(("trace", b"\x00\xff"), ("empty", None)) if n == 2 else (),
                timestamp_ms=NOW_MS + number * 10 - n,
            )
            for n in range(1 + number % 3)
        ]
        if number % 3 == 0:
            made.append(encode_batch(records))
        else:
            sequence = sum(1 + n % 3 for n in range(number) if n % 3)
            made.append(
                encode_batch(records, producer_id=77, producer_epoch=2, base_sequence=sequence)
            )
    return made


def write(path: Path) -> dict[str, bytes]:
    """Every file of the directory after a clean stop, by its name below it."""
    disk = SimulatedDisk(path)
    directory = LogDirectory(path, disk=disk)
    log = directory.open_partition(ORDERS, CONFIG, topic_id=TOPIC_ID, now_ms=NOW_MS)
    for each in batches():
        log.append(memoryview(each), now_ms=NOW_MS)
    log.sync(now_ms=NOW_MS)
    directory.delete_records(ORDERS, 1)
    assert directory.close(now_ms=NOW_MS)
    names = [f"orders-0/{name}" for name in disk.names(path / "orders-0")] + KEPT_FILES
    return {name: bytes(disk.content(path / name)) for name in sorted(names)}


def load() -> dict[str, bytes]:
    paths = [path for path in GOLDEN.rglob("*") if path.is_file()]
    return {str(path.relative_to(GOLDEN)): path.read_bytes() for path in sorted(paths)}


def test_the_same_appends_give_the_same_bytes(tmp_path: Path) -> None:
    assert write(tmp_path) == load()


@pytest.mark.parametrize("was_closed_cleanly", [True, False])
def test_the_bytes_are_read_as_the_same_records(tmp_path: Path, was_closed_cleanly: bool) -> None:
    disk = SimulatedDisk(tmp_path)
    disk.make_directory(tmp_path / "orders-0")
    for name, content in load().items():
        disk.open(tmp_path / name).append([content])
    if was_closed_cleanly:
        disk.open(tmp_path / ".kafka_cleanshutdown")
    directory = LogDirectory(tmp_path, disk=disk)
    directory.abandon()  # the lock is not needed here
    log = directory.open_partition(ORDERS, CONFIG, topic_id=TOPIC_ID, now_ms=NOW_MS)
    expected = [record for each in batches() for record in decode_records(each)]
    assert [(r.offset, r.key, r.value, r.headers, r.timestamp_ms) for r in read_records(log)] == [
        (offset, r.key, r.value, r.headers, r.timestamp_ms)
        for offset, r in enumerate(expected)
        if offset >= 1
    ]
    assert len(read_batches(log)) == 8
    assert log.segment_count > 2
    assert [producer.last.last_sequence for _, producer in log.producers] == [14]
    assert log.append(memoryview(batches()[-1]), now_ms=NOW_MS).is_duplicate


if __name__ == "__main__":
    import shutil
    import tempfile

    shutil.rmtree(GOLDEN, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name, content in write(Path(scratch)).items():
            (GOLDEN / name).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / name).write_bytes(content)
