"""UUIDs and addresses, which the binlog shows as plain bytes. Pure."""

import struct
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Final
from uuid import UUID


def uuid_text(stored: bytes) -> str:
    return str(UUID(bytes=stored))


def inet6_text(stored: bytes) -> str:
    """As MariaDB writes it, which is not as Python does: the longest run of zeros is left out,
    also a run of one word; the last 32 bits are an IPv4 address after 96 zeros, or `ffff`."""
    words = struct.unpack(">8H", stored)
    start, end = _longest_zeros(words)
    if start == 0 and (end == 6 or (end == 5 and words[5] == 0xFFFF)):
        return f"::{'ffff:' if end == 5 else ''}{IPv4Address(stored[12:])}"
    shown = [f"{word:x}" for word in words]
    if start == end:
        return ":".join(shown)
    return f"{':'.join(shown[:start])}::{':'.join(shown[end:])}"


def _longest_zeros(words: Sequence[int]) -> tuple[int, int]:
    """[start, end) of the first of the longest runs; empty without any zero."""
    longest, start = (0, 0), 0
    for place, word in enumerate([*words, 1]):
        if word:
            if place - start > longest[1] - longest[0]:
                longest = (start, place)
            start = place + 1
    return longest


def inet4_text(stored: bytes) -> str:
    return str(IPv4Address(stored))


# How each is shown, and its bytes: zeros at the end are not sent.
DISGUISED_TEXTS: Final[Mapping[str, tuple[Callable[[bytes], str], int]]] = {
    "uuid": (uuid_text, 16),
    "inet6": (inet6_text, 16),
    "inet4": (inet4_text, 4),
}
