"""One way in for everything that declares a schema: DDL, a class, or a schema itself. Pure."""

from typing import TypeAlias

from millstream.base.schema import BadSchema, Schema, Struct
from millstream.schemas.classes import is_declaration, schema_from_class
from millstream.schemas.ddl import schema_from_ddl

Declared: TypeAlias = str | type | Schema


def schema_of(declared: Declared) -> Schema:
    if isinstance(declared, Struct):
        return declared
    if isinstance(declared, str):
        return schema_from_ddl(declared)
    if is_declaration(declared):
        return schema_from_class(declared)
    raise BadSchema(
        f"{declared!r} declares no schema: give Spark's DDL ('id BIGINT, at TIMESTAMP'), a "
        "dataclass or a pydantic model"
    )
