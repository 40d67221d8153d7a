"""Rows as Debezium writes them, to the forms that our decoder reads. Pure.

Debezium's JSON says little of what a value is: a date is a number of days, a timestamp a number of
milliseconds, microseconds or nanoseconds, a decimal the bytes of an integer in base64. With schemas
(`schemas.enable=true`) each record says which; without them the declaration does
(`DebeziumModes`), and nothing is guessed: what does not fit is a bad row.

    {"after":{"day":1950,"at":168525296789012,"price":"BNI="},...}    Debezium, its defaults
    {"after":{"day":"1975-05-05","at":"1975-05-05T12:34:56.789012","price":"12.34"},...}   ours
"""

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from millstream.base.declared import DebeziumModes
from millstream.base.schema import DataType, DecimalOf, Scalar, Schema

# In `source` of every record that a capture of ours writes in its own format. Quotes inside of a
# text are escaped, so no value of a row can look like this.
OURS: Final = r'"schema_version":\d+,"ts_ms":\d+,"txId":'
OWN_FACTS: Final = frozenset({"schema_version", "commit"})  # of `source`; Debezium has neither
EPOCH: Final = datetime(1970, 1, 1)
PER_SECOND: Final[Mapping[str, int]] = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
# What a schema calls a number of units since 1970, or since midnight.
NAMED_UNITS: Final[Mapping[str, str]] = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.Time": "ms",
    "io.debezium.time.MicroTime": "us",
    "io.debezium.time.NanoTime": "ns",
    "org.apache.kafka.connect.data.Time": "ms",
}
DECIMAL_SCHEMA: Final = "org.apache.kafka.connect.data.Decimal"
# Instead of a large value that did not change, which the database did not log: as text, as bytes.
UNAVAILABLE: Final = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
TIMESTAMPS: Final = (Scalar.TIMESTAMP, Scalar.TIMESTAMP_NTZ)

FieldSchema = Mapping[str, Any]


class UnfitValue(ValueError):
    """A value that is not what its column is declared to be."""


def own_envelope(value: bytes, schema: Schema, modes: DebeziumModes) -> bytes:
    """The same change with a row in our forms; as it is, if it is ours or cannot be read.

    Raises `UnfitValue` with the column and the reason.
    """
    try:
        found = json.loads(value)
    except ValueError:
        return value
    if not isinstance(found, dict):
        return value
    fields: Mapping[str, FieldSchema] = {}
    if "payload" in found and "schema" in found:
        fields, found = _row_fields(found["schema"]), found["payload"]
    if not isinstance(found, dict):
        return value
    source = found.get("source")
    if isinstance(source, dict) and not OWN_FACTS.isdisjoint(source):
        return value
    after: dict[str, Any] | None = found.get("after")
    row = _own_row(after, schema, modes, fields) if isinstance(after, dict) else after
    left_out = [name for name, one in (after or {}).items() if one in UNAVAILABLE]
    return json.dumps({"op": found.get("op"), "after": row, "unavailable": left_out}).encode()


def _row_fields(schema: Any) -> Mapping[str, FieldSchema]:
    """What the schema of a record says of each column."""
    parts = schema.get("fields", []) if isinstance(schema, dict) else []
    rows = [part for part in parts if part.get("field") == "after"]
    return {one["field"]: one for one in rows[0].get("fields", [])} if rows else {}


def _own_row(
    after: Mapping[str, Any],
    schema: Schema,
    modes: DebeziumModes,
    fields: Mapping[str, FieldSchema],
) -> dict[str, Any]:
    row = dict(after)
    for field in schema:
        if row.get(field.name) is None or row[field.name] in UNAVAILABLE:
            continue
        try:
            row[field.name] = _own_value(
                row[field.name], field.type, _told(field.name, field.type, modes, fields)
            )
        except (ValueError, TypeError, KeyError, OverflowError, binascii.Error) as error:
            raise UnfitValue(f"{field.name}: {error}") from None
    return row


def _told(
    name: str, kind: DataType, modes: DebeziumModes, fields: Mapping[str, FieldSchema]
) -> FieldSchema:
    """The schema of a column: the record's, or the one that the declaration comes to."""
    if name in fields:
        return fields[name]
    if kind in TIMESTAMPS:
        return {"unit": modes.unit_of(name)}
    if isinstance(kind, DecimalOf) and modes.decimal == "precise":
        return {"name": DECIMAL_SCHEMA, "parameters": {"scale": str(kind.scale)}}
    return {}


def _own_value(value: Any, kind: DataType, told: FieldSchema) -> Any:
    if isinstance(kind, DecimalOf):
        return _decimal(value, told)
    if isinstance(value, bool) or not isinstance(value, int):
        return _iso(value, kind)
    if kind is Scalar.DATE:
        return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
    unit = told.get("unit") or NAMED_UNITS.get(told.get("name", ""))
    if kind in TIMESTAMPS:
        return _moment(value, unit) + ("Z" if kind is Scalar.TIMESTAMP else "")
    if kind is Scalar.STRING and unit is not None:
        return _moment(value, unit).partition("T")[2]
    return value


def _iso(value: Any, kind: DataType) -> Any:
    """`isostring` writes zones also where there are none: 1975-05-05Z."""
    if isinstance(value, str) and kind in (Scalar.DATE, Scalar.TIMESTAMP_NTZ):
        return value.removesuffix("Z")
    return value


def _moment(value: int, unit: str | None) -> str:
    if unit is None:
        raise ValueError(f"{value} is a number, and no unit of time is declared for it")
    seconds, rest = divmod(value, PER_SECOND[unit])
    micros = rest * 1_000_000 // PER_SECOND[unit]
    return (EPOCH + timedelta(seconds=seconds, microseconds=micros)).isoformat()


def _decimal(value: Any, told: FieldSchema) -> str:
    if isinstance(value, dict):  # a numeric without a scale says it with each value
        return str(_scaled(value["value"], int(value["scale"])))
    if told.get("name") == DECIMAL_SCHEMA and isinstance(value, str):
        return str(_scaled(value, int(told["parameters"]["scale"])))
    return str(value)


def _scaled(encoded: str, scale: int) -> Decimal:
    digits = int.from_bytes(base64.b64decode(encoded, validate=True), "big", signed=True)
    sign, shown = (1, str(-digits)) if digits < 0 else (0, str(digits))
    return Decimal((sign, tuple(map(int, shown)), -scale))
