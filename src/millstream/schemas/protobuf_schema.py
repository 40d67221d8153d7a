"""Schemas from Protobuf's descriptors, and finding a message among them. Needs protobuf.

Every field may be null, so that later ones can be added; elements of lists and maps may not, as
Protobuf has no word for it. uint64 is DECIMAL(20,0), an enum the name of its value, a Timestamp a
TIMESTAMP, and a wrapper (StringValue, ...) what it wraps. Does not take messages that contain
themselves.
"""

from collections.abc import Iterator
from typing import Any

from millstream.base.schema import (
    BadSchema,
    DataType,
    DecimalOf,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Schema,
    Struct,
)
from millstream.schemas.compatibility import UnreadableTopic, changes_for_reader
from millstream.schemas.declaration import Declared, schema_of
from millstream.schemas.library_missing import LibraryMissing

try:
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass
except ModuleNotFoundError:
    raise LibraryMissing(library="protobuf", extra="protobuf") from None

__all__ = [
    "TIMESTAMP",
    "WRAPPERS",
    "DecodeError",
    "Descriptor",
    "FieldDescriptor",
    "GetMessageClass",
    "descriptor_files",
    "is_map",
    "message_descriptor",
    "readable_schema",
    "schema_from_descriptor",
]

TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = {
    f"google.protobuf.{kind}Value"
    for kind in ["Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes"]
}
SCALARS: dict[int, DataType] = {
    FieldDescriptor.TYPE_DOUBLE: Scalar.DOUBLE,
    FieldDescriptor.TYPE_FLOAT: Scalar.FLOAT,
    FieldDescriptor.TYPE_INT64: Scalar.BIGINT,
    FieldDescriptor.TYPE_UINT64: DecimalOf(20, 0),
    FieldDescriptor.TYPE_INT32: Scalar.INT,
    FieldDescriptor.TYPE_FIXED64: DecimalOf(20, 0),
    FieldDescriptor.TYPE_FIXED32: Scalar.BIGINT,
    FieldDescriptor.TYPE_BOOL: Scalar.BOOLEAN,
    FieldDescriptor.TYPE_STRING: Scalar.STRING,
    FieldDescriptor.TYPE_BYTES: Scalar.BINARY,
    FieldDescriptor.TYPE_UINT32: Scalar.BIGINT,
    FieldDescriptor.TYPE_ENUM: Scalar.STRING,
    FieldDescriptor.TYPE_SFIXED32: Scalar.INT,
    FieldDescriptor.TYPE_SFIXED64: Scalar.BIGINT,
    FieldDescriptor.TYPE_SINT32: Scalar.INT,
    FieldDescriptor.TYPE_SINT64: Scalar.BIGINT,
}


def is_map(field: FieldDescriptor) -> bool:
    message = field.message_type
    return bool(field.is_repeated and message and message.GetOptions().map_entry)


def message_descriptor(files: bytes, name: str) -> Descriptor:
    """The message `name` of a FileDescriptorSet (`protoc --include_imports -o`)."""
    try:
        parsed = descriptor_pb2.FileDescriptorSet.FromString(files)
        pool = descriptor_pool.DescriptorPool()
        for file in parsed.file:
            pool.Add(file)
        return pool.FindMessageTypeByName(name)
    except (DecodeError, TypeError) as error:
        raise BadSchema(f"not a FileDescriptorSet with its imports: {error}") from None
    except KeyError:
        known = ", ".join(_message_names(parsed))
        raise BadSchema(f"no message is named {name!r}; there are {known}") from None


def _message_names(files: Any) -> Iterator[str]:
    for file in files.file:
        prefix = f"{file.package}." if file.package else ""
        yield from (prefix + message.name for message in file.message_type)


def descriptor_files(descriptor: Descriptor) -> bytes:
    """The FileDescriptorSet of a message: its file, after all that it imports."""
    found = descriptor_pb2.FileDescriptorSet()
    _add_file(descriptor.file, found, set())
    content: bytes = found.SerializeToString(deterministic=True)
    return content


def _add_file(file: Any, found: Any, seen: set[str]) -> None:
    if file.name in seen:
        return
    seen.add(file.name)
    for imported in file.dependencies:
        _add_file(imported, found, seen)
    file.CopyToProto(found.file.add())


def schema_from_descriptor(descriptor: Descriptor) -> Schema:
    return _struct(descriptor, around=())


def readable_schema(descriptor: Descriptor, declared: Declared | None) -> Schema:
    """What is declared, if it can be read of the message: all of its fields if nothing is."""
    whole = schema_from_descriptor(descriptor)
    if declared is None:
        return whole
    wanted = schema_of(declared)
    changes = changes_for_reader(whole, wanted)
    if changes:
        raise UnreadableTopic(topic=descriptor.full_name, version=1, changes=changes)
    return wanted


def _struct(descriptor: Descriptor, *, around: tuple[str, ...]) -> Struct:
    if descriptor.full_name in around:
        raise BadSchema(f"the message {descriptor.full_name} contains itself: columns are finite")
    inner = (*around, descriptor.full_name)
    return Struct(tuple(Field(one.name, _type(one, around=inner)) for one in descriptor.fields))


def _type(field: FieldDescriptor, *, around: tuple[str, ...]) -> DataType:
    if is_map(field):
        key, value = field.message_type.fields
        return MapOf(_single(key, around=around), _single(value, around=around), False)
    single = _single(field, around=around)
    return ListOf(single, element_nullable=False) if field.is_repeated else single


def _single(field: FieldDescriptor, *, around: tuple[str, ...]) -> DataType:
    message = field.message_type
    if message is None:
        return SCALARS[field.type]
    if message.full_name == TIMESTAMP:
        return Scalar.TIMESTAMP
    if message.full_name in WRAPPERS:
        return SCALARS[message.fields_by_name["value"].type]
    return _struct(message, around=around)
