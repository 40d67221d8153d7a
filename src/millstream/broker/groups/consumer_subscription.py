"""The topics in a member's subscription, read from the bytes that its assignor wrote.

The head of every version of ConsumerProtocolSubscription, big-endian; what follows it belongs to
the assignor, and to versions yet to come, and is not looked at:

    version      int16    >= 0
    topic_count  int32    then, for each topic:
      length       int16
      name         bytes  UTF-8
"""

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE = "consumer"

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def topics_of(subscription: bytes) -> frozenset[str] | None:
    """None if these bytes are not a consumer's subscription."""
    try:
        return frozenset(_read_topics(subscription))
    except (struct.error, ValueError):
        return None


def _read_topics(subscription: bytes) -> Iterable[str]:
    version, topic_count = _HEAD.unpack_from(subscription)
    if version < 0 or topic_count < 0:
        raise ValueError("negative version or count")
    position = _HEAD.size
    for _ in range(topic_count):  # a count that lies ends at the end of the bytes
        (length,) = _LENGTH.unpack_from(subscription, position)
        start = position + _LENGTH.size
        position = start + length
        if length < 0 or position > len(subscription):
            raise ValueError("a name reaches past the end")
        yield subscription[start:position].decode()
