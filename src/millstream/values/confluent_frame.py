"""The header that Confluent's serializers put before a value. Pure.

    magic      uint8    0
    schema_id  uint32   big-endian

Protobuf has more: the path to the message among those of its file, as zigzag varints, the count
first; a lone 0 is short for [0], the first message.
"""

import struct

from millstream.values.unfit import Unfit

HEADER = struct.Struct(">BI")
MAGIC = 0
VARINT_BYTES_MAX = 5
MESSAGE_PATH_MAX = 64


def frame(schema_id: int, content: bytes) -> bytes:
    return HEADER.pack(MAGIC, schema_id) + content


def unframe(value: bytes) -> tuple[int, bytes]:
    """The schema's id, and what follows the header."""
    if len(value) < HEADER.size:
        raise Unfit(f"{len(value)} bytes are too few for a header with a schema id")
    magic, schema_id = HEADER.unpack_from(value)
    if magic != MAGIC:
        raise Unfit(f"the first byte is {magic}, not 0: there is no header with a schema id")
    return schema_id, value[HEADER.size :]


def take_message_path(content: bytes) -> tuple[list[int], bytes]:
    """Which message of its file a Protobuf value is, and the message."""
    count, at = _varint(content, 0)
    if not 0 <= count <= MESSAGE_PATH_MAX:
        raise Unfit(f"a path of {count} steps to a message")
    if count == 0:
        return [0], content[at:]
    path = []
    for _ in range(count):
        step, at = _varint(content, at)
        path.append(step)
    return path, content[at:]


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(VARINT_BYTES_MAX):
        if at + shift >= len(content):
            break
        byte = content[at + shift]
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + shift + 1
    raise Unfit("the path to the message is cut off")
