"""Rows as Redis keeps them: one text of JSON each, which reads back without loss. Pure.

    {"url":"/home","count":7,"share":"12.50","at":"2026-07-01T12:00:00Z"}

As values of topics are (values/json_encoder.py), but that every other language can read it: NaN,
Infinity and -Infinity are texts. A map whose keys are no STRING is a list of pairs.
"""

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from millstream.base.schema import DataType, DecimalOf, ListOf, MapOf, Scalar, Schema, Struct
from millstream.views.store import Row
from millstream.views.stores.conversions import Convert, or_none, pairs_of, same

_to_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class RedisRows:
    """Of a view with these columns. Rows are as Arrow gives them."""

    def __init__(self, schema: Schema) -> None:
        self._plain = plain(schema) or same
        self._unplain = unplain(schema)

    def encode(self, row: Mapping[str, Any]) -> bytes:
        return _to_text(self._plain(row)).encode()

    def decode(self, text: bytes) -> Row:
        row: Row = self._unplain(json.loads(text))
        return row


def plain(kind: DataType) -> Convert | None:
    """What makes a value into one of JSON; None where it is one."""
    match kind:
        case ListOf(element, _):
            return _plain_list(plain(element))
        case MapOf(key, value, _):
            return _plain_map(key, plain(key), plain(value))
        case Struct():
            return _plain_struct(kind)
        case DecimalOf(_, scale):
            return lambda number: f"{number:.{scale}f}"
        case Scalar():
            return PLAIN.get(kind)


def _plain_list(of: Convert | None) -> Convert | None:
    return of and (lambda values: [None if one is None else of(one) for one in values])


def _plain_struct(kind: Struct) -> Convert | None:
    """Converts in place of what must be; most columns need not."""
    parts = [(field.name, of) for field in kind if (of := plain(field.type)) is not None]
    if not parts:
        return None

    def convert(row: Mapping[str, Any]) -> Row:
        found = dict(row)
        for name, of in parts:
            if found[name] is not None:
                found[name] = of(found[name])
        return found

    return convert


def _plain_map(key: DataType, of_key: Convert | None, of_value: Convert | None) -> Convert:
    at_key, at_value = of_key or same, or_none(of_value or same)

    def pairs(found: Any) -> list[tuple[Any, Any]]:
        items = found.items() if isinstance(found, Mapping) else found
        return [(at_key(k), at_value(v)) for k, v in items]

    return (lambda found: dict(pairs(found))) if key is Scalar.STRING else pairs


def unplain(kind: DataType) -> Convert:
    """The way back."""
    match kind:
        case ListOf(element, _):
            of = or_none(unplain(element))
            return lambda values: [of(one) for one in values]
        case MapOf(key, value, _):
            at_key, at_value = unplain(key), or_none(unplain(value))
            return lambda found: {at_key(k): at_value(v) for k, v in pairs_of(found)}
        case Struct():
            parts = [(field.name, or_none(unplain(field.type))) for field in kind]
            # A field that was added later is missing in older rows.
            return lambda row: {name: of(row.get(name)) for name, of in parts}
        case DecimalOf():
            return Decimal
        case Scalar():
            return UNPLAIN.get(kind, same)


def _plain_float(number: float) -> float | str:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _plain_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


PLAIN: Mapping[Scalar, Convert] = {
    Scalar.FLOAT: _plain_float,
    Scalar.DOUBLE: _plain_float,
    Scalar.BINARY: lambda found: base64.b64encode(found).decode(),
    Scalar.DATE: date.isoformat,
    Scalar.TIMESTAMP: _plain_moment,
    Scalar.TIMESTAMP_NTZ: datetime.isoformat,
}
UNPLAIN: Mapping[Scalar, Convert] = {
    Scalar.FLOAT: float,
    Scalar.DOUBLE: float,
    Scalar.BINARY: base64.b64decode,
    Scalar.DATE: date.fromisoformat,
    Scalar.TIMESTAMP: lambda text: datetime.fromisoformat(text).astimezone(UTC),
    Scalar.TIMESTAMP_NTZ: datetime.fromisoformat,
}
