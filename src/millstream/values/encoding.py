"""Which encoder writes the values of a topic: by the encoding that was declared for it."""

from collections.abc import Callable
from typing import Any

from millstream.base.declared import BadDeclaration
from millstream.base.schema import Scalar, Schema
from millstream.values.encoder import Encoder
from millstream.values.unfit import Unfit


def encoder_for(topic: str, schema: Schema, encoding: str) -> Encoder:
    return ENCODERS[encoding](topic, schema)


class RawEncoder:
    """One column is the value: text or bytes, as it is."""

    def __init__(self, column: str) -> None:
        self._column = column

    def encode(self, row: Any) -> bytes:
        found = row[self._column]
        if isinstance(found, str):
            return found.encode()
        if isinstance(found, bytes | bytearray | memoryview):
            return bytes(found)
        raise Unfit(f"expected text or bytes, found {type(found).__name__}", path=self._column)


def _json(_topic: str, schema: Schema) -> Encoder:
    from millstream.values.json_encoder import JsonEncoder

    return JsonEncoder(schema)


def _avro(_topic: str, schema: Schema) -> Encoder:
    from millstream.values.avro_encoder import AvroEncoder  # needs an extra

    return AvroEncoder(schema)


def _raw(topic: str, schema: Schema) -> Encoder:
    column, *others = schema
    if others or column.type not in (Scalar.STRING, Scalar.BINARY):
        raise BadDeclaration(
            f"{topic}: raw values are one column, STRING or BINARY, not {schema.ddl}"
        )
    return RawEncoder(column.name)


def _protobuf(topic: str, _schema: Schema) -> Encoder:
    raise BadDeclaration(
        f"{topic}: Protobuf needs the descriptors of its messages, which a schema does not have. "
        "Write it with a ProtobufEncoder of your own"
    )


ENCODERS: dict[str, Callable[[str, Schema], Encoder]] = {
    "json": _json,
    "avro": _avro,
    "raw": _raw,
    "protobuf": _protobuf,
}
