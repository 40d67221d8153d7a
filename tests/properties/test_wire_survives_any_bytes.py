"""Whatever bytes arrive, decoding gives a message or MalformedMessage, in bounded memory.

Every message in every version is fed noise, and valid messages that were cut, had bytes replaced,
or had bytes put in. A message also survives the way to bytes and back.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.wire import (
    REQUESTS,
    RESPONSES,
    MalformedMessage,
    Message,
    decode,
    decode_request,
    encode,
)

ALL_MESSAGES = [*REQUESTS.values(), *RESPONSES.values()]

# An entry of AlterClientQuotas takes three bytes (two empty arrays, no tags) and becomes an object
# of two slots, two lists and a place in a list: 48 + 2 * 56 + 8 = 168 bytes, 56 for one.
MEMORY_PER_BYTE_MAX = 64

# Bytes with a meaning: null, varints that go on, the largest and smallest numbers.
NASTY = (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b"\xff" * 5, b"\x7f\xff\xff\xff", b"\x80" * 9)


@pytest.mark.parametrize("message_class", ALL_MESSAGES, ids=lambda one: one.__name__)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_damaged_messages_are_read_or_rejected(message_class: type[Message], seed: int) -> None:
    random = Random(seed)
    for version in message_class.__schema__.versions:
        message = random_message(message_class, version, random)
        data = b"".join(encode(message, version))
        assert b"".join(encode(decode(message_class, version, data), version)) == data
        for damaged in (cut(data, random), *[mutated(data, random) for _ in range(4)]):
            decode_or_reject(message_class, version, damaged)


@pytest.mark.parametrize("message_class", ALL_MESSAGES, ids=lambda one: one.__name__)
@settings(max_examples=25, deadline=None)
@given(data=st.binary(max_size=200))
def test_noise_is_read_or_rejected(message_class: type[Message], data: bytes) -> None:
    for version in message_class.__schema__.versions:
        decode_or_reject(message_class, version, data)


@given(
    api_key=st.integers(-1, 100),
    version=st.integers(-1, 20),
    rest=st.binary(max_size=100),
)
def test_frames_of_noise_are_read_or_rejected(api_key: int, version: int, rest: bytes) -> None:
    frame = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + rest
    with suppress_malformed(frame):
        decode_request(frame)


@pytest.mark.parametrize("message_class", list(REQUESTS.values()), ids=lambda one: one.__name__)
def test_memory_is_bounded_by_the_bytes_received(message_class: type[Message]) -> None:
    for version in message_class.__schema__.versions:
        for data in densest(message_class, version):
            decode(message_class, version, data)  # compiles, outside of the measurement
            tracemalloc.start()
            try:
                decode(message_class, version, data)
                _, peak_bytes = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak_bytes <= MEMORY_PER_BYTE_MAX * len(data)


def densest(message_class: type[Message], version: int) -> Iterator[bytes]:
    """Messages that are nothing but one long array of the smallest structs."""
    for one in message_class.__schema__.fields:
        if one.is_array and one.is_in(version) and isinstance(one.kind, type):
            elements = [one.kind()] * 500
            yield b"".join(encode(message_class(**{one.name: elements}), version))


def decode_or_reject(message_class: type[Message], version: int, data: bytes) -> None:
    with suppress_malformed(data):
        decode(message_class, version, data)


@contextmanager
def suppress_malformed(data: bytes) -> Iterator[None]:
    """Lets MalformedMessage pass, if it names a place within the bytes."""
    position = 0
    try:
        yield
    except MalformedMessage as error:
        position = error.position
    assert 0 <= position <= len(data)


def cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def mutated(data: bytes, random: Random) -> bytes:
    place = random.randrange(len(data) + 1)
    taken = random.choice((0, 1, 4))
    return data[:place] + random.choice(NASTY) + data[place + taken :]


def random_message(message_class: type[Message], version: int, random: Random) -> Message:
    values: dict[str, Any] = {}
    for one in message_class.__schema__.fields:
        if not one.is_in(version):
            continue
        if one.is_nullable_in(version) and random.random() < 0.3:
            values[one.name] = None
        elif one.is_array:
            count = random.randrange(4)
            values[one.name] = [random_value(one.kind, version, random) for _ in range(count)]
        else:
            values[one.name] = random_value(one.kind, version, random)
    return message_class(**values)


def random_value(kind: str | type[Message], version: int, random: Random) -> Any:
    match kind:
        case "bool":
            return random.random() < 0.5
        case "float64":
            return random.random()
        case "string":
            return "x" * random.choice((0, 3, 130))
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 3, 130)))
        case "uuid":
            return random.randbytes(16)
        case str():
            return random.randrange(128)
        case _:
            return random_message(kind, version, random)
