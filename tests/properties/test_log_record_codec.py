"""Records in and out of batches, in every codec, and any bytes in place of a batch."""

import contextlib
import tracemalloc

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.record import Record
from millstream.log import record_batch
from millstream.log.record_batch import (
    CHECKED_FROM,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_AT,
    SPAN_BYTES,
    XERIAL_MAGIC,
    Codec,
    CorruptBatch,
    check_batch,
    decode_records,
    decompress,
    encode_batch,
    read_varint,
    write_varint,
)

FIELDS = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.builds(
        Record,
        key=FIELDS,
        value=FIELDS,
        headers=st.lists(st.tuples(st.text(max_size=10), FIELDS), max_size=3).map(tuple),
        timestamp_ms=st.integers(0, (1 << 62) - 1),
    ),
    min_size=1,
    max_size=20,
)
CODECS = st.sampled_from(Codec)


@given(records=RECORDS, codec=CODECS, base_offset=st.integers(0, 1 << 60))
def test_records_come_back_as_they_went_in(
    records: list[Record], codec: Codec, base_offset: int
) -> None:
    batch = encode_batch(records, codec=codec, base_offset=base_offset)
    header = check_batch(batch)
    assert header.codec == codec
    assert header.size_bytes == len(batch)
    assert header.max_timestamp == max(record.timestamp_ms for record in records)
    found = list(decode_records(batch))
    assert [r.offset for r in found] == list(range(base_offset, base_offset + len(records)))
    assert [(r.key, r.value, r.headers, r.timestamp_ms) for r in found] == [
        (r.key, r.value, r.headers, r.timestamp_ms) for r in records
    ]


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_varint_comes_back_as_it_went_in(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert read_varint(out, 0) == (value, len(out))
    assert len(out) <= 10


def with_payload(codec: int, payload: bytes, *, record_count: int = 1) -> bytearray:
    """A batch whose checksum is right and whose payload is anything."""
    batch = encode_batch([Record(value=b"")], attributes=codec)[:HEADER_BYTES]
    batch += payload
    batch[LENGTH_AT : LENGTH_AT + 4] = (len(batch) - SPAN_BYTES).to_bytes(4, "big")
    batch[HEADER_BYTES - 4 : HEADER_BYTES] = record_count.to_bytes(4, "big")
    crc = crc32c(memoryview(batch)[CHECKED_FROM:])
    batch[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")
    return batch


def xerial(payload: bytes, block_bytes: int) -> bytes:
    """Snappy as Java writes it: a head, then blocks with their lengths."""
    out = XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
    for start in range(0, len(payload), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + block_bytes]))
        out += len(block).to_bytes(4, "big") + block
    return out


@given(records=RECORDS, block_bytes=st.sampled_from([1, 7, 100, 1 << 15]))
def test_snappy_in_javas_framing_is_read(records: list[Record], block_bytes: int) -> None:
    plain = encode_batch(records)
    payload = xerial(bytes(plain[HEADER_BYTES:]), block_bytes)
    batch = with_payload(Codec.SNAPPY, payload, record_count=len(records))
    batch[27:43] = plain[27:43]  # base_timestamp and max_timestamp
    assert list(decode_records(batch)) == list(decode_records(plain))


@given(
    payload=st.binary(max_size=300),
    codec=st.integers(0, 7),
    count=st.sampled_from([0, 1, 5, (1 << 31) - 1]),
)
@settings(max_examples=400, deadline=None)
def test_any_payload_is_read_or_refused_as_corrupt(payload: bytes, codec: int, count: int) -> None:
    try:
        records = list(decode_records(with_payload(codec, payload, record_count=count)))
    except CorruptBatch:
        return
    assert len(records) == count


@given(
    records=RECORDS,
    codec=CODECS,
    damages=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), min_size=1),
)
@settings(max_examples=300, deadline=None)
def test_a_damaged_payload_is_read_or_refused_as_corrupt(
    records: list[Record], codec: Codec, damages: list[tuple[int, int]]
) -> None:
    batch = encode_batch(records, codec=codec)
    for position, mask in damages:
        batch[HEADER_BYTES + position % (len(batch) - HEADER_BYTES)] ^= mask
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batch, "DECOMPRESSED_BYTES_MAX", 1 << 20)
        with contextlib.suppress(CorruptBatch):
            list(decode_records(batch))


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptBatch):
        check_batch(data)
    with pytest.raises(CorruptBatch):
        list(decode_records(data))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_refused_in_bounded_memory(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_bytes = 4 << 20
    monkeypatch.setattr(record_batch, "DECOMPRESSED_BYTES_MAX", limit_bytes)
    fits = record_batch.compress(codec, bytes(limit_bytes))
    assert len(decompress(codec, memoryview(fits))) == limit_bytes
    bomb = record_batch.compress(codec, bytes(limit_bytes + 1))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatch):
            decompress(codec, memoryview(bomb))
        assert tracemalloc.get_traced_memory()[1] < 3 * limit_bytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_garbage_is_refused_without_a_search_for_room(
    codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_batch, "DECOMPRESSED_BYTES_MAX", 1 << 50)  # would be a MemoryError
    with pytest.raises(CorruptBatch):
        decompress(codec, memoryview(b"\x883\xfb\xdf\xc3\xa9\xa2u\x1a\xf7P\x1d"))


def test_a_forged_snappy_length_takes_no_memory() -> None:
    forged = b"\xff\xff\xff\xff\x0f" + b"x" * 20  # says 4 GiB
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, memoryview(forged))
    framed = XERIAL_MAGIC + bytes(8) + len(forged).to_bytes(4, "big") + forged
    with pytest.raises(CorruptBatch):
        decompress(Codec.SNAPPY, memoryview(framed))
