"""The Kafka wire protocol as values: frames in, messages out, and the way back.

`messages/` describes every message (generated), `message` is the language of these descriptions,
`codec` compiles them, `frames` adds headers. Pure: no socket and no clock; it decides nothing.
"""

from millstream.broker.wire.codec import (
    MalformedMessage,
    UnencodableMessage,
    UnknownVersion,
    decode,
    decode_from,
    encode,
)
from millstream.broker.wire.error_codes import ErrorCode
from millstream.broker.wire.frames import (
    RequestHeader,
    decode_request,
    decode_response,
    decode_versioned,
    encode_request,
    encode_response,
    encode_versioned,
    read_request_header,
)
from millstream.broker.wire.message import ZERO_UUID, Buffer, Message, Records
from millstream.broker.wire.messages import APIS, REQUESTS, RESPONSES, ApiKey

__all__ = [
    "APIS",
    "REQUESTS",
    "RESPONSES",
    "ZERO_UUID",
    "ApiKey",
    "Buffer",
    "ErrorCode",
    "MalformedMessage",
    "Message",
    "Records",
    "RequestHeader",
    "UnencodableMessage",
    "UnknownVersion",
    "decode",
    "decode_from",
    "decode_request",
    "decode_response",
    "decode_versioned",
    "encode",
    "encode_request",
    "encode_response",
    "encode_versioned",
    "read_request_header",
]
