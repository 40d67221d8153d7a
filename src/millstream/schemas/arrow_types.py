"""Schemas as Arrow's types, and Arrow's as ours. Pure; needs pyarrow.

Moments are UTC in microseconds, as in Spark. Decoders make every column nullable
(`values/decoder.py`), so `nullable_arrow_schema` is what they give.
"""

import pyarrow as pa

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

ARROW_SCALARS = {
    Scalar.BOOLEAN: pa.bool_(),
    Scalar.TINYINT: pa.int8(),
    Scalar.SMALLINT: pa.int16(),
    Scalar.INT: pa.int32(),
    Scalar.BIGINT: pa.int64(),
    Scalar.FLOAT: pa.float32(),
    Scalar.DOUBLE: pa.float64(),
    Scalar.STRING: pa.string(),
    Scalar.BINARY: pa.binary(),
    Scalar.DATE: pa.date32(),
    Scalar.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Scalar.TIMESTAMP_NTZ: pa.timestamp("us"),
}
# Other spellings of Arrow for what is one type here.
FROM_ARROW = {arrow: scalar for scalar, arrow in ARROW_SCALARS.items()} | {
    pa.large_string(): Scalar.STRING,
    pa.string_view(): Scalar.STRING,
    pa.large_binary(): Scalar.BINARY,
}


def schema_to_arrow(schema: Schema) -> pa.Schema:
    """With the nullability that was declared."""
    return pa.schema([_field_to_arrow(field, relaxed=False) for field in schema])


def nullable_arrow_schema(schema: Schema) -> pa.Schema:
    """Every field may be null, at every depth."""
    return pa.schema([_field_to_arrow(field, relaxed=True) for field in schema])


def _field_to_arrow(field: Field, *, relaxed: bool) -> pa.Field:
    nullable = relaxed or field.nullable
    return pa.field(field.name, type_to_arrow(field.type, relaxed=relaxed), nullable)


def type_to_arrow(data_type: DataType, *, relaxed: bool = False) -> pa.DataType:
    match data_type:
        case Scalar():
            return ARROW_SCALARS[data_type]
        case DecimalOf(precision, scale):
            return pa.decimal128(precision, scale)
        case ListOf(element, nullable):
            inner = type_to_arrow(element, relaxed=relaxed)
            return pa.list_(pa.field("element", inner, relaxed or nullable))
        case MapOf(key, value, nullable):
            inner = type_to_arrow(value, relaxed=relaxed)
            entry = pa.field("value", inner, relaxed or nullable)
            return pa.map_(type_to_arrow(key, relaxed=relaxed), entry)
        case Struct():
            return pa.struct([_field_to_arrow(field, relaxed=relaxed) for field in data_type])


def schema_from_arrow(schema: pa.Schema) -> Schema:
    return Struct(tuple(_field_from_arrow(field) for field in schema))


def _field_from_arrow(field: pa.Field) -> Field:
    return Field(field.name, type_from_arrow(field.type), nullable=field.nullable)


def type_from_arrow(arrow: pa.DataType) -> DataType:
    if arrow in FROM_ARROW:
        return FROM_ARROW[arrow]
    if pa.types.is_decimal128(arrow):
        return DecimalOf(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        return Scalar.TIMESTAMP if arrow.tz else Scalar.TIMESTAMP_NTZ
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return ListOf(type_from_arrow(arrow.value_type), arrow.value_field.nullable)
    if pa.types.is_map(arrow):
        key, item = arrow.key_type, arrow.item_field
        return MapOf(type_from_arrow(key), type_from_arrow(item.type), item.nullable)
    if pa.types.is_struct(arrow):
        return Struct(tuple(_field_from_arrow(field) for field in arrow))
    raise BadSchema(f"a schema has no type for Arrow's {arrow}: cast the column first")
