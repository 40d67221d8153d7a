"""Rows to JSON, as `json_decoder.py` reads it.

Decimals are texts, so that no reader makes floats of them; BINARY is base64; times are ISO 8601,
in UTC. Every field is there, null or not.
"""

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from millstream.base.schema import BadSchema, DataType, ListOf, MapOf, Scalar, Schema, Struct
from millstream.schemas.declaration import Declared, schema_of
from millstream.values.row_fitting import row_fitter


class JsonEncoder:
    def __init__(self, schema: Declared) -> None:
        self.schema = schema_of(schema)
        _check_keys(self.schema)
        self._fit = row_fitter(self.schema, passes_over_extra=False)
        self._encode = json.JSONEncoder(
            ensure_ascii=False, separators=(",", ":"), default=plain_text
        ).encode

    def __reduce__(self) -> tuple[Any, ...]:
        """By what it was made of: Spark sends it to its workers."""
        return JsonEncoder, (self.schema,)

    def encode(self, row: Any) -> bytes:
        return self._encode(self._fit(row)).encode()


def _check_keys(data_type: DataType | Schema) -> None:
    match data_type:
        case MapOf(key, value, _):
            if key is not Scalar.STRING:
                raise BadSchema(f"{data_type}: the keys of a map are STRING in JSON")
            _check_keys(value)
        case ListOf(element, _):
            _check_keys(element)
        case Struct():
            for field in data_type:
                _check_keys(field.type)


def plain_text(found: object) -> str:
    """What JSON has no word for."""
    match found:
        case datetime():
            return found.isoformat().replace("+00:00", "Z")
        case date():
            return found.isoformat()
        case bytes():
            return base64.b64encode(found).decode()
        case Decimal():
            return f"{found:f}"
    raise TypeError(f"no JSON for {type(found).__name__}")
