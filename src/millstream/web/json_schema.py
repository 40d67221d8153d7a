"""Schemas of topics and views as JSON Schema, for the OpenAPI document. Pure."""

from collections.abc import Mapping
from typing import Any

from millstream.base.changes import CHANGE, CHANGES, DELETE
from millstream.base.schema import (
    INTEGER_BITS,
    DataType,
    DecimalOf,
    ListOf,
    MapOf,
    Scalar,
    Schema,
    Struct,
)

SCALARS: Mapping[Scalar, Mapping[str, Any]] = {
    Scalar.BOOLEAN: {"type": "boolean"},
    Scalar.FLOAT: {"type": "number", "minimum": -3e38, "maximum": 3e38},
    Scalar.DOUBLE: {"type": "number", "minimum": -1.7e308, "maximum": 1.7e308},
    Scalar.STRING: {"type": "string"},
    Scalar.BINARY: {"type": "string", "contentEncoding": "base64"},
    Scalar.DATE: {"type": "string", "format": "date"},
    Scalar.TIMESTAMP: {"type": "string", "format": "date-time"},
    Scalar.TIMESTAMP_NTZ: {"type": "string", "format": "date-time"},
}
NOT_FINITE = {"enum": ["NaN", "Infinity", "-Infinity"]}


def row_written(schema: Schema, key: tuple[str, ...]) -> dict[str, Any]:
    """A row to publish: what may be null may be left out, and no other field is taken."""
    fields = {field.name: _nullable(of_type(field.type), field.nullable) for field in schema}
    own = _object(fields, [field.name for field in schema if not field.nullable])
    changes = {CHANGE: {"enum": [None, *(one for one in CHANGES if one != DELETE)]}}
    own["properties"] = changes | own["properties"]
    if not key:
        return own
    deletion = _object({name: fields[name] for name in key} | {CHANGE: {"const": DELETE}}, [CHANGE])
    deletion["required"] += [one for one in own["required"] if one in key]
    return {"anyOf": [own, deletion]}


def raw_written() -> dict[str, Any]:
    """Of a topic without a schema."""
    text = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    coded = {"anyOf": [{"type": "string", "contentEncoding": "base64"}, {"type": "null"}]}
    of_text = _object({"key": text, "value": text}, [])
    return {"anyOf": [of_text, _object({"key_base64": coded, "value_base64": coded}, [])]}


def row_read(schema: Schema) -> dict[str, Any]:
    """A row of a view, every column in it."""
    fields = {field.name: _nullable(of_type(field.type, is_read=True), True) for field in schema}
    return _object(fields, list(fields))


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _nullable(found: dict[str, Any], nullable: bool) -> dict[str, Any]:
    return {"anyOf": [found, {"type": "null"}]} if nullable else found


def of_type(kind: DataType, *, is_read: bool = False) -> dict[str, Any]:
    """`is_read`: as answers have it, where a number may be a word."""
    match kind:
        case Scalar():
            return _of_scalar(kind, is_read=is_read)
        case DecimalOf(precision, scale):
            text = {"type": "string", "pattern": _decimal_pattern(precision, scale)}
            return text if is_read else {"anyOf": [text, {"type": "number"}]}
        case ListOf(element, nullable):
            return {
                "type": "array",
                "items": _nullable(of_type(element, is_read=is_read), nullable),
            }
        case MapOf(Scalar.STRING, value, nullable):
            values = _nullable(of_type(value, is_read=is_read), nullable)
            return {"type": "object", "additionalProperties": values}
        case MapOf():
            return {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}}
        case Struct():
            fields = {
                field.name: _nullable(of_type(field.type, is_read=is_read), field.nullable)
                for field in kind
            }
            return _object(fields, [field.name for field in kind if not field.nullable])


def _of_scalar(kind: Scalar, *, is_read: bool) -> dict[str, Any]:
    if kind in INTEGER_BITS:
        end = 1 << (INTEGER_BITS[kind] - 1)
        return {"type": "integer", "minimum": -end, "maximum": end - 1}
    if not is_read and kind in (Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ):
        return {"anyOf": [SCALARS[kind], {"type": "integer"}]}  # milliseconds since 1970
    if is_read and kind in (Scalar.FLOAT, Scalar.DOUBLE):
        return {"anyOf": [{"type": "number"}, NOT_FINITE]}
    return dict(SCALARS[kind])


def _decimal_pattern(precision: int, scale: int) -> str:
    whole = f"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    return f"^-?{whole}{fraction}$"
