"""Record batches, format v2: the unit of the wire, of the disk and of the checksum.

The broker moves batches as opaque bytes: it reads the header, checks the CRC, and writes the
offset into it. Records are decoded only off the hot path: to find a timestamp, to replay the
broker's own state, in tests. The whole format is in docs/formats/segment.md.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import cramjam
from crc32c import crc32c

from millstream.base.disk import Bytes
from millstream.base.errors import Corrupt, Rejected
from millstream.base.record import Header, Record

# The header of a batch, big-endian, 61 bytes. The CRC-32C covers all that follows it, so
# the broker may write base_offset and leader_epoch without computing it again.
#
#   base_offset        int64    offset of the first record
#   batch_length       int32    bytes that follow this field
#   leader_epoch       int32    epoch of the log's owner at append
#   magic              int8     2
#   crc                uint32   CRC-32C from `attributes` to the end
#   attributes         int16    bits 0-2 codec, 3 log-append time, 4 transactional, 5 control,
#                               6 delete horizon: it stands in base_timestamp (KIP-534)
#   last_offset_delta  int32    offset of the last record minus base_offset
#   base_timestamp     int64    ms; records hold differences to it
#   max_timestamp      int64    ms
#   producer_id        int64    -1 without idempotence
#   producer_epoch     int16
#   base_sequence      int32
#   record_count       int32
HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
# What a walk over batches needs, and no more: base_offset, batch_length.
SPAN = struct.Struct(">qi")
SPAN_BYTES = SPAN.size
INT64 = struct.Struct(">q")
INT32 = struct.Struct(">i")
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
CHECKED_FROM = 21
LAST_OFFSET_DELTA_AT = 23
MAX_TIMESTAMP_AT = 35
MAGIC = 2
# The smallest legal batch_length: a header without records.
BATCH_LENGTH_MIN = HEADER_BYTES - SPAN_BYTES

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1

CODEC_MASK = 0b111
LOG_APPEND_TIME = 1 << 3
TRANSACTIONAL = 1 << 4
CONTROL = 1 << 5
DELETE_HORIZON = 1 << 6

# A few kilobytes can decompress to gigabytes. What does not fit here counts as corrupt.
DECOMPRESSED_BYTES_MAX = 128 << 20


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


ZSTD = int(Codec.ZSTD)  # the last one; a plain number, for the comparison in every append


class CorruptBatch(Corrupt):
    """Bytes that claim to be a batch and are none."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"corrupt record batch: {reason}")
        self.reason = reason


class DecompressedTooLarge(CorruptBatch):
    """Compressed data that unfolds to more than it may."""

    def __init__(self, *, bytes_max: int) -> None:
        super().__init__(f"its records are more than {bytes_max} bytes when decompressed")
        self.bytes_max = bytes_max


class InvalidBatch(Rejected):
    """An intact batch that a producer must not send."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid record batch: {reason}")
        self.reason = reason


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return SPAN_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return add_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def add_sequence(sequence: int, delta: int) -> int:
    """Sequence numbers are int32 and wrap to 0, not to a negative number (KIP-98)."""
    return (sequence + delta) & 0x7FFFFFFF


def read_header(data: Bytes, position: int = 0) -> BatchHeader:
    """The header at `position`; raises CorruptBatch unless a whole batch can stand there."""
    if len(data) - position < HEADER_BYTES:
        raise CorruptBatch(f"{len(data) - position} bytes are too few for a header")
    header = BatchHeader._make(HEADER.unpack_from(data, position))
    if header.magic != MAGIC:
        raise CorruptBatch(f"format {header.magic}, this log knows only {MAGIC}")
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptBatch(f"length {header.batch_length} is shorter than a header")
    if header.last_offset_delta < 0 or header.base_offset < 0:
        raise CorruptBatch(f"offsets {header.base_offset} + {header.last_offset_delta}")
    return header


def check_batch(data: Bytes, position: int = 0) -> BatchHeader:
    """The header of the whole batch at `position`, its checksum verified."""
    header = read_header(data, position)
    size_bytes = SPAN_BYTES + header.batch_length
    if position + size_bytes > len(data):
        raise CorruptBatch(f"{size_bytes} bytes long, only {len(data) - position} are there")
    computed = crc32c(memoryview(data)[position + CHECKED_FROM : position + size_bytes])
    if computed != header.crc:
        raise CorruptBatch(f"checksum {computed:#010x}, the header says {header.crc:#010x}")
    return header


def check_produced_batch(data: Bytes) -> BatchHeader:
    """Check what one producer sent for one partition: exactly one intact, ordinary batch."""
    header = check_batch(data)
    attributes, record_count = header.attributes, header.record_count
    if SPAN_BYTES + header.batch_length != len(data):
        raise InvalidBatch("one request must hold exactly one batch for a partition")
    if record_count <= 0 or record_count != header.last_offset_delta + 1:
        raise InvalidBatch(
            f"{record_count} records do not fill offsets 0 to {header.last_offset_delta}"
        )
    if attributes & CONTROL:
        raise InvalidBatch("control batches are written by the broker alone")
    if attributes & CODEC_MASK > ZSTD:
        raise InvalidBatch(f"unknown compression codec {header.codec}")
    if header.producer_id == NO_PRODUCER_ID:
        if attributes & TRANSACTIONAL:
            raise InvalidBatch("a transaction without a producer id")
    else:
        if header.base_sequence < 0:
            raise InvalidBatch(f"producer id {header.producer_id} without a sequence number")
        if header.producer_epoch < 0:
            raise InvalidBatch(f"producer id {header.producer_id} without an epoch")
    return header


def recompress(
    batch: memoryview, header: BatchHeader, codec: int, *, level: int | None, bytes_max: int
) -> tuple[memoryview, BatchHeader]:
    """The same records in another codec: all but length, codec and checksum stays.

    DecompressedTooLarge if the records are more than `bytes_max`.
    """
    payload = decompress(header.codec, batch[HEADER_BYTES : header.size_bytes], bytes_max=bytes_max)
    body = compress(codec, payload, level)
    changed = header._replace(
        batch_length=HEADER_BYTES - SPAN_BYTES + len(body),
        attributes=header.attributes & ~CODEC_MASK | codec,
        crc=0,
    )
    out = memoryview(bytearray(HEADER_BYTES + len(body)))
    HEADER.pack_into(out, 0, *changed)
    out[HEADER_BYTES:] = body
    crc = crc32c(out[CHECKED_FROM:])
    struct.pack_into(">I", out, CRC_AT, crc)
    return out, changed._replace(crc=crc)


def has_records(span: memoryview) -> bool:
    """Whether any of these whole batches holds a record; compaction leaves some without."""
    position = 0
    while position < len(span):
        header = read_header(span, position)
        if header.record_count:
            return True
        position += header.size_bytes
    return False


def write_offset(
    batch: memoryview, header: BatchHeader, *, base_offset: int, leader_epoch: int
) -> BatchHeader:
    """Give the batch its place in the log. Both fields lie before the CRC's range."""
    INT64.pack_into(batch, 0, base_offset)
    INT32.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)
    # What _replace does, in a third of the time: this runs for every batch.
    return BatchHeader._make((base_offset, header.batch_length, leader_epoch, *header[3:]))


def write_append_time(batch: memoryview, header: BatchHeader, *, now_ms: int) -> BatchHeader:
    """Stamp the batch with the broker's time; readers then take it for every record in it."""
    attributes = header.attributes | LOG_APPEND_TIME
    struct.pack_into(">h", batch, CHECKED_FROM, attributes)
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, now_ms)
    crc = crc32c(batch[CHECKED_FROM:])
    struct.pack_into(">I", batch, CRC_AT, crc)
    return header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc)


# --- Records inside a batch -----------------------------------------------------------------
#
# Each record, varints in zigzag:
#
#   length            varint   bytes that follow
#   attributes        int8     0
#   timestamp_delta   varlong  minus base_timestamp
#   offset_delta      varint   minus base_offset
#   key               varint length (-1: null), bytes
#   value             varint length (-1: null), bytes
#   headers           varint count, then per header: key as string, value as nullable bytes


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
) -> bytearray:
    """One batch that holds `records` at consecutive offsets."""
    base_timestamp = records[0].timestamp_ms
    payload = bytearray()
    for delta, record in enumerate(records):
        _write_record(payload, record, record.timestamp_ms - base_timestamp, delta)
    body = compress(codec, payload)
    batch = bytearray(HEADER_BYTES + len(body))
    HEADER.pack_into(
        batch, 0, base_offset, len(batch) - SPAN_BYTES, leader_epoch, MAGIC, 0,
        attributes | codec, len(records) - 1, base_timestamp,
        max(record.timestamp_ms for record in records),
        producer_id, producer_epoch, base_sequence, len(records),
    )  # fmt: skip
    batch[HEADER_BYTES:] = body
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CHECKED_FROM:]))
    return batch


def decode_records(batch: Bytes, *, bytes_max: int | None = None) -> Iterator[Record]:
    """The records of one whole batch, whose checksum was verified before."""
    header = read_header(batch)
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    payload = decompress(header.codec, body, bytes_max=bytes_max)
    position = 0
    try:
        for _ in range(header.record_count):
            length, start = read_varint(payload, position)
            position = start + length
            if length < 0 or position > len(payload):
                raise CorruptBatch(f"a record of {length} bytes does not fit its batch")
            record, end = _read_record(payload, start, header)
            if end != position:
                raise CorruptBatch(f"a record of {length} bytes has fields of {end - start}")
            yield record
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise CorruptBatch(f"a record cannot be read ({error})") from error


def _write_record(out: bytearray, record: Record, timestamp_delta: int, offset_delta: int) -> None:
    body = bytearray(b"\0")
    write_varint(body, timestamp_delta)
    write_varint(body, offset_delta)
    _write_nullable(body, record.key)
    _write_nullable(body, record.value)
    write_varint(body, len(record.headers))
    for name, value in record.headers:
        _write_nullable(body, name.encode())
        _write_nullable(body, value)
    write_varint(out, len(body))
    out += body


def _read_record(payload: Bytes, position: int, header: BatchHeader) -> tuple[Record, int]:
    timestamp_delta, position = read_varint(payload, position + 1)
    offset_delta, position = read_varint(payload, position)
    key, position = _read_nullable(payload, position)
    value, position = _read_nullable(payload, position)
    header_count, position = read_varint(payload, position)
    headers: list[Header] = []
    for _ in range(header_count):
        name, position = _read_nullable(payload, position)
        content, position = _read_nullable(payload, position)
        headers.append(((name or b"").decode(), content))
    timestamp_ms = header.base_timestamp + timestamp_delta
    record = Record(
        key=key,
        value=value,
        headers=tuple(headers),
        timestamp_ms=header.max_timestamp if header.is_log_append_time else timestamp_ms,
        offset=header.base_offset + offset_delta,
    )
    return record, position


def _write_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        write_varint(out, -1)
    else:
        write_varint(out, len(data))
        out += data


def _read_nullable(payload: Bytes, position: int) -> tuple[bytes | None, int]:
    length, position = read_varint(payload, position)
    if length < 0:
        return None, position
    if position + length > len(payload):
        raise CorruptBatch(f"a field of {length} bytes does not fit its record")
    return bytes(payload[position : position + length]), position + length


def write_varint(out: bytearray, value: int) -> None:
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def read_varint(data: Bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint is longer than ten bytes")


# --- Markers: the one record of a control batch, which ends a transaction -------------------
#
#   key    version int16 (0), type int16 (0 abort, 1 commit)
#   value  version int16 (0), coordinator_epoch int32
MARKER_KEY = struct.Struct(">hh")
MARKER_VALUE = struct.Struct(">hi")
ABORT, COMMIT = 0, 1


class Marker(NamedTuple):
    """How a transaction ended, and which coordinator said so."""

    is_commit: bool
    coordinator_epoch: int


def encode_marker(
    marker: Marker, *, producer_id: int, producer_epoch: int, now_ms: int
) -> bytearray:
    record = Record(
        key=MARKER_KEY.pack(0, COMMIT if marker.is_commit else ABORT),
        value=MARKER_VALUE.pack(0, marker.coordinator_epoch),
        timestamp_ms=now_ms,
    )
    return encode_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def read_marker(batch: Bytes) -> Marker | None:
    """What a control batch says; None if it says nothing about transactions."""
    for record in decode_records(batch):
        try:
            _, kind = MARKER_KEY.unpack_from(record.key or b"")
            _, coordinator_epoch = MARKER_VALUE.unpack_from(record.value or b"")
        except struct.error as error:
            raise CorruptBatch(f"a control record cannot be read ({error})") from error
        if kind in (ABORT, COMMIT):
            return Marker(kind == COMMIT, coordinator_epoch)
    return None


# --- Codecs ----------------------------------------------------------------------------------

# Java's snappy streams: a 16-byte head, then blocks with an int32 length each (snappy-java).
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEAD_BYTES = 16


def compress(codec: int, payload: Bytes, level: int | None = None) -> Bytes:
    """`payload` by a codec; without a level each has its library's own."""
    match codec:
        case Codec.NONE:
            return payload
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(payload, level=level))
        case Codec.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(payload))
        case Codec.LZ4:
            return _compress_lz4(payload, level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(payload, level=level))
    raise CorruptBatch(f"unknown compression codec {codec}")


def _compress_lz4(payload: Bytes, level: int | None) -> bytes:
    """One frame of independent blocks: Java's reader refuses blocks that need the one before."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(payload))
    return bytes(compressor.finish())


def decompress(codec: int, payload: memoryview, *, bytes_max: int | None = None) -> Bytes:
    """The records of a batch; DecompressedTooLarge if they are more than `bytes_max`."""
    if codec == Codec.NONE:
        return payload
    bytes_max = min(bytes_max or DECOMPRESSED_BYTES_MAX, DECOMPRESSED_BYTES_MAX)
    try:
        match codec:
            case Codec.GZIP:
                return _decompress_stream(cramjam.gzip, payload, bytes_max)
            case Codec.SNAPPY:
                return _decompress_snappy(payload, bytes_max)
            case Codec.LZ4:
                return _decompress_stream(cramjam.lz4, payload, bytes_max)
            case Codec.ZSTD:
                return _decompress_stream(cramjam.zstd, payload, bytes_max)
    except (cramjam.DecompressionError, OSError, ValueError) as error:
        raise CorruptBatch(f"{Codec(codec).name.lower()} data cannot be read ({error})") from error
    raise CorruptBatch(f"unknown compression codec {codec}")


# How cramjam says that the output did not fit; any other error is about the input.
NO_ROOM = "failed to write whole buffer"


def _decompress_stream(library: Any, payload: memoryview, bytes_max: int) -> Bytes:
    """Decompress into a buffer that grows to the limit and no further."""
    room = max(1 << 16, 8 * len(payload))
    while True:
        out = bytearray(min(room, bytes_max))
        try:
            return memoryview(out)[: library.decompress_into(payload, out)]
        except (cramjam.DecompressionError, OSError) as error:
            if NO_ROOM not in str(error):
                raise
            if room >= bytes_max:
                raise DecompressedTooLarge(bytes_max=bytes_max) from error
            room *= 16


def _decompress_snappy(payload: memoryview, bytes_max: int) -> bytes:
    if payload[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_snappy_block(payload, bytes_max)
    blocks, position, room = [], XERIAL_HEAD_BYTES, bytes_max
    while position + 4 <= len(payload):
        length = int.from_bytes(payload[position : position + 4], "big")
        position += 4
        if position + length > len(payload):
            raise CorruptBatch("a snappy block does not fit its batch")
        blocks.append(_decompress_snappy_block(payload[position : position + length], room))
        room -= len(blocks[-1])
        position += length
    return b"".join(blocks)


def _decompress_snappy_block(block: memoryview, bytes_max: int) -> bytes:
    # The length stands in front, and memory is taken by it before a byte is decompressed.
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise DecompressedTooLarge(bytes_max=bytes_max)
    return bytes(cramjam.snappy.decompress_raw(block))
