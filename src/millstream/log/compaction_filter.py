"""Which records of a batch a cleaning keeps, and the batch that is left of it.

Pure, and the hot loops of compaction. The first pass notes where each key of the dirty range was
written last; the second asks that map. Keys are read, values never: a record is a length, a few
varints and a key, and the rest is copied as it is. Offsets stay, and so do the first and last
offset of a batch, with them its producer's sequence; what changes is the count, the largest
timestamp and the checksum.
"""

import struct
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from crc32c import crc32c

from millstream.base.disk import Bytes
from millstream.log.record_batch import (
    CHECKED_FROM,
    CODEC_MASK,
    CRC_AT,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    NO_TIMESTAMP,
    SPAN_BYTES,
    BatchHeader,
    Codec,
    CorruptBatch,
    DecompressedTooLarge,
    InvalidBatch,
    compress,
    decompress,
    read_varint,
    write_varint,
)

# A longer key is known by its digest, which is longer than any key that is kept as it is: so the
# two cannot be taken for one another. 33 bytes of BLAKE2b do not collide.
KEY_BYTES_MAX = 32
DIGEST_BYTES = KEY_BYTES_MAX + 1
# One key in the map: an entry of the dict (100 bytes at its emptiest), an int (32), and the bytes
# object (33 and the key's own).
ENTRY_BYTES = 100 + 32 + 33 + DIGEST_BYTES
VARINT_BYTES_MAX = 10  # of 64 bits, seven in each
NULL = 1  # the varint -1: the length of a key or value that is null
# The keys of a produced batch are looked at while clients wait: it may unfold to so many times
# `max.message.bytes`, of a topic that is compacted, and is refused if it is more.
CHECKED_RATIO_MAX = 16


def key_digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class Payload(NamedTuple):
    """The records of a batch, decompressed: `data` from `start` to `end`."""

    data: bytes
    start: int
    end: int


def read_payload(
    header: BatchHeader, data: bytes, at: int, *, bytes_max: int | None = None
) -> Payload:
    """The records of the batch that starts at `at`; without a copy if they are not compressed."""
    if header.attributes & CODEC_MASK == Codec.NONE or header.record_count == 0:
        return Payload(data, at + HEADER_BYTES, at + header.size_bytes)
    body = memoryview(data)[at + HEADER_BYTES : at + header.size_bytes]
    plain = bytes(decompress(header.codec, body, bytes_max=bytes_max))
    return Payload(plain, 0, len(plain))


def horizon_of(header: BatchHeader) -> int | None:
    """When the tombstones and the marker in a batch may go; None if no cleaning has said yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


class LatestOffsets:
    """Where each key was written last, in the offsets [start_offset, end_offset).

    Grows batch by batch up to `keys_max`, then `freeze` makes it answer.
    """

    def __init__(self, start_offset: int, *, keys_max: int) -> None:
        self.start_offset = self.end_offset = start_offset
        self.latest: dict[bytes, int] = {}
        self._keys_max = keys_max
        self._with_tombstones: set[int] = set()
        self._offsets: list[int] = []

    def has_room_for(self, header: BatchHeader) -> bool:
        """One batch always fits, so that each pass gets on."""
        return not self.latest or len(self.latest) + header.record_count <= self._keys_max

    def note(self, header: BatchHeader, data: bytes, at: int) -> None:
        """Take the keys of a whole batch."""
        if note_keys(self.latest, header, read_payload(header, data, at)):
            self._with_tombstones.add(header.base_offset)
        self.end_offset = header.last_offset + 1

    def pass_over(self, header: BatchHeader) -> None:
        """The records of this batch supersede nothing."""
        self.end_offset = header.last_offset + 1

    def freeze(self) -> None:
        self._offsets = sorted(self.latest.values())

    def latest_in(self, header: BatchHeader) -> list[int]:
        """The offsets in a noted batch that hold the last value of a key."""
        first = bisect_left(self._offsets, header.base_offset)
        return self._offsets[first : bisect_left(self._offsets, header.last_offset + 1, first)]

    def others_in(self, header: BatchHeader, payload: Payload) -> tuple[list[int], bool]:
        """The offsets in an older batch whose keys were not written since.

        And whether there is a tombstone in it.
        """
        own: dict[bytes, int] = {}
        has_tombstones = note_keys(own, header, payload)
        if self.latest.keys().isdisjoint(own):
            return list(own.values()), has_tombstones
        latest = self.latest
        return [offset for key, offset in own.items() if key not in latest], has_tombstones

    def has_tombstones(self, header: BatchHeader) -> bool:
        return header.base_offset in self._with_tombstones


def note_keys(latest: dict[bytes, int], header: BatchHeader, payload: Payload) -> bool:
    """Note the offset of each key; returns whether there is a tombstone among the records."""
    data, at, end = payload
    base_offset, has_tombstones = header.base_offset, False
    try:
        for _ in range(header.record_count):
            length = data[at]  # varints of one and two bytes are read here: a call costs as much
            if length < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                length = length & 0x7F | high << 7
                at += 2
            else:
                length, at = _read_unsigned(data, at)
            record_end = at + (length >> 1)
            if record_end > end:
                raise CorruptBatch(f"a record of {length >> 1} bytes does not fit its batch")
            at += 1  # attributes
            while data[at] > 0x7F:  # timestamp
                at += 1
            delta = data[at + 1]
            if delta < 0x80:
                at += 2
            elif (high := data[at + 2]) < 0x80:
                delta = delta & 0x7F | high << 7
                at += 3
            else:
                delta, at = _read_unsigned(data, at + 1)
            key_bytes = data[at]
            if key_bytes < 0x80:
                at += 1
            else:
                key_bytes, at = _read_unsigned(data, at)
            if key_bytes != NULL:
                key_end = at + (key_bytes >> 1)
                if key_end >= record_end:
                    raise CorruptBatch(f"a key of {key_bytes >> 1} bytes does not fit its record")
                key = data[at:key_end]
                if key_bytes > 2 * KEY_BYTES_MAX:
                    key = key_digest(key)
                latest[key] = base_offset + (delta >> 1)
                if data[key_end] == NULL:
                    has_tombstones = True
            at = record_end
    except IndexError:
        raise CorruptBatch("its records end in the middle of one") from None
    if at != end:
        raise CorruptBatch(f"{end - at} bytes stand behind its records")
    return has_tombstones


class _Record(NamedTuple):
    """What a cleaning must know of a record, and where it stands in its payload."""

    start: int
    end: int
    offset: int
    timestamp_delta: int
    key: bytes | None
    is_tombstone: bool


def _read_records(header: BatchHeader, payload: Payload) -> Iterator[_Record]:
    """Any batch, record by record; not for the hot loops."""
    data, at, end = payload
    try:
        for _ in range(header.record_count):
            start = at
            length, at = _read_unsigned(data, at)
            record_end = at + (length >> 1)
            if record_end > end:
                raise CorruptBatch(f"a record of {length >> 1} bytes does not fit its batch")
            timestamp_delta, at = read_varint(data, at + 1)
            offset_delta, at = _read_unsigned(data, at)
            key_bytes, at = _read_unsigned(data, at)
            key = None if key_bytes == NULL else data[at : at + (key_bytes >> 1)]
            value_at = at if key is None else at + len(key)
            if value_at >= record_end:
                raise CorruptBatch(f"a key of {key_bytes >> 1} bytes does not fit its record")
            if key is not None and len(key) > KEY_BYTES_MAX:
                key = key_digest(key)
            offset = header.base_offset + (offset_delta >> 1)
            yield _Record(start, record_end, offset, timestamp_delta, key, data[value_at] == NULL)
            at = record_end
    except IndexError:
        raise CorruptBatch("its records end in the middle of one") from None
    if at != end:
        raise CorruptBatch(f"{end - at} bytes stand behind its records")


class RecordWithoutKey(InvalidBatch):
    def __init__(self) -> None:
        super().__init__("a compacted topic takes no record without a key")


def check_keys(header: BatchHeader, batch: Bytes, *, message_bytes_max: int) -> None:
    """Raise InvalidBatch unless every record has a key, and its offset is its place.

    Without a key nothing could ever replace it.
    """
    bytes_max = CHECKED_RATIO_MAX * message_bytes_max
    try:
        payload = read_payload(header, bytes(batch), 0, bytes_max=bytes_max)
    except DecompressedTooLarge as error:
        raise InvalidBatch(
            f"{error.reason}: a compacted topic takes {CHECKED_RATIO_MAX} times max.message.bytes"
        ) from error
    check_records(header, payload)


def check_records(header: BatchHeader, payload: Payload) -> None:
    """The loop of `check_keys`: every produced record passes it while clients wait."""
    data, at, end = payload
    try:
        for place in range(0, 2 * header.record_count, 2):  # as a varint that is not decoded
            length = data[at]
            if length < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                length = length & 0x7F | high << 7
                at += 2
            else:
                length, at = _read_unsigned(data, at)
            record_end = at + (length >> 1)
            at += 1  # attributes
            if data[at] > 0x7F:  # timestamp
                start = at
                at += 1
                while data[at] > 0x7F:
                    at += 1
                if at - start >= VARINT_BYTES_MAX:
                    raise CorruptBatch("a varint is longer than ten bytes")
            delta = data[at + 1]
            if delta < 0x80:
                at += 2
            elif (high := data[at + 2]) < 0x80:
                delta = delta & 0x7F | high << 7
                at += 3
            else:
                delta, at = _read_unsigned(data, at + 1)
            if delta != place:
                raise InvalidBatch(f"record {place >> 1} is numbered {delta >> 1}")
            key_bytes = data[at]
            if key_bytes > 0x7F:
                key_bytes, at = _read_unsigned(data, at)
                at -= 1
            if key_bytes == NULL:
                raise RecordWithoutKey
            if at + 1 + (key_bytes >> 1) >= record_end or record_end > end:
                raise CorruptBatch(f"record {place >> 1} does not fit its batch")
            at = record_end
    except IndexError:
        raise CorruptBatch("its records end in the middle of one") from None
    if at != end:
        raise CorruptBatch(f"{end - at} bytes stand behind its records")


class Kept(NamedTuple):
    """What is left of a batch: pieces of its payload, whole records each."""

    pieces: list[tuple[int, int]]
    record_count: int
    newest_delta: int
    has_tombstones: bool


def keep_offsets(
    header: BatchHeader,
    payload: Payload,
    offsets: Container[int],
    *,
    may_have_tombstones: bool,
    must_drop_tombstones: bool,
) -> Kept:
    """Keep the records at these offsets."""
    if not may_have_tombstones:
        return _keep_values(header, payload, offsets)
    return _gather(
        record
        for record in _read_records(header, payload)
        if record.offset in offsets and not (record.is_tombstone and must_drop_tombstones)
    )


def keep_all(header: BatchHeader, payload: Payload) -> Kept:
    """Keep every record, also one without a key: a marker's."""
    return _gather(_read_records(header, payload))


def _gather(records: Iterable[_Record]) -> Kept:
    pieces: list[tuple[int, int]] = []
    newest_deltas: list[int] = []
    has_tombstones = False
    for record in records:
        newest_deltas.append(record.timestamp_delta)
        has_tombstones = has_tombstones or record.is_tombstone
        if pieces and pieces[-1][1] == record.start:
            pieces[-1] = pieces[-1][0], record.end
        else:
            pieces.append((record.start, record.end))
    return Kept(pieces, len(newest_deltas), max(newest_deltas, default=0), has_tombstones)


def _keep_values(header: BatchHeader, payload: Payload, offsets: Container[int]) -> Kept:
    """The same without tombstones: of a record that goes, the length is read and little more."""
    data, at, end = payload
    has_gaps = header.record_count <= header.last_offset_delta  # cleaned before
    pieces: list[tuple[int, int]] = []
    count = newest_delta = 0
    piece_start = piece_end = -1
    try:
        for offset in range(header.base_offset, header.base_offset + header.record_count):
            start = at
            length = data[at]
            if length < 0x80:
                at += 1
            elif (high := data[at + 1]) < 0x80:
                length = length & 0x7F | high << 7
                at += 2
            else:
                length, at = _read_unsigned(data, at)
            record_end = at + (length >> 1)
            if has_gaps:
                offset = _read_offset(header, data, at)
            if offset in offsets:
                timestamp_delta, _ = read_varint(data, at + 1)
                if count == 0 or timestamp_delta > newest_delta:
                    newest_delta = timestamp_delta
                count += 1
                if start != piece_end:
                    if piece_end >= 0:
                        pieces.append((piece_start, piece_end))
                    piece_start = start
                piece_end = record_end
            at = record_end
    except IndexError:
        raise CorruptBatch("its records end in the middle of one") from None
    if at != end:
        raise CorruptBatch(f"{end - at} bytes stand behind its records")
    if piece_end >= 0:
        pieces.append((piece_start, piece_end))
    return Kept(pieces, count, newest_delta, False)


def _read_offset(header: BatchHeader, data: bytes, at: int) -> int:
    """The offset of the record whose attributes are at `at`."""
    at += 1
    while data[at] > 0x7F:
        at += 1
    delta, _ = _read_unsigned(data, at + 1)
    return header.base_offset + (delta >> 1)


def rewrite_batch(
    header: BatchHeader, payload: Payload, kept: Kept, *, horizon_ms: int | None = None
) -> tuple[BatchHeader, bytes]:
    """The batch with only the kept records, and its header.

    A new horizon takes the place of the base timestamp, to which the records' are relative: they
    are written anew then. An old one is that base already.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is None:
        plain = b"".join([payload.data[start:end] for start, end in kept.pieces])
    else:
        plain = _rebased(payload, kept.pieces, base_timestamp - horizon_ms)
        attributes, base_timestamp = attributes | DELETE_HORIZON, horizon_ms
    newest = header.base_timestamp + kept.newest_delta
    new = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp if header.is_log_append_time else newest,
        record_count=kept.record_count,
    )
    return _seal(new, compress(new.codec, plain))


def empty_batch(header: BatchHeader) -> tuple[BatchHeader, bytes]:
    """The batch without records: it holds its offsets, and its producer's last sequence."""
    new = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return _seal(new, b"")


def _seal(header: BatchHeader, body: Bytes) -> tuple[BatchHeader, bytes]:
    batch = bytearray(HEADER_BYTES + len(body))
    HEADER.pack_into(batch, 0, *header._replace(batch_length=len(batch) - SPAN_BYTES, crc=0))
    batch[HEADER_BYTES:] = body
    crc = crc32c(memoryview(batch)[CHECKED_FROM:])
    struct.pack_into(">I", batch, CRC_AT, crc)
    return header._replace(batch_length=len(batch) - SPAN_BYTES, crc=crc), bytes(batch)


def _rebased(payload: Payload, pieces: list[tuple[int, int]], shift_ms: int) -> bytes:
    """The records with their timestamps relative to another base."""
    out, body = bytearray(), bytearray()
    for start, end in pieces:
        at = start
        while at < end:
            length, at = _read_unsigned(payload.data, at)
            record_end = at + (length >> 1)
            delta, rest = read_varint(payload.data, at + 1)
            del body[:]
            body.append(payload.data[at])
            write_varint(body, delta + shift_ms)
            body += payload.data[rest:record_end]
            write_varint(out, len(body))
            out += body
            at = record_end
    return bytes(out)


def _read_unsigned(data: bytes, at: int) -> tuple[int, int]:
    """A varint as it is stored, before zigzag is undone: twice the number, if it is not negative.

    Those of this format are lengths and offset deltas, in which a sign other than that of NULL is
    damage; as a huge length it does not fit its batch.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    result, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, at + 1
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint is longer than ten bytes")
