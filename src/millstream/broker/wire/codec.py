"""Messages to bytes and back. Compiles a reader or writer when a version is first used.

Pure: bytes and values in, values and bytes out. Frames and headers are in `frames`; which versions
the broker offers is decided by the handlers, not here. Whatever bytes come in, the only error that
leaves `decode` is MalformedMessage, and the memory used is bounded by the size of the input.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TypeVar

from millstream.base.errors import Rejected
from millstream.broker.wire.message import Buffer, Message, Reader, Schema, Writer
from millstream.broker.wire.primitives import Invalid
from millstream.broker.wire.reader_source import reader_source
from millstream.broker.wire.source import Source
from millstream.broker.wire.writer_source import writer_source

M = TypeVar("M", bound=Message)

_READ_FAILURES = (Invalid, IndexError, struct.error, UnicodeDecodeError)
_WRITE_FAILURES = (
    Invalid,
    AttributeError,
    TypeError,
    ValueError,  # UnicodeEncodeError is one
    OverflowError,
    struct.error,
)


class MalformedMessage(Rejected):
    """The bytes are not what they claim to be. `position` counts from the start of the buffer."""

    def __init__(self, *, message: str, field: str, position: int, reason: str) -> None:
        where = f", {field}" if field else ""
        super().__init__(f"{message}{where}, at byte {position}: {reason}")
        self.message, self.field, self.position, self.reason = message, field, position, reason


class UnencodableMessage(Rejected):
    """A value does not fit its field: too long, out of range, null or of another type."""

    def __init__(self, *, message: str, field: str, reason: str) -> None:
        super().__init__(f"{message}, {field or 'unknown field'}: {reason}")
        self.message, self.field, self.reason = message, field, reason


class UnknownVersion(Rejected):
    """No such version of the message is described."""

    def __init__(self, *, message: str, version: int, known: range) -> None:
        super().__init__(f"{message} has versions {known[0]} to {known[-1]}, not {version}")
        self.message, self.version, self.known = message, version, known


def decode(message_class: type[M], version: int, buffer: Buffer, position: int = 0) -> M:
    """Read a message that reaches from `position` to the end of `buffer`.

    Records are views into `buffer`, which must not change while they are in use.
    """
    schema = message_class.__schema__
    reader = schema.readers.get(version) or _compile_reader(message_class, version)
    message: M
    message, end = reader(buffer, position)
    if end != len(buffer):
        raise MalformedMessage(
            message=_title(schema, version),
            field="",
            position=end,
            reason=f"{len(buffer) - end} bytes too many",
        )
    return message


def decode_from(
    message_class: type[M], version: int, buffer: Buffer, position: int = 0
) -> tuple[M, int]:
    """Read a message at `position`; return it and the position after it."""
    readers = message_class.__schema__.readers
    reader = readers.get(version) or _compile_reader(message_class, version)
    return reader(buffer, position)


def encode(message: Message, version: int) -> list[Buffer]:
    """The message as chunks to be sent one after another; records are not copied."""
    writers = message.__schema__.writers
    writer = writers.get(version) or _compile_writer(type(message), version)
    parts: list[Buffer] = []
    chunks: list[Buffer] = []
    writer(message, parts, chunks)
    if parts or not chunks:
        try:
            chunks.append(b"".join(parts))
        except TypeError as error:  # a `bytes` field held something else
            raise _unencodable(message.__schema__, version, None, error) from error
    return chunks


def _compile_reader(message_class: type[Message], version: int) -> Reader:
    schema = message_class.__schema__
    _check_version(schema, version)
    source = reader_source(message_class, version)
    source.scope["FAILURES"] = _READ_FAILURES
    source.scope["malformed"] = partial(_malformed, schema, version, source)
    reader = source.compile(f"reader of {_title(schema, version)}", "read")
    schema.readers[version] = reader
    return reader


def _compile_writer(message_class: type[Message], version: int) -> Writer:
    schema = message_class.__schema__
    _check_version(schema, version)
    source = writer_source(message_class, version)
    source.scope["FAILURES"] = _WRITE_FAILURES
    source.scope["unencodable"] = partial(_unencodable, schema, version, source)
    writer = source.compile(f"writer of {_title(schema, version)}", "write")
    schema.writers[version] = writer
    return writer


def _check_version(schema: Schema, version: int) -> None:
    if version not in schema.versions:
        raise UnknownVersion(message=schema.name, version=version, known=schema.versions)


def _malformed(
    schema: Schema, version: int, source: Source, error: Exception, position: int
) -> MalformedMessage:
    reason = "the bytes end within it"
    if isinstance(error, Invalid | UnicodeDecodeError):
        reason = str(error)
    return MalformedMessage(
        message=_title(schema, version),
        field=source.field_at(error),
        position=position,
        reason=reason,
    )


def _unencodable(
    schema: Schema, version: int, source: Source | None, error: Exception
) -> UnencodableMessage:
    return UnencodableMessage(
        message=_title(schema, version),
        field=source.field_at(error) if source else "",
        reason=str(error),
    )


def _title(schema: Schema, version: int) -> str:
    return f"{schema.name} v{version}"
