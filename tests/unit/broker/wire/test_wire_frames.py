"""Headers: what precedes a message, in which version."""

from __future__ import annotations

import pytest

from millstream.broker.wire import (
    ApiKey,
    Buffer,
    MalformedMessage,
    UnencodableMessage,
    decode_request,
    decode_response,
    decode_versioned,
    encode_request,
    encode_response,
    encode_versioned,
    read_request_header,
)
from millstream.broker.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millstream.broker.wire.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from millstream.broker.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from millstream.broker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

HEARTBEAT = int(ApiKey.HEARTBEAT)  # flexible from version 4 on


def header(api_key: int, version: int, rest: bytes) -> bytes:
    return api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x09" + rest


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("client_id", [None, "", "müller"])
def test_a_request_survives_the_way_to_bytes_and_back(version: int, client_id: str | None) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=4, member_id="m")
    frame = b"".join(encode_request(request, version, 9, client_id))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    read_header, read_request = decode_request(frame[4:])
    assert read_request == request
    assert read_header[:4] == (HEARTBEAT, version, 9, client_id)


def test_the_client_id_keeps_its_older_form_in_flexible_versions() -> None:
    frame = header(HEARTBEAT, 4, b"\x00\x02me" + b"\x00" + b"body")
    assert read_request_header(frame) == (HEARTBEAT, 4, 9, "me", 13)


def test_tags_in_a_request_header_are_skipped() -> None:
    frame = header(HEARTBEAT, 4, b"\xff\xff" + b"\x01\x00\x02ab" + b"body")
    assert frame[read_request_header(frame).body_position :] == b"body"


@pytest.mark.parametrize(("api_key", "version"), [(18, 99), (18, -1 & 0xFFFF), (999, 0)])
def test_an_unknown_version_can_still_be_answered(api_key: int, version: int) -> None:
    read = read_request_header(header(api_key, version, b"\x00\x05??"))
    assert not read.is_known
    assert (read.api_key, read.correlation_id, read.client_id) == (api_key, 9, None)
    with pytest.raises(MalformedMessage, match="not described"):
        decode_request(header(api_key, version, b"\x00\x05??"))


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\x00",
        b"\x00\x03ab",
        b"\xff\xfe",
        b"\x00\x01\xff\x00",
        b"\xff\xff",
        b"\xff\xff\x01\x00\x05",
        b"\xff\xff\x02\x01\x00\x00\x00",
    ],
)
def test_a_broken_request_header_is_rejected(rest: bytes) -> None:
    with pytest.raises(MalformedMessage, match="request header"):
        read_request_header(header(HEARTBEAT, 4, rest))


def test_a_response_header_has_tags_in_flexible_versions() -> None:
    response = HeartbeatResponse(error_code=27)
    (plain,) = encode_response(response, 3, 9)
    (flexible,) = encode_response(response, 4, 9)
    assert plain == bytes.fromhex("0000000a 00000009 00000000 001b")
    assert flexible == bytes.fromhex("0000000c 00000009 00 00000000 001b 00")
    assert decode_response(HeartbeatResponse, 3, plain[4:]) == (9, response)
    assert decode_response(HeartbeatResponse, 4, flexible[4:]) == (9, response)


def test_a_response_to_api_versions_never_has_tags_in_its_header() -> None:
    response = ApiVersionsResponse(error_code=35)
    (frame,) = encode_response(response, 3, 9)
    assert bytes(frame[4:10]) == bytes.fromhex("00000009 0023")
    assert decode_response(ApiVersionsResponse, 3, frame[4:]) == (9, response)


def test_a_request_for_api_versions_has_them() -> None:
    frame = b"".join(encode_request(ApiVersionsRequest(), 3, 9))
    assert frame[4:] == bytes.fromhex("0012 0003 00000009 ffff 00 01 01 00")


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x09"])
def test_a_broken_response_header_is_rejected(frame: bytes) -> None:
    with pytest.raises(MalformedMessage, match="response header"):
        decode_response(HeartbeatResponse, 4, frame)


def test_the_frame_size_counts_records_that_are_not_copied() -> None:
    batches: list[Buffer] = [b"first", memoryview(b"second")]
    partitions = [PartitionData(partition_index=index, records=batches) for index in range(2)]
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    chunks = encode_response(response, 16, 9)
    assert sum(chunk is batch for chunk in chunks for batch in batches) == 4
    frame = b"".join(chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    _, read = decode_response(FetchResponse, 16, frame[4:])
    assert read.responses[0].partitions[1].records == b"firstsecond"


def test_a_struct_is_not_sent_as_a_request() -> None:
    with pytest.raises(ValueError, match="not a request"):
        encode_request(ConsumerProtocolSubscription(), 0, 1)


def test_a_client_id_that_does_not_fit_is_not_encoded() -> None:
    with pytest.raises(UnencodableMessage, match="client_id"):
        encode_request(HeartbeatRequest(), 0, 1, "x" * 32768)


def test_a_subscription_carries_its_version() -> None:
    subscription = ConsumerProtocolSubscription(topics=["orders"])
    data = encode_versioned(subscription, 1)
    assert data[:2] == b"\x00\x01"
    assert decode_versioned(ConsumerProtocolSubscription, data) == (1, subscription)


def test_a_newer_subscription_is_read_as_the_newest_known_one() -> None:
    subscription = ConsumerProtocolSubscription(topics=["orders"], rack_id="r")
    data = b"\x00\x63" + encode_versioned(subscription, 3)[2:] + b"a field of the future"
    assert decode_versioned(ConsumerProtocolSubscription, data) == (99, subscription)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff", b"\x00\x01\x00\x00\x00\x05"])
def test_a_broken_subscription_is_rejected(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_versioned(ConsumerProtocolSubscription, data)
