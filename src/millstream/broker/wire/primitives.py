"""Lengths, varints and the refusals that the compiled readers and writers share.

Unsigned varints carry seven bits a byte, the lowest first; the high bit says that another byte
follows. Nothing here knows a message.
"""

from __future__ import annotations

from millstream.broker.wire.message import Buffer

UVARINT_BYTES_MAX = 5  # of a 32-bit number: 5 * 7 >= 32
UVARINT_MAX = 2**32 - 1
STRING_BYTES_MAX = 0x7FFF  # an int16 in the older form; Kafka holds compact strings to it too


class Invalid(Exception):  # never leaves the codec: it becomes MalformedMessage
    """Why a value cannot be read or written; where it is, the compiled function knows."""


def read_long_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read on after `first`, a byte that said that more follow."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > UVARINT_MAX:
                raise Invalid("a varint exceeds 32 bits")
            return value, position
    raise Invalid(f"a varint is longer than {UVARINT_BYTES_MAX} bytes")


def read_long_string_size(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    size, position = read_long_uvarint(buffer, position, first)
    if size - 1 > STRING_BYTES_MAX:
        raise Invalid(f"a string of {size - 1} bytes exceeds {STRING_BYTES_MAX}")
    return size, position


def skip_tags(buffer: Buffer, position: int, count: int) -> int:
    """Step over `count` tagged fields, none of which is known; return where they end."""
    if count > 127:
        count, position = read_long_uvarint(buffer, position, count)
    last = -1
    for _ in range(count):
        tag, size, position = read_tag(buffer, position, last)
        last = tag
        position += size
    return position


def read_tag(buffer: Buffer, position: int, last: int) -> tuple[int, int, int]:
    """Read a tag and the size of its value, which starts at the position returned."""
    tag = buffer[position]
    position += 1
    if tag > 127:
        tag, position = read_long_uvarint(buffer, position, tag)
    if tag <= last:
        raise Invalid(f"tag {tag} after tag {last}: tags must ascend")
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = read_long_uvarint(buffer, position, size)
    if size > len(buffer) - position:
        raise wrong_size(size, len(buffer) - position)
    return tag, size, position


def wrong_size(size: int, left: int) -> Invalid:
    """The refusal of a size in bytes that is negative (-1 is null) or more than is left."""
    if size == -1:
        return Invalid("null where a value must be")
    if size < 0:
        return Invalid(f"negative size {size}")
    return Invalid(f"{size} bytes announced, {left} left")


def wrong_count(count: int, left: int) -> Invalid:
    if count == -1:
        return Invalid("null where an array must be")
    if count < 0:
        return Invalid(f"negative count {count}")
    return Invalid(f"{count} elements announced, {left} bytes left")


def _uvarint(value: int) -> bytes:
    if value < 1 << 14:  # below 1 << 7 the tables know it
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value > UVARINT_MAX:
        raise Invalid(f"{value} does not fit an unsigned varint")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class UvarintTable(dict[int, bytes]):
    """number -> its varint. The short ones are kept, for a look-up is cheaper than a call."""

    def __missing__(self, value: int) -> bytes:
        return _uvarint(value)


class StringSizeTable(dict[int, bytes]):
    """A compact string's bytes + 1 -> that number as a varint, up to Kafka's limit."""

    def __missing__(self, size: int) -> bytes:
        if size - 1 > STRING_BYTES_MAX:
            raise Invalid(f"a string of {size - 1} bytes exceeds {STRING_BYTES_MAX}")
        return _uvarint(size)


_SHORT = {value: bytes([value]) for value in range(128)}
UVARINT = UvarintTable(_SHORT)
STRING_SIZE = StringSizeTable(_SHORT)
