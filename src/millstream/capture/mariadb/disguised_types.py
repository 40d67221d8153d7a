"""UUIDs and addresses, which the binlog shows as plain bytes. Pure."""

from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from uuid import UUID


def uuid_text(stored: bytes) -> str:
    return str(UUID(bytes=stored))


def inet6_text(stored: bytes) -> str:
    return str(IPv6Address(stored))


def inet4_text(stored: bytes) -> str:
    return str(IPv4Address(stored))


# How each is shown, and its bytes: zeros at the end are not sent.
DISGUISED_TEXTS: Final[Mapping[str, tuple[Callable[[bytes], str], int]]] = {
    "uuid": (uuid_text, 16),
    "inet6": (inet6_text, 16),
    "inet4": (inet4_text, 4),
}
