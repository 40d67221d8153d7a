"""What an append and a read of the log cost, without clients and without a device.

    python bench/log_append_read.py

Prints microseconds: the best of several rounds of CPU time per call, in a directory in memory
where there is one (/dev/shm). `append` is one record of 100 bytes; the write call alone is
measured beside it, so that the difference is ours. `read` is 1 MiB of 16 KiB batches: from the
active segment, whose bytes are trusted, and from a closed one, where every batch is verified.
"""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from millstream.base.disk import RealDisk
from millstream.base.record import Record
from millstream.log.config import LogConfig
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import encode_batch

ROUNDS = 15
APPENDS = 5_000
BATCHES = 2_048
BATCH_BYTES = 16 << 10
READ_BYTES = 1 << 20
NOW_MS = 1_700_000_000_000


def main() -> None:
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent) as scratch:
        path = Path(scratch)
        appends = append_us(path)
        writes = write_us(path)
        print(f"append             {appends:7.1f} us, of which the write call {writes:.1f} us")
        log = filled_log(path / "read")
        print(f"read, active       {read_us(log):7.1f} us per MiB")
        print(f"read, not blocking {read_us(log, must_not_block=True):7.1f} us per MiB")
        log.roll(now_ms=NOW_MS)
        print(f"read, closed       {read_us(log):7.1f} us per MiB, every checksum verified")


def best_us(run: Callable[[], int]) -> float:
    """CPU time per call; `run` returns how many calls it made."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        count = run()
        best = min(best, (time.process_time() - started) / count * 1e6)
    return best


def open_log(path: Path) -> PartitionLog:
    path.mkdir()
    config = LogConfig(flush_messages=1 << 40)
    return PartitionLog(RealDisk(), path, config, leader_epoch=0, now_ms=NOW_MS)


def append_us(path: Path) -> float:
    log = open_log(path / "append")
    content = memoryview(encode_batch([Record(value=bytes(100), timestamp_ms=NOW_MS)]))

    def run() -> int:
        for _ in range(APPENDS):
            log.append(content, now_ms=NOW_MS)
        return APPENDS

    return best_us(run)


def write_us(path: Path) -> float:
    content = (encode_batch([Record(value=bytes(100), timestamp_ms=NOW_MS)]),)
    descriptor = os.open(path / "write", os.O_RDWR | os.O_CREAT)

    def run() -> int:
        position = os.fstat(descriptor).st_size
        for _ in range(APPENDS):
            position += os.pwritev(descriptor, content, position)
        return APPENDS

    return best_us(run)


def filled_log(path: Path) -> PartitionLog:
    log = open_log(path)
    overhead = len(encode_batch([Record(value=bytes(16_000), timestamp_ms=NOW_MS)])) - 16_000
    value = os.urandom(BATCH_BYTES - overhead)
    content = memoryview(encode_batch([Record(value=value, timestamp_ms=NOW_MS)]))
    assert len(content) == BATCH_BYTES
    for _ in range(BATCHES):
        log.append(content, now_ms=NOW_MS)
    return log


def read_us(log: PartitionLog, *, must_not_block: bool = False) -> float:
    def run() -> int:
        offset, count = 0, 0
        while offset < BATCHES:
            span = log.read(offset, bytes_max=READ_BYTES, must_not_block=must_not_block)
            offset += len(span) // BATCH_BYTES
            count += 1
        return count

    return best_us(run)


if __name__ == "__main__":
    main()
