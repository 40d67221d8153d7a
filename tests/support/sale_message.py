"""A message of Protobuf, `shop.Sale`, as protoc would have made it."""

from typing import Any

from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.message_factory import GetMessageClass

from millstream.schemas.protobuf_schema import message_descriptor

NAME = "shop.Sale"
DDL = "id BIGINT, item STRING, at TIMESTAMP"


def sale_files() -> bytes:
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(name="sale.proto", package="shop", syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="Sale")
    field = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind, of) in enumerate(
        [
            ("id", field.TYPE_INT64, None),
            ("item", field.TYPE_STRING, None),
            ("at", field.TYPE_MESSAGE, ".google.protobuf.Timestamp"),
        ],
        start=1,
    ):
        message.field.add(
            name=name, number=number, type=kind, type_name=of, label=field.LABEL_OPTIONAL
        )
    content: bytes = found.SerializeToString()
    return content


Sale: Any = GetMessageClass(message_descriptor(sale_files(), NAME))
