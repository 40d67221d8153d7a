"""Protobuf values to columns, row by row, by descriptors: no generated code is needed.

A field that was not set is null if Protobuf can tell (optional, message, oneof), and else its
default. Protobuf itself takes many wrong bytes for fields that it does not know: only what it
refuses is bad here.
"""

from collections.abc import Callable
from datetime import UTC
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.schemas.declaration import Declared
from millstream.schemas.protobuf_schema import (
    TIMESTAMP,
    WRAPPERS,
    DecodeError,
    Descriptor,
    FieldDescriptor,
    GetMessageClass,
    is_map,
    message_descriptor,
    readable_schema,
)
from millstream.values.confluent_frame import take_message_path, unframe
from millstream.values.decoder import Decoded
from millstream.values.row_columns import Row
from millstream.values.row_decoding import decode_rows
from millstream.values.row_fitting import row_fitter
from millstream.values.unfit import Unfit

Read = Callable[[Any], Any]


class ProtobufDecoder:
    """`files` is a FileDescriptorSet, `message` a full name in it. `framed` values have a header.

    The schema may leave fields out, and widen them; without one, all are there.
    """

    def __init__(
        self, files: bytes, message: str, schema: Declared | None = None, *, framed: bool = False
    ) -> None:
        descriptor = message_descriptor(files, message)
        self._files, self._message, self._framed = files, message, framed
        self.schema = readable_schema(descriptor, schema)
        self.arrow_schema = nullable_arrow_schema(self.schema)
        self._class = GetMessageClass(descriptor)
        self._read = _message_reader(descriptor)
        self._fit = row_fitter(self.schema, passes_over_extra=True)

    def __reduce__(self) -> tuple[Any, ...]:
        """By what it was made of: Spark sends it to its workers."""
        made = partial(ProtobufDecoder, framed=self._framed)
        return made, (self._files, self._message, self.schema)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        return decode_rows(values, self._row, self.arrow_schema)

    def _row(self, value: bytes) -> Row:
        content = take_message_path(unframe(value)[1])[1] if self._framed else value
        message = self._class()
        try:
            message.ParseFromString(content)
        except DecodeError as error:
            raise Unfit(f"not a {self._message}: {error}") from None
        return self._fit(self._read(message))


def _message_reader(descriptor: Descriptor) -> Read:
    if descriptor.full_name == TIMESTAMP:
        return _read_timestamp
    if descriptor.full_name in WRAPPERS:
        return lambda message: message.value
    parts = [(field.name, field.has_presence, _field_reader(field)) for field in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {
            name: None
            if has_presence and not message.HasField(name)
            else read_one(getattr(message, name))
            for name, has_presence, read_one in parts
        }

    return read


def _read_timestamp(message: Any) -> Any:
    try:
        return message.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise Unfit(f"a time out of range: {message.seconds} s since 1970") from None


def _field_reader(field: FieldDescriptor) -> Read:
    if is_map(field):
        read_value = _single_reader(field.message_type.fields_by_name["value"])
        return lambda found: {key: read_value(found[key]) for key in found}
    read_one = _single_reader(field)
    return (lambda found: [read_one(one) for one in found]) if field.is_repeated else read_one


def _single_reader(field: FieldDescriptor) -> Read:
    if field.message_type is not None:
        return _message_reader(field.message_type)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    return lambda found: found
