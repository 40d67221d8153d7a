"""Topics with a codec of their own (`compression.type`): what a producer sent is kept in it."""

from pathlib import Path

import pytest

from millstream.log.config import LogConfig
from millstream.log.partition_log import BatchTooLarge
from millstream.log.record_batch import (
    Codec,
    InvalidBatch,
    check_batch,
    decode_records,
    read_header,
)
from tests.support.batches import NOW_MS, batch, open_log
from tests.support.simulated_disk import SimulatedDisk

ROOT = Path("/disk")
DIRECTORY = ROOT / "orders-0"
VALUES = (b"a" * 1_000, b"b", b"c" * 1_000)


def stored(config: LogConfig, sent: memoryview) -> bytes:
    """What the log keeps of one batch."""
    log = open_log(SimulatedDisk(ROOT), DIRECTORY, config)
    log.append(sent, now_ms=NOW_MS)
    job = log.sync_job()
    assert job is not None
    job.run()
    log.complete(job, now_ms=NOW_MS)
    return bytes(log.read(0, bytes_max=1 << 20))


@pytest.mark.parametrize("sent", Codec)
@pytest.mark.parametrize("kept", Codec)
def test_a_batch_is_kept_in_the_codec_of_its_topic(sent: Codec, kept: Codec) -> None:
    produced = batch(*VALUES, codec=sent, producer_id=7, producer_epoch=2, sequence=5)
    before = read_header(bytes(produced))
    data = stored(LogConfig(codec=int(kept)), produced)
    header = check_batch(data)
    assert header.codec == kept
    assert [record.value for record in decode_records(data)] == list(VALUES)
    same = ("record_count", "base_timestamp", "max_timestamp", "producer_id", "base_sequence")
    assert [getattr(header, name) for name in same] == [getattr(before, name) for name in same]


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_has_the_codec_is_kept_as_it_came(codec: Codec) -> None:
    produced = batch(*VALUES, codec=codec)
    data = stored(LogConfig(codec=int(codec), codec_level=1), batch(*VALUES, codec=codec))
    assert data[16:] == bytes(produced)[16:]  # all behind what the broker itself writes


def test_a_level_is_used() -> None:
    text = b" ".join(b"%d" % (number * number) for number in range(5_000))
    sizes = [
        len(stored(LogConfig(codec=int(Codec.ZSTD), codec_level=level), batch(text)))
        for level in (-100, 19)
    ]
    assert sizes[0] > 1.5 * sizes[1]


def test_a_batch_with_the_broker_s_time_has_a_right_checksum() -> None:
    config = LogConfig(codec=int(Codec.ZSTD), is_log_append_time=True)
    header = check_batch(stored(config, batch(*VALUES, timestamp_ms=5)))
    assert header.max_timestamp == NOW_MS


def test_a_batch_that_unfolds_to_too_much_is_refused() -> None:
    bomb = batch(bytes(170_000), codec=Codec.ZSTD)
    config = LogConfig(codec=int(Codec.NONE), message_bytes_max=10_000)
    with pytest.raises(InvalidBatch, match=r"takes 16 times max\.message\.bytes"):
        stored(config, bomb)


def test_a_batch_that_grows_past_the_limit_is_refused() -> None:
    grown = batch(bytes(50_000), codec=Codec.ZSTD)
    config = LogConfig(codec=int(Codec.NONE), message_bytes_max=10_000)
    with pytest.raises(BatchTooLarge):
        stored(config, grown)


def test_a_repeated_batch_is_answered_with_its_first_place() -> None:
    log = open_log(SimulatedDisk(ROOT), DIRECTORY, LogConfig(codec=int(Codec.LZ4)))
    first, second = (
        log.append(batch(b"a", producer_id=7, producer_epoch=0, sequence=0), now_ms=NOW_MS)
        for _ in range(2)
    )
    assert not first.is_duplicate
    assert second.is_duplicate
    assert second.base_offset == first.base_offset
