"""Threads read while the owner appends, rolls, drops and closes: no lock, and no wrong byte."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.base.disk import DiskFailed, RealDisk
from millstream.log.config import LogConfig
from millstream.log.partition_log import OffsetOutOfRange, PartitionLog
from millstream.log.record_batch import decode_records
from tests.support.batches import NOW_MS, batch, open_log, split

CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=200, retention_bytes=20_000)
SECONDS = 2.0
SECONDS_MAX = 60.0


@pytest.fixture
def _switching_often() -> Iterator[None]:
    """Let threads take turns at nearly every bytecode where they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


class Reader(threading.Thread):
    """Reads from all over the log and checks each record against its offset."""

    def __init__(self, log: PartitionLog, *, stride: int) -> None:
        super().__init__()
        self._log = log
        self._stride = stride
        self.must_stop = threading.Event()
        self.reads = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        offset = 0
        try:
            while not self.must_stop.is_set():
                offset = self._read(offset)
        except BaseException as error:
            self.error = error

    def _read(self, offset: int) -> int:
        try:
            span = self._log.read(offset, bytes_max=700)
        except OffsetOutOfRange:
            return self._log.start_offset
        if not span:
            return self._log.start_offset
        self.reads += 1
        found = [r for each in split(span) for r in decode_records(each)]
        assert found[0].offset <= offset <= found[-1].offset
        for record in found:
            assert record.value is not None
            assert record.value.startswith(b"%d " % record.offset)
        return found[-1].offset + 1 + self._stride


@pytest.mark.usefixtures("_switching_often")
@pytest.mark.parametrize("open_files_max", [None, 1], ids=["all open", "one open"])
def test_readers_see_each_record_as_it_was_appended(
    tmp_path: Path, open_files_max: int | None
) -> None:
    log = open_log(RealDisk(open_files_max=open_files_max), tmp_path / "orders-0", CONFIG)
    readers = [Reader(log, stride=stride) for stride in (0, 3, 11)]
    for reader in readers:
        reader.start()
    began = time.monotonic()
    while time.monotonic() < began + SECONDS or (
        # On a busy machine it takes longer until all of it has happened.
        not (log.start_offset and all(reader.reads > 20 for reader in readers))
        and time.monotonic() < began + SECONDS_MAX
    ):
        content = b"%d " % log.end_offset + bytes(log.end_offset % 190)
        log.append(batch(content), now_ms=NOW_MS)
        if log.end_offset % 7 == 0:
            log.sync(now_ms=NOW_MS)
        if log.end_offset % 50 == 0:
            log.apply_retention(now_ms=NOW_MS)
    for reader in readers:
        reader.must_stop.set()
        reader.join()
    assert [reader.error for reader in readers] == [None] * 3
    assert all(reader.reads > 20 for reader in readers)
    assert log.start_offset > 0


def test_a_file_closed_during_a_read_does_not_give_its_descriptor_away(tmp_path: Path) -> None:
    """The number of a closed file is soon that of another one."""
    file = RealDisk().open(tmp_path / "mine")
    file.append([b"mine" * 1000])
    wrong: list[bytes] = []

    def read() -> None:
        try:
            while True:
                data = bytes(file.read(0, 4000))
                if data != b"mine" * 1000:
                    wrong.append(data)
        except DiskFailed:
            pass

    (tmp_path / "other").write_bytes(b"other")
    thread = threading.Thread(target=read)
    thread.start()
    time.sleep(0.05)
    file.close()
    descriptors = [os.open(tmp_path / "other", os.O_RDONLY) for _ in range(50)]
    thread.join()
    for descriptor in descriptors:
        os.close(descriptor)
    assert wrong == []
