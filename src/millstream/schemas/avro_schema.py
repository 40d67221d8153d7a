"""Schemas as Avro's, and Avro's as ours. Pure; needs no library.

What may be null is a union with null, and null is its default, so that it may be missing. Small
integers are Avro's int. Every record has a name of its own, made from the way to it. Does not
take unions of two types, as no column holds them, nor records that contain themselves.
"""

import json
import re
from collections.abc import Mapping
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

RECORD_NAME = "value"
AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TO_AVRO: Mapping[Scalar, str | dict[str, str]] = {
    Scalar.BOOLEAN: "boolean",
    Scalar.TINYINT: "int",
    Scalar.SMALLINT: "int",
    Scalar.INT: "int",
    Scalar.BIGINT: "long",
    Scalar.FLOAT: "float",
    Scalar.DOUBLE: "double",
    Scalar.STRING: "string",
    Scalar.BINARY: "bytes",
    Scalar.DATE: {"type": "int", "logicalType": "date"},
    Scalar.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    Scalar.TIMESTAMP_NTZ: {"type": "long", "logicalType": "local-timestamp-micros"},
}
FROM_AVRO = {
    "boolean": Scalar.BOOLEAN,
    "int": Scalar.INT,
    "long": Scalar.BIGINT,
    "float": Scalar.FLOAT,
    "double": Scalar.DOUBLE,
    "string": Scalar.STRING,
    "bytes": Scalar.BINARY,
    "fixed": Scalar.BINARY,
    "enum": Scalar.STRING,
}
LOGICAL = {
    "date": Scalar.DATE,
    "timestamp-millis": Scalar.TIMESTAMP,
    "timestamp-micros": Scalar.TIMESTAMP,
    "local-timestamp-millis": Scalar.TIMESTAMP_NTZ,
    "local-timestamp-micros": Scalar.TIMESTAMP_NTZ,
    "uuid": Scalar.STRING,
}


def schema_to_avro(schema: Schema, *, name: str = RECORD_NAME) -> dict[str, Any]:
    fields = [_field_to_avro(field, within=name) for field in schema]
    return {"type": "record", "name": name, "fields": fields}


def _field_to_avro(field: Field, *, within: str) -> dict[str, Any]:
    if not AVRO_NAME.fullmatch(field.name):
        raise BadSchema(f"Avro has no field named {field.name!r}: letters, digits and _ only")
    inner = _type_to_avro(field.type, name=f"{within}_{field.name}")
    if not field.nullable:
        return {"name": field.name, "type": inner}
    return {"name": field.name, "type": ["null", inner], "default": None}


def _type_to_avro(data_type: DataType, *, name: str) -> Any:
    match data_type:
        case Scalar():
            return TO_AVRO[data_type]
        case DecimalOf(precision, scale):
            facts = {"precision": precision, "scale": scale}
            return {"type": "bytes", "logicalType": "decimal", **facts}
        case ListOf(element, nullable):
            inner = _type_to_avro(element, name=name)
            return {"type": "array", "items": ["null", inner] if nullable else inner}
        case MapOf(Scalar.STRING, value, nullable):
            inner = _type_to_avro(value, name=name)
            return {"type": "map", "values": ["null", inner] if nullable else inner}
        case MapOf():
            raise BadSchema(f"{data_type}: the keys of a map are STRING in Avro")
        case Struct():
            return schema_to_avro(data_type, name=name)


def schema_from_avro(avro: Mapping[str, Any] | str) -> Schema:
    """The fields of a record; `avro` as JSON text, or what was read from it."""
    document = json.loads(avro) if isinstance(avro, str) else avro
    parsed = _Reader().type(document)
    if not isinstance(parsed, Struct):
        raise BadSchema(f"a topic's values are records in Avro, not {document!r}")
    return parsed


class _Reader:
    """Remembers the named types, which are written out once; `_open` are those around the place."""

    def __init__(self) -> None:
        self._named: dict[str, DataType] = {}
        self._open: set[str] = set()

    def type(self, avro: Any) -> DataType:
        if isinstance(avro, str):
            return self._by_name(avro)
        if isinstance(avro, list):
            inner, _ = self._without_null(avro)
            return self.type(inner)
        return self._complex(avro)

    def _by_name(self, name: str) -> DataType:
        if name in FROM_AVRO:
            return FROM_AVRO[name]
        short = name.rpartition(".")[2]
        if short in self._open:
            raise BadSchema(f"Avro's record {name} contains itself: columns are finite")
        if short not in self._named:
            raise BadSchema(f"Avro's type {name!r} is not one of a schema")
        return self._named[short]

    def _without_null(self, union: list[Any]) -> tuple[Any, bool]:
        rest = [one for one in union if one != "null"]
        if len(rest) != 1:
            raise BadSchema(f"Avro's union {union!r}: a column holds one type, or null")
        return rest[0], len(rest) < len(union)

    def _field(self, document: Mapping[str, Any]) -> Field:
        avro, nullable = document["type"], False
        if isinstance(avro, list):
            avro, nullable = self._without_null(avro)
        return Field(document["name"], self.type(avro), nullable=nullable)

    def _element(self, avro: Any) -> tuple[DataType, bool]:
        if isinstance(avro, list):
            inner, nullable = self._without_null(avro)
            return self.type(inner), nullable
        return self.type(avro), False

    def _complex(self, avro: Mapping[str, Any]) -> DataType:
        kind = avro["type"]
        if kind == "record":
            return self._record(avro)
        if kind == "array":
            return ListOf(*self._element(avro["items"]))
        if kind == "map":
            return MapOf(Scalar.STRING, *self._element(avro["values"]))
        return self._remember(avro, self._logical(avro))

    def _record(self, avro: Mapping[str, Any]) -> DataType:
        short = avro["name"].rpartition(".")[2]
        self._open.add(short)
        fields = tuple(self._field(one) for one in avro["fields"])
        self._open.discard(short)
        return self._remember(avro, Struct(fields))

    def _logical(self, avro: Mapping[str, Any]) -> DataType:
        logical = avro.get("logicalType")
        if logical == "decimal":
            return DecimalOf(avro["precision"], avro.get("scale", 0))
        return LOGICAL[logical] if logical in LOGICAL else self.type(avro["type"])

    def _remember(self, avro: Mapping[str, Any], parsed: DataType) -> DataType:
        if "name" in avro:
            self._named[avro["name"].rpartition(".")[2]] = parsed
        return parsed
