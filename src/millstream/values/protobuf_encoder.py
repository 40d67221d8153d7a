"""Rows to Protobuf, by descriptors: no generated code is needed."""

from typing import Any

from millstream.schemas.protobuf_schema import (
    TIMESTAMP,
    WRAPPERS,
    GetMessageClass,
    is_map,
    message_descriptor,
    schema_from_descriptor,
)
from millstream.values.row_fitting import row_fitter
from millstream.values.unfit import Unfit


class ProtobufEncoder:
    """`files` is a FileDescriptorSet, `message` a full name in it."""

    def __init__(self, files: bytes, message: str) -> None:
        descriptor = message_descriptor(files, message)
        self._files, self._message = files, message
        self.schema = schema_from_descriptor(descriptor)
        self._class = GetMessageClass(descriptor)
        self._fit = row_fitter(self.schema, passes_over_extra=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """By what it was made of: Spark sends it to its workers."""
        return ProtobufEncoder, (self._files, self._message)

    def encode(self, row: Any) -> bytes:
        message = self._class()
        _fill(message, self._fit(row))
        content: bytes = message.SerializeToString()
        return content


def _fill(message: Any, row: Any) -> None:
    """`row` fits the message (`row_fitter`)."""
    if message.DESCRIPTOR.full_name == TIMESTAMP:
        message.FromDatetime(row)
    elif message.DESCRIPTOR.full_name in WRAPPERS:
        message.value = int(row) if "Int" in message.DESCRIPTOR.name else row
    else:
        for field in message.DESCRIPTOR.fields:
            if row.get(field.name) is not None:
                _set(message, field, row[field.name])
    message.SetInParent()


def _set(message: Any, field: Any, found: Any) -> None:
    if is_map(field):
        _set_map(getattr(message, field.name), field.message_type.fields_by_name["value"], found)
    elif field.is_repeated and field.message_type is not None:
        for one in found:
            _fill(getattr(message, field.name).add(), one)
    elif field.is_repeated:
        getattr(message, field.name).extend(_scalar(field, one) for one in found)
    elif field.message_type is not None:
        _fill(getattr(message, field.name), found)
    else:
        setattr(message, field.name, _scalar(field, found))


def _set_map(entries: Any, value: Any, found: dict[Any, Any]) -> None:
    for key, one in found.items():
        if value.message_type is not None:
            _fill(entries[key], one)
        else:
            entries[key] = _scalar(value, one)


def _scalar(field: Any, found: Any) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_name
        if found not in known:
            raise Unfit(f"expected one of {', '.join(known)}, found {found!r}", path=field.name)
        return known[found].number
    if field.cpp_type == field.CPPTYPE_UINT64:
        return _unsigned(int(found), field, bits=64)
    if field.cpp_type == field.CPPTYPE_UINT32:
        return _unsigned(found, field, bits=32)
    return found


def _unsigned(number: int, field: Any, *, bits: int) -> int:
    if not 0 <= number < 1 << bits:
        raise Unfit(f"{number} does not fit uint{bits}", path=field.name)
    return number
