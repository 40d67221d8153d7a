"""Headers and checksums of batches, and what a producer must not send."""

import struct

import pytest
from crc32c import crc32c

from millstream.base.record import Record
from millstream.log.record_batch import (
    CHECKED_FROM,
    CONTROL,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_AT,
    MAGIC_AT,
    CorruptBatch,
    InvalidBatch,
    check_batch,
    check_produced_batch,
    encode_batch,
    read_header,
    write_append_time,
    write_offset,
)

RECORDS = [Record(key=b"k", value=b"v", timestamp_ms=1000), Record(timestamp_ms=900)]


def with_header(at: int, layout: str, value: int) -> bytearray:
    """A batch with one header field changed and the checksum made right again."""
    batch = encode_batch(RECORDS)
    struct.pack_into(layout, batch, at, value)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


def test_a_header_says_what_is_in_the_batch() -> None:
    header = check_batch(encode_batch(RECORDS, base_offset=7, leader_epoch=3))
    assert (header.base_offset, header.last_offset, header.record_count) == (7, 8, 2)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1000)
    assert (header.leader_epoch, header.producer_id, header.base_sequence) == (3, -1, -1)


def test_giving_a_batch_its_offset_keeps_its_checksum() -> None:
    batch = memoryview(encode_batch(RECORDS))
    placed = write_offset(batch, check_batch(batch), base_offset=1 << 40, leader_epoch=9)
    assert check_batch(batch) == placed
    assert (placed.base_offset, placed.leader_epoch) == (1 << 40, 9)


def test_stamping_a_batch_makes_its_checksum_anew() -> None:
    batch = memoryview(encode_batch(RECORDS))
    stamped = write_append_time(batch, check_batch(batch), now_ms=5000)
    assert check_batch(batch) == stamped
    assert stamped.is_log_append_time
    assert stamped.max_timestamp == 5000


@pytest.mark.parametrize("position", range(MAGIC_AT, len(encode_batch(RECORDS))))
def test_a_flipped_bit_behind_the_leader_epoch_is_noticed(position: int) -> None:
    batch = encode_batch(RECORDS)
    batch[position] ^= 1
    with pytest.raises(CorruptBatch):
        check_batch(batch)


def test_a_cut_batch_is_noticed_at_every_byte() -> None:
    batch = encode_batch(RECORDS)
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch):
            check_batch(batch[:size])


@pytest.mark.parametrize("length", [-1, 0, HEADER_BYTES - 13])
def test_a_length_without_room_for_a_header_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch, match="shorter than a header"):
        read_header(with_header(LENGTH_AT, ">i", length))


@pytest.mark.parametrize(
    ("at", "layout", "value", "reason"),
    [
        (57, ">i", 3, "do not fill"),
        (57, ">i", 0, "do not fill"),
        (21, ">h", CONTROL, "control batches"),
        (21, ">h", 5, "unknown compression"),
        (43, ">q", 1, "without a sequence"),
    ],
)
def test_a_batch_that_no_producer_may_send_is_refused(
    at: int, layout: str, value: int, reason: str
) -> None:
    with pytest.raises(InvalidBatch, match=reason):
        check_produced_batch(with_header(at, layout, value))
