"""Schemas as Spark's JSON: what `StructType.json()` writes and `StructType.fromJson` reads. Pure.

This is also the form in which a schema is stored (docs/formats/schemas.md): DDL cannot say that
the elements of an array are never null. `processing/` makes Spark's types of it, without Java.
"""

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

SPARK_NAMES = {
    Scalar.BOOLEAN: "boolean",
    Scalar.TINYINT: "byte",
    Scalar.SMALLINT: "short",
    Scalar.INT: "integer",
    Scalar.BIGINT: "long",
    Scalar.FLOAT: "float",
    Scalar.DOUBLE: "double",
    Scalar.STRING: "string",
    Scalar.BINARY: "binary",
    Scalar.DATE: "date",
    Scalar.TIMESTAMP: "timestamp",
    Scalar.TIMESTAMP_NTZ: "timestamp_ntz",
}
SCALARS = {name: scalar for scalar, name in SPARK_NAMES.items()}
DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")

SparkJson = str | dict[str, Any]


def schema_to_spark_json(schema: Schema) -> dict[str, Any]:
    fields = [_field_to_json(field) for field in schema]
    return {"type": "struct", "fields": fields}


def _field_to_json(field: Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _type_to_json(field.type),
        "nullable": field.nullable,
        "metadata": {"comment": field.comment} if field.comment else {},
    }


def _type_to_json(data_type: DataType) -> SparkJson:
    match data_type:
        case Scalar():
            return SPARK_NAMES[data_type]
        case DecimalOf(precision, scale):
            return f"decimal({precision},{scale})"
        case ListOf(element, nullable):
            inner = _type_to_json(element)
            return {"type": "array", "elementType": inner, "containsNull": nullable}
        case MapOf(key, value, nullable):
            return {
                "type": "map",
                "keyType": _type_to_json(key),
                "valueType": _type_to_json(value),
                "valueContainsNull": nullable,
            }
        case Struct():
            return schema_to_spark_json(data_type)


def schema_from_spark_json(document: Mapping[str, Any]) -> Schema:
    try:
        parsed = _type_from_json(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadSchema(f"not the JSON of a schema: {type(error).__name__}: {error}") from None
    if not isinstance(parsed, Struct):
        raise BadSchema(f"not the JSON of a schema but of one type: {parsed}")
    return parsed


def _type_from_json(document: Any) -> DataType:
    if isinstance(document, str):
        return _named_type(document)
    kind = document["type"]
    if kind == "struct":
        return Struct(tuple(_field_from_json(one) for one in document["fields"]))
    if kind == "array":
        return ListOf(_type_from_json(document["elementType"]), bool(document["containsNull"]))
    if kind == "map":
        key, value = _type_from_json(document["keyType"]), _type_from_json(document["valueType"])
        return MapOf(key, value, bool(document["valueContainsNull"]))
    raise BadSchema(f"no type of a schema: {kind!r}")


def _named_type(name: str) -> DataType:
    if name in SCALARS:
        return SCALARS[name]
    decimal = DECIMAL.fullmatch(name)
    if decimal is None:
        raise BadSchema(f"no type of a schema: {name!r}")
    return DecimalOf(int(decimal[1]), int(decimal[2]))


def _field_from_json(document: Mapping[str, Any]) -> Field:
    return Field(
        str(document["name"]),
        _type_from_json(document["type"]),
        nullable=bool(document["nullable"]),
        comment=str(document.get("metadata", {}).get("comment", "")),
    )
