"""Which encoder writes the values of a topic: by the encoding that was declared for it."""

from collections.abc import Callable
from typing import Any

from millstream.base.declared import BadDeclaration, DeclaredTable, DeclaredTopic
from millstream.base.schema import Scalar, Schema
from millstream.values.encoder import Encoder
from millstream.values.unfit import Unfit

Output = DeclaredTopic | DeclaredTable


def encoder_for(output: Output, schema: Schema) -> Encoder:
    return ENCODERS[output.encoding](output, schema)


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


def _json(_output: Output, schema: Schema) -> Encoder:
    from millstream.values.json_encoder import JsonEncoder

    return JsonEncoder(schema)


def _avro(_output: Output, schema: Schema) -> Encoder:
    from millstream.values.avro_encoder import AvroEncoder  # needs an extra

    return AvroEncoder(schema)


def _raw(output: Output, schema: Schema) -> Encoder:
    column, *others = schema
    if others or column.type not in (Scalar.STRING, Scalar.BINARY):
        raise BadDeclaration(
            f"{output.name}: raw values are one column, STRING or BINARY, not {schema.ddl}"
        )
    return RawEncoder(column.name)


def _protobuf(output: Output, _schema: Schema) -> Encoder:
    """By the whole message: fields that the schema leaves out are not set."""
    from millstream.values.protobuf_encoder import ProtobufEncoder  # needs an extra

    assert output.message is not None, "declared with its message"
    return ProtobufEncoder(output.message.files, output.message.name)


def _debezium(output: Output, _schema: Schema) -> Encoder:
    raise BadDeclaration(
        f"{output.name} holds changes of a database (encoding='debezium'): only its capture writes "
        "it. Change the rows in the database"
    )


ENCODERS: dict[str, Callable[[Output, Schema], Encoder]] = {
    "json": _json,
    "avro": _avro,
    "raw": _raw,
    "protobuf": _protobuf,
    "debezium": _debezium,
}
