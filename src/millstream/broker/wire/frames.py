"""Requests and responses as they travel: a header before each message, a size before each frame.

    request    size int32, api_key int16, api_version int16, correlation_id int32,
               client_id (nullable, int16 size), tags from the API's flexible versions on; message
    response   size int32, correlation_id int32, tags from the flexible versions on; message

Two exceptions, both so that an old broker and a new client can meet: `client_id` keeps its older
form in every version, and a response to ApiVersions never has tags in its header (KIP-511).
Frames given to the functions here start after the size; frames that they make start with it.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import NamedTuple, TypeVar

from millstream.broker.wire.codec import (
    MalformedMessage,
    UnencodableMessage,
    decode,
    decode_from,
    encode,
)
from millstream.broker.wire.message import Buffer, Message
from millstream.broker.wire.messages import APIS, REQUESTS, ApiKey
from millstream.broker.wire.primitives import STRING_BYTES_MAX, Invalid, skip_tags, wrong_size

M = TypeVar("M", bound=Message)

_REQUEST_HEADER = Struct(">hhih")  # with the client id's size
_FRAME_AND_CORRELATION = Struct(">ii")
_FRAME_SIZE = Struct(">i")
_CORRELATION = Struct(">i")
_VERSION = Struct(">h")

_NO_TAGS = b"\0"
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RequestHeader(NamedTuple):
    """The head of a request. Of an API or version that is not described, only the numbers."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int  # where the message starts; -1 if the version is not described

    @property
    def is_known(self) -> bool:
        return self.body_position >= 0


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read what precedes the message.

    A header of an unknown API or version is no error here, for it can be answered.
    """
    position = 0
    try:
        api_key, api_version, correlation_id, size = _REQUEST_HEADER.unpack_from(frame, 0)
        api = APIS.get(api_key)
        if api is None or not api.version_first <= api_version <= api.version_last:
            return RequestHeader(api_key, api_version, correlation_id, None, -1)
        position = _REQUEST_HEADER.size
        client_id = None
        if size != -1:
            end = position + size
            if not position <= end <= len(frame):
                raise wrong_size(size, len(frame) - position)
            client_id = str(frame[position:end], "utf-8")
            position = end
        if api.flexible_from is not None and api_version >= api.flexible_from:
            position = _read_tags(frame, position)
    except (Invalid, IndexError, StructError, UnicodeDecodeError) as error:
        raise _malformed_header("request header", position, error) from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def decode_request(frame: Buffer) -> tuple[RequestHeader, Message]:
    """A whole request, of a version that is described."""
    header = read_request_header(frame)
    if not header.is_known:
        reason = f"API {header.api_key} v{header.api_version} is not described"
        raise MalformedMessage(message="request", field="", position=0, reason=reason)
    return header, decode(REQUESTS[header.api_key], header.api_version, frame, header.body_position)


def encode_response(message: Message, version: int, correlation_id: int) -> list[Buffer]:
    """A whole frame in chunks: one, or more if there are records, which are not copied."""
    chunks = encode(message, version)
    schema = message.__schema__
    has_tags = version in schema.flexible and schema.api_key != _API_VERSIONS
    header_bytes = 5 if has_tags else 4
    body_bytes = len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))
    header = _FRAME_AND_CORRELATION.pack(header_bytes + body_bytes, correlation_id)
    chunks[0] = header + _NO_TAGS + chunks[0] if has_tags else header + chunks[0]
    return chunks


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None = None
) -> list[Buffer]:
    """A whole frame in chunks, as a client sends it."""
    chunks = encode(message, version)
    schema = message.__schema__
    if schema.api_key is None:
        raise ValueError(f"{schema.name} is not a request")
    name = b"" if client_id is None else client_id.encode()
    name_bytes = -1 if client_id is None else len(name)
    if name_bytes > STRING_BYTES_MAX:
        reason = f"{name_bytes} bytes, at most {STRING_BYTES_MAX} are allowed"
        raise UnencodableMessage(message="request header", field="client_id", reason=reason)
    header = _REQUEST_HEADER.pack(schema.api_key, version, correlation_id, name_bytes) + name
    if version in schema.flexible:
        header += _NO_TAGS
    size = len(header) + sum(map(len, chunks))
    return [_FRAME_SIZE.pack(size) + header, *chunks]


def decode_response(message_class: type[M], version: int, frame: Buffer) -> tuple[int, M]:
    """The correlation id and the message of a whole response."""
    schema = message_class.__schema__
    position = _CORRELATION.size
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame, 0)
        if version in schema.flexible and schema.api_key != _API_VERSIONS:
            position = _read_tags(frame, position)
    except (Invalid, IndexError, StructError) as error:
        raise _malformed_header("response header", position, error) from None
    return correlation_id, decode(message_class, version, frame, position)


def encode_versioned(message: Message, version: int) -> bytes:
    """The version and the message, as consumers put it into a group's opaque bytes."""
    return b"".join([_VERSION.pack(version), *encode(message, version)])


def decode_versioned(message_class: type[M], data: Buffer) -> tuple[int, M]:
    """The version and the message. A newer version is read as the newest known one.

    Newer versions only add at the end, so what is too much is left unread.
    """
    known = message_class.__schema__.versions
    try:
        (version,) = _VERSION.unpack_from(data, 0)
    except StructError as error:
        raise _malformed_header(message_class.__schema__.name, 0, error) from None
    if version < known[0]:
        reason = f"version {version} does not exist"
        name = message_class.__schema__.name
        raise MalformedMessage(message=name, field="version", position=0, reason=reason)
    message, _ = decode_from(message_class, min(version, known[-1]), data, _VERSION.size)
    return version, message


def _read_tags(frame: Buffer, position: int) -> int:
    tag_count = frame[position]
    position += 1
    return skip_tags(frame, position, tag_count) if tag_count else position


def _malformed_header(message: str, position: int, error: Exception) -> MalformedMessage:
    is_ours = isinstance(error, Invalid | UnicodeDecodeError)
    reason = str(error) if is_ours else "the bytes end within it"
    return MalformedMessage(message=message, field="", position=position, reason=reason)
