"""Which partition a stream is in: as every Kafka client would place its name. Pure."""

from functools import lru_cache
from typing import Final
from unicodedata import category

from millstream.base.errors import Rejected

STREAM_NAME_BYTES_MAX = 1_000
SHOWN_LENGTH_MAX = 100
PLACES_KNOWN_MAX = 100_000

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF


class BadStreamName(Rejected):
    def __init__(self, *, stream: object, reason: str) -> None:
        shown = repr(stream)
        shown = shown if len(shown) <= SHOWN_LENGTH_MAX else shown[:SHOWN_LENGTH_MAX] + "..."
        super().__init__(f"{shown} is no name for a stream: {reason}")
        self.stream, self.reason = stream, reason


@lru_cache(PLACES_KNOWN_MAX)
def partition_of(name: str, partitions: int) -> int:
    """Of a stream, or of a scope. Raises BadStreamName."""
    return (murmur2(stream_key(name)) & 0x7FFFFFFF) % partitions


def stream_key(name: str) -> bytes:
    """The record's key. Any text will do that can be written as UTF-8, in one line."""
    if not isinstance(name, str) or not name:
        raise BadStreamName(stream=name, reason="it must be a text that is not empty")
    if any(category(letter) in ("Cc", "Cs") for letter in name):
        raise BadStreamName(stream=name, reason="it has control characters, or half of a letter")
    key = name.encode()
    if len(key) > STREAM_NAME_BYTES_MAX:
        reason = f"it has {len(key):,} bytes, and may have {STREAM_NAME_BYTES_MAX:,}"
        raise BadStreamName(stream=name, reason=reason)
    return key


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's default partitioner."""
    hashed = _SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        hashed = hashed * _MULTIPLIER & _WORD ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _WORD
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _WORD
    return hashed ^ hashed >> 15
