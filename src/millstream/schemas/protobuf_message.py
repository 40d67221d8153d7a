"""What an application gives as `message=`: a class of protoc's, or descriptors and a name.

Either becomes a value that goes to any process, as the class itself cannot. Needs protobuf.
"""

from os import PathLike
from pathlib import Path
from typing import TypeAlias

from millstream.base.declared import ProtobufMessage
from millstream.base.schema import BadSchema, Schema
from millstream.schemas.declaration import Declared
from millstream.schemas.protobuf_schema import (
    Descriptor,
    descriptor_files,
    message_descriptor,
    readable_schema,
)

Files: TypeAlias = bytes | str | PathLike[str]
# `type` is a generated class; else a FileDescriptorSet, or its file, and a full name in it.
GivenMessage: TypeAlias = type | tuple[Files, str] | ProtobufMessage


def message_of(given: GivenMessage) -> ProtobufMessage:
    match given:
        case ProtobufMessage():
            return given
        case (files, str(name)):
            return ProtobufMessage(name=name, files=_content(files))
    descriptor = getattr(given, "DESCRIPTOR", None)
    if not isinstance(descriptor, Descriptor):
        raise BadSchema(
            f"message={given!r} is no message of Protobuf: give a generated class, or "
            "('shop.descriptors', 'shop.Order')"
        )
    return ProtobufMessage(name=descriptor.full_name, files=descriptor_files(descriptor))


def message_schema(message: ProtobufMessage, wanted: Declared | None = None) -> Schema:
    """The columns of the message; or `wanted`, which may leave fields out and widen them."""
    descriptor = message_descriptor(message.files, message.name)
    schema, known = readable_schema(descriptor, wanted), descriptor.fields_by_name
    for field in schema:
        if field.name not in known:
            raise BadSchema(f"{message.name} has no field {field.name} ({', '.join(known)})")
    return schema


def _content(files: Files) -> bytes:
    if isinstance(files, bytes):
        return files
    try:
        return Path(files).read_bytes()
    except OSError as error:
        raise BadSchema(f"the descriptors in {files} cannot be read: {error.strerror}") from None
