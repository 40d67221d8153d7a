"""Our codec against kio's: every API, every version, both directions.

Random messages must encode to the same bytes as kio's writer makes of them; our decoder must read
these bytes back to equal values, and kio's reader must read ours. The messages are drawn by a
`Random`, as Hypothesis' own strategies would take minutes for so many; Hypothesis gives the seeds.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import string
from pkgutil import resolve_name
from random import Random
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.static.constants import EntityType

from millstream.broker.wire import (
    APIS,
    REQUESTS,
    RESPONSES,
    Message,
    decode,
    encode,
    encode_request,
    encode_response,
    read_request_header,
)
from millstream.broker.wire.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from millstream.broker.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)

EPOCH = datetime.datetime.fromtimestamp(0, tz=datetime.UTC)
ALPHABET = string.ascii_letters + string.digits + "._-äß€✓𝄞\0"
# Around the places where a varint grows by a byte.
SIZES = (0, 1, 2, 5, 20, 126, 127, 128, 300)
INTS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}

ALL_MESSAGES: list[tuple[str, EntityType, type[Message]]] = [
    *[(api.module, EntityType.request, REQUESTS[key]) for key, api in APIS.items()],
    *[(api.module, EntityType.response, RESPONSES[key]) for key, api in APIS.items()],
    ("consumer_protocol_assignment", EntityType.data, ConsumerProtocolAssignment),
    ("consumer_protocol_subscription", EntityType.data, ConsumerProtocolSubscription),
]


def kio_class(module: str, entity_type: EntityType, version: int) -> Any:
    paths: Any = schema_name_map[module]
    return resolve_name(paths[version][entity_type])


@pytest.mark.parametrize(
    ("module", "entity_type", "message_class"),
    ALL_MESSAGES,
    ids=[message_class.__name__ for _, _, message_class in ALL_MESSAGES],
)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_bytes_are_the_same_as_kios(
    module: str, entity_type: EntityType, message_class: type[Message], seed: int
) -> None:
    known: Any = schema_name_map[module]
    assert set(known) == set(message_class.__schema__.versions)
    for version in message_class.__schema__.versions:
        theirs_class = kio_class(module, entity_type, version)
        ours, theirs = random_pair(message_class, theirs_class, Random(seed))
        their_bytes = kio_bytes(theirs)
        assert b"".join(encode(ours, version)) == their_bytes, f"{ours} v{version}"
        assert decode(message_class, version, their_bytes) == ours
        assert decode(message_class, version, memoryview(their_bytes)) == ours
        assert entity_reader(theirs_class)(their_bytes, 0) == (theirs, len(their_bytes))


@pytest.mark.parametrize("api_key", list(APIS))
@pytest.mark.parametrize("client_id", [None, "", "rdkafka"])
def test_request_headers_are_the_same_as_kios(api_key: int, client_id: str | None) -> None:
    message = REQUESTS[api_key]()
    for version in message.__schema__.versions:
        theirs_class = kio_class(APIS[api_key].module, EntityType.request, version)
        header = theirs_class.__header_schema__(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=-7,
            client_id=client_id,
        )
        frame = b"".join(encode_request(message, version, -7, client_id))
        their_header = kio_bytes(header)
        assert frame == with_size(their_header + b"".join(encode(message, version)))
        ours = read_request_header(frame[4:])
        assert ours == (api_key, version, -7, client_id, len(their_header))


@pytest.mark.parametrize("api_key", list(APIS))
def test_response_headers_are_the_same_as_kios(api_key: int) -> None:
    message = RESPONSES[api_key]()
    for version in message.__schema__.versions:
        theirs_class = kio_class(APIS[api_key].module, EntityType.response, version)
        header = theirs_class.__header_schema__(correlation_id=7)
        frame = b"".join(encode_response(message, version, 7))
        assert frame == with_size(kio_bytes(header) + b"".join(encode(message, version)))


def kio_bytes(entity: Any) -> bytes:
    with io.BytesIO() as buffer:
        entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue()


def with_size(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def random_pair(ours_class: type[Message], theirs_class: Any, random: Random) -> tuple[Any, Any]:
    """One message twice: in our class and in kio's."""
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    classes = {one.name: one.kind for one in ours_class.__schema__.fields}
    for one in dataclasses.fields(theirs_class):
        name = our_name(one)
        ours[name], theirs[one.name] = random_value(one, classes[name], random)
    return ours_class(**ours), theirs_class(**theirs)


def our_name(one: dataclasses.Field[Any]) -> str:
    is_duration = one.metadata.get("kafka_type", "").startswith("timedelta")
    return f"{one.name}_ms" if is_duration and not one.name.endswith("_ms") else one.name


def random_value(one: dataclasses.Field[Any], kind: Any, random: Random) -> tuple[Any, Any]:
    annotation, is_nullable = without_none(one.type)
    is_tagged = "tag" in one.metadata
    is_array = get_origin(annotation) is tuple
    if is_tagged and random.random() < 0.4:
        default = get_tagged_field_default(one)
        return our_default(default, kind, is_array), default
    kafka_type = one.metadata.get("kafka_type")
    if is_nullable and kafka_type != "uuid" and random.random() < 0.3:
        return (-1 if kafka_type == "datetime_i64" else None), None
    if is_array:
        return random_array(get_args(annotation)[0], kafka_type, kind, random)
    ours, theirs = random_single(annotation, kafka_type, kind, random)
    if is_tagged and theirs == get_tagged_field_default(one):
        ours = our_default(theirs, kind, is_array=False)
    return ours, theirs


def our_default(default: Any, kind: Any, is_array: bool) -> Any:
    """What we make of a tagged field that is not sent."""
    if is_array:
        return default if default is None else []
    if isinstance(kind, type):
        return None
    return bytes(16) if kind == "uuid" else default


def random_array(
    element: Any, kafka_type: str | None, kind: Any, random: Random
) -> tuple[list[Any], tuple[Any, ...]]:
    is_long = kafka_type is not None and random.random() < 0.1
    count = random.choice((127, 128)) if is_long else random.choice((0, 1, 2, 3))
    element, _ = without_none(element)
    pairs = [random_single(element, kafka_type, kind, random) for _ in range(count)]
    return [ours for ours, _ in pairs], tuple([theirs for _, theirs in pairs])


def random_single(
    annotation: Any, kafka_type: str | None, kind: Any, random: Random
) -> tuple[Any, Any]:
    if dataclasses.is_dataclass(annotation):
        return random_pair(kind, annotation, random)
    match kafka_type:
        case "bool":
            value: Any = random.random() < 0.5
        case "int8" | "int16" | "int32" | "int64":
            value = random_int(INTS[kafka_type], random)
        case "uint16":
            value = random.choice((0, 1, 2**16 - 1, random.randrange(2**16)))
        case "float64":
            value = random.choice((0.0, -1.5, random.uniform(-1e300, 1e300)))
        case "string":
            value = "".join(random.choices(ALPHABET, k=random.choice(SIZES)))
        case "bytes" | "records":
            value = random.randbytes(random.choice(SIZES))
        case "uuid":
            value = random.choice((bytes(16), random.randbytes(16)))
            return value, None if value == bytes(16) else UUID(bytes=value)
        case "error_code":
            code = random.choice(list(ErrorCode))
            return int(code), code
        case "timedelta_i32" | "timedelta_i64":
            value = random_int(32, random)
            return value, datetime.timedelta(milliseconds=value)
        case "datetime_i64":
            seconds = random.choice((0, 1, random.randrange(2**32)))
            return seconds * 1000, EPOCH + datetime.timedelta(seconds=seconds)
        case _:
            raise AssertionError(f"unknown type {kafka_type}")
    return value, value


def random_int(bits: int, random: Random) -> int:
    bound = 2 ** (bits - 1)
    return random.choice((0, 1, -1, bound - 1, -bound, random.randrange(-bound, bound)))


def without_none(annotation: Any) -> tuple[Any, bool]:
    members = [one for one in get_args(annotation) if one is not type(None)]
    if type(None) in get_args(annotation):
        return members[0], True
    return annotation, False
