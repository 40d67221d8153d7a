"""Schemas from classes: a dataclass, or a pydantic model. Pure; does not need pydantic itself.

`int` is BIGINT, `float` DOUBLE, `datetime` TIMESTAMP; `X | None` may be null and everything else
may not. A type that Python lacks is said in words: `Annotated[int, "SMALLINT"]`,
`Annotated[Decimal, "DECIMAL(12,2)"]`. An Enum is the type of its values. Does not read properties,
class variables, or unions of two types.
"""

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin
from uuid import UUID

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
from millstream.schemas.ddl import schema_from_ddl

SCALARS: dict[type, DataType] = {
    bool: Scalar.BOOLEAN,
    int: Scalar.BIGINT,
    float: Scalar.DOUBLE,
    str: Scalar.STRING,
    bytes: Scalar.BINARY,
    datetime: Scalar.TIMESTAMP,
    date: Scalar.DATE,
    UUID: Scalar.STRING,
    Decimal: DecimalOf(38, 18),  # Spark's own choice for Python's Decimal
}
NESTING_MAX = 64
_Hint = Any


def is_declaration(candidate: object) -> bool:
    """A class whose fields we can read."""
    return isinstance(candidate, type) and (
        dataclasses.is_dataclass(candidate) or hasattr(candidate, "model_fields")
    )


def schema_from_class(declared: type) -> Schema:
    return _struct(declared, where=declared.__name__, depth=0)


def _struct(declared: type, *, where: str, depth: int) -> Struct:
    if depth > NESTING_MAX:
        raise BadSchema(f"{where}: a class that contains itself has no schema: columns are finite")
    return Struct(
        tuple(
            _field(name, hint, where=f"{where}.{name}", depth=depth)
            for name, hint in _hints_of(declared)
        )
    )


def _hints_of(declared: type) -> Iterator[tuple[str, _Hint]]:
    """Names and annotations; pydantic's aliases are the names that values carry."""
    try:
        hints = typing.get_type_hints(declared, include_extras=True)
    except NameError as error:
        problem = f"{declared.__name__}: {error}: define what its fields name in its module"
        raise BadSchema(problem) from None
    if dataclasses.is_dataclass(declared):
        yield from ((field.name, hints[field.name]) for field in dataclasses.fields(declared))
    else:
        models: Mapping[str, Any] = declared.model_fields  # type: ignore[attr-defined]  # pydantic
        for name, field in models.items():
            yield field.serialization_alias or field.alias or name, hints[name]


def _field(name: str, hint: _Hint, *, where: str, depth: int) -> Field:
    inner, nullable = _without_none(hint)
    return Field(name, _type(inner, where=where, depth=depth), nullable=nullable)


def _origin(hint: _Hint) -> Any:
    """`list` of `list[int]`; None of a plain class."""
    return get_origin(hint)


def _without_none(hint: _Hint) -> tuple[_Hint, bool]:
    """`X | None` is X, nullable; under an annotation as well."""
    if _origin(hint) is Annotated:
        inner, nullable = _without_none(get_args(hint)[0])
        notes = [note for note in get_args(hint)[1:] if isinstance(note, str)]
        return (Annotated[inner, notes[0]] if notes else inner), nullable
    if _origin(hint) in (Union, types.UnionType):
        rest = [one for one in get_args(hint) if one is not type(None)]
        if len(rest) == 1:
            return _without_none(rest[0])[0], True
    return hint, False


def _type(hint: _Hint, *, where: str, depth: int) -> DataType:
    if _origin(hint) is Annotated:
        return schema_from_ddl(f"value {get_args(hint)[1]}").fields[0].type
    if _origin(hint) is not None:
        return _generic_type(hint, where=where, depth=depth)
    if hint in SCALARS:
        return SCALARS[hint]
    if is_declaration(hint):
        return _struct(hint, where=where, depth=depth + 1)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _type(_type_of_members(hint, where=where), where=where, depth=depth)
    raise _no_type(hint, where=where)


def _type_of_members(declared: type[Enum], *, where: str) -> type:
    found = {type(member.value) for member in declared}
    if len(found) != 1:
        raise BadSchema(f"{where}: the values of {declared.__name__} are not all of one type")
    return found.pop()


def _generic_type(hint: _Hint, *, where: str, depth: int) -> DataType:
    origin, arguments = _origin(hint), get_args(hint)
    if origin in (list, Sequence, set, frozenset) or (origin is tuple and arguments[1:] == (...,)):
        element, nullable = _without_none(arguments[0])
        return ListOf(_type(element, where=f"{where}[]", depth=depth), nullable)
    if origin in (dict, Mapping):
        key = _type(arguments[0], where=f"{where}'s keys", depth=depth)
        value, nullable = _without_none(arguments[1])
        return MapOf(key, _type(value, where=f"{where}{{}}", depth=depth), nullable)
    if origin is typing.Literal:
        kinds = {type(argument) for argument in arguments}
        if len(kinds) == 1:
            return _type(kinds.pop(), where=where, depth=depth)
    raise _no_type(hint, where=where)


def _no_type(hint: _Hint, *, where: str) -> BadSchema:
    return BadSchema(
        f'{where}: no type of a schema for {hint!r}. Name one: Annotated[..., "STRING"]'
    )
