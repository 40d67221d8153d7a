"""Python's values as the fields of a schema want them: a check that names the field. Pure.

What Avro and Protobuf give comes through here on its way to columns, and what an application
gives on its way to bytes. A row is a mapping, a dataclass or a pydantic model. A field takes what
it holds: an int for an integer in range or a DOUBLE, a Decimal or int for a DECIMAL, an Enum or
UUID as its text. A time without a zone is UTC.
"""

import dataclasses
import math
import struct
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

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
from millstream.values.exact_decimal import exact_decimal
from millstream.values.unfit import Unfit, shown, too_large

Fit = Callable[[Any], Any]


def row_fitter(schema: Schema, *, passes_over_extra: bool) -> Callable[[Any], dict[str, Any]]:
    """Extra fields are passed over in what was stored, and refused in what is to be."""
    return _struct_fitter(schema, passes_over_extra)


def _fitter(data_type: DataType, passes_over_extra: bool) -> Fit:
    match data_type:
        case Scalar():
            return _integer_fitter(data_type) if data_type in INTEGER_BITS else FITTERS[data_type]
        case DecimalOf():
            return lambda found: _fit_decimal(found, data_type)
        case ListOf(element, nullable):
            return _list_fitter(_element_fitter(_fitter(element, passes_over_extra), nullable))
        case MapOf(key, value, nullable):
            fit_value = _element_fitter(_fitter(value, passes_over_extra), nullable)
            return _map_fitter(_fitter(key, passes_over_extra), fit_value)
        case Struct():
            return _struct_fitter(data_type, passes_over_extra)


def _struct_fitter(struct_type: Struct, passes_over_extra: bool) -> Callable[[Any], dict[str, Any]]:
    parts = {
        field.name: (_fitter(field.type, passes_over_extra), field.nullable)
        for field in struct_type
    }

    def fit(found: Any) -> dict[str, Any]:
        row = as_mapping(found)
        if not passes_over_extra and not row.keys() <= parts.keys():
            raise _extra(row, parts.keys())
        return {
            name: _fit_part(row, name, fit_one, nullable)
            for name, (fit_one, nullable) in parts.items()
        }

    return fit


def as_mapping(found: Any) -> Mapping[str, Any]:
    if isinstance(found, Mapping):
        return found
    if dataclasses.is_dataclass(found) and not isinstance(found, type):
        return {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
    if hasattr(found, "model_dump"):  # pydantic
        dumped: Mapping[str, Any] = found.model_dump(by_alias=True)
        return dumped
    raise _mismatch("a mapping, a dataclass or a pydantic model", found)


def _extra(row: Mapping[str, Any], known: Collection[str]) -> Unfit:
    name = next(name for name in row if name not in known)
    return Unfit(f"it is not in the schema, which has {', '.join(known)}", path=str(name))


def _fit_part(row: Mapping[str, Any], name: str, fit: Fit, nullable: bool) -> Any:
    found = row.get(name)
    if found is None:
        if nullable:
            return None
        raise Unfit(f"it is NOT NULL, and is {'null' if name in row else 'missing'}", path=name)
    try:
        return fit(found)
    except Unfit as error:
        raise error.inside(name) from None


def _element_fitter(fit_one: Fit, nullable: bool) -> Fit:
    def fit(found: Any) -> Any:
        if found is None:
            if nullable:
                return None
            raise Unfit("it may not hold a null", path="[]")
        try:
            return fit_one(found)
        except Unfit as error:
            raise error.inside("[]") from None

    return fit


def _list_fitter(fit_element: Fit) -> Fit:
    def fit(found: Any) -> list[Any]:
        if isinstance(found, str | bytes | Mapping) or not isinstance(found, Collection):
            raise _mismatch("ARRAY", found)
        return [fit_element(one) for one in found]

    return fit


def _map_fitter(fit_key: Fit, fit_value: Fit) -> Fit:
    def fit(found: Any) -> dict[Any, Any]:
        if not isinstance(found, Mapping):
            raise _mismatch("MAP", found)
        return {fit_key(key): fit_value(value) for key, value in found.items()}

    return fit


def _integer_fitter(scalar: Scalar) -> Fit:
    end = 1 << (INTEGER_BITS[scalar] - 1)

    def fit(found: Any) -> int:
        number = found.value if isinstance(found, Enum) else found
        if isinstance(number, bool) or not isinstance(number, int):
            raise _mismatch(scalar, found)
        if not -end <= number < end:
            raise too_large(scalar, found)
        return number

    return fit


def _fit_boolean(found: Any) -> bool:
    if not isinstance(found, bool):
        raise _mismatch("BOOLEAN", found)
    return found


def _fit_double(found: Any) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise _mismatch("DOUBLE", found)
    try:
        return float(found)
    except OverflowError:
        raise too_large("DOUBLE", found) from None


def _fit_float(found: Any) -> float:
    double = _fit_double(found)
    if math.isfinite(double):
        try:
            struct.pack("<f", double)
        except OverflowError:
            raise too_large("FLOAT", found) from None
    return double


def _fit_decimal(found: Any, decimal: DecimalOf) -> Decimal:
    if isinstance(found, bool) or not isinstance(found, int | Decimal):
        raise _mismatch(decimal, found)
    number = Decimal(found)
    if not number.is_finite():
        raise _mismatch(decimal, found)
    return exact_decimal(number, decimal, written=found)


def _fit_string(found: Any) -> str:
    text = found.value if isinstance(found, Enum) else found
    if isinstance(text, UUID):
        return str(text)
    if not isinstance(text, str):
        raise _mismatch("STRING", found)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unfit(f"half of a surrogate pair in {shown(text)}") from None
    return text


def _fit_binary(found: Any) -> bytes:
    if not isinstance(found, bytes | bytearray | memoryview):
        raise _mismatch("BINARY", found)
    return bytes(found)


def _fit_date(found: Any) -> date:
    if not isinstance(found, date) or isinstance(found, datetime):
        raise _mismatch("DATE", found)
    return found


def _fit_timestamp(found: Any) -> datetime:
    if not isinstance(found, datetime):
        raise _mismatch("TIMESTAMP (a datetime)", found)
    try:
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except OverflowError:
        raise too_large("TIMESTAMP", found) from None


def _fit_clock(found: Any) -> datetime:
    return _fit_timestamp(found).replace(tzinfo=None)


FITTERS: Final[Mapping[Scalar, Fit]] = {
    Scalar.BOOLEAN: _fit_boolean,
    Scalar.FLOAT: _fit_float,
    Scalar.DOUBLE: _fit_double,
    Scalar.STRING: _fit_string,
    Scalar.BINARY: _fit_binary,
    Scalar.DATE: _fit_date,
    Scalar.TIMESTAMP: _fit_timestamp,
    Scalar.TIMESTAMP_NTZ: _fit_clock,
}


def _mismatch(expected: object, found: Any) -> Unfit:
    return Unfit(f"expected {expected}, found {shown(found)}")
