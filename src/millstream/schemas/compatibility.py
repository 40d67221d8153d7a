"""What may change between two schemas of one topic. Pure.

A new version must read every record that was written with an older one: fields may be added if
they may be null, types widened, and NOT NULL given up. Everything else is a change that names its
field, the old, the new, and the way out. The order of fields means nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from millstream.base.errors import Rejected
from millstream.base.schema import (
    INTEGER_BITS,
    DataType,
    DecimalOf,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Schema,
    Struct,
)

# Bits of an integer that a float holds exactly.
EXACT_BITS = {Scalar.FLOAT: 24, Scalar.DOUBLE: 53}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference that old records or readers would not survive."""

    path: str
    old: str
    new: str
    advice: str

    def __str__(self) -> str:
        return f"field `{self.path}` was {self.old} and is {self.new}: {self.advice}"


class IncompatibleSchema(Rejected):
    """A new schema does not read what the old one wrote."""

    def __init__(self, *, topic: str, version: int, changes: list[Change]) -> None:
        facts = "; ".join(map(str, changes))
        super().__init__(f"topic {topic}: the schema does not follow version {version}: {facts}")
        self.topic, self.version, self.changes = topic, version, changes


class UnreadableTopic(Rejected):
    """A reader wants something else than the topic has."""

    def __init__(self, *, topic: str, version: int, changes: list[Change]) -> None:
        facts = "; ".join(map(str, changes))
        super().__init__(f"topic {topic}: version {version} cannot be read so: {facts}")
        self.topic, self.version, self.changes = topic, version, changes


def changes_against(old: Schema, new: Schema) -> list[Change]:
    """Why `new` may not follow `old`; empty if it may."""
    return list(_struct_changes(old, new, path="", keeps_all=True))


def changes_for_reader(stored: Schema, wanted: Schema) -> list[Change]:
    """Why values of `stored` cannot be read as `wanted`. A reader may leave fields out."""
    return list(_struct_changes(stored, wanted, path="", keeps_all=False))


def _struct_changes(old: Struct, new: Struct, *, path: str, keeps_all: bool) -> Iterator[Change]:
    for field in old:
        same = new.field(field.name)
        if same is not None:
            yield from _field_changes(field, same, path=path + field.name, keeps_all=keeps_all)
        elif keeps_all:
            yield _removed(field, path=path + field.name)
    for field in new:
        if old.field(field.name) is None and not field.nullable:
            yield _added(field, path=path + field.name)


def _removed(field: Field, *, path: str) -> Change:
    return Change(
        path,
        str(field.type),
        "gone",
        "old records have it; keep it in the schema, and let producers leave it out if it may be "
        "null",
    )


def _added(field: Field, *, path: str) -> Change:
    new = f"{field.type} NOT NULL"
    return Change(path, "not there", new, "old records do not have it; leave out NOT NULL")


def _field_changes(old: Field, new: Field, *, path: str, keeps_all: bool) -> Iterator[Change]:
    if old.nullable and not new.nullable:
        yield _required(path, str(new.type))
    yield from _type_changes(old.type, new.type, path=path, keeps_all=keeps_all)


def _required(path: str, data_type: str) -> Change:
    advice = "old records may have nulls there; leave out NOT NULL"
    return Change(path, data_type, f"{data_type} NOT NULL", advice)


def _type_changes(old: DataType, new: DataType, *, path: str, keeps_all: bool) -> Iterator[Change]:
    if isinstance(old, Struct) and isinstance(new, Struct):
        yield from _struct_changes(old, new, path=f"{path}.", keeps_all=keeps_all)
    elif isinstance(old, ListOf) and isinstance(new, ListOf):
        if old.element_nullable and not new.element_nullable:
            yield _required(f"{path}[]", str(new.element))
        yield from _type_changes(old.element, new.element, path=f"{path}[]", keeps_all=keeps_all)
    elif isinstance(old, MapOf) and isinstance(new, MapOf) and old.key == new.key:
        if old.value_nullable and not new.value_nullable:
            yield _required(f"{path}[]", str(new.value))
        yield from _type_changes(old.value, new.value, path=f"{path}[]", keeps_all=keeps_all)
    elif not is_widened(old, new):
        advice = f"a type may only be widened; keep {old}, or add a field with another name"
        yield Change(path, str(old), str(new), advice)


def is_widened(old: DataType, new: DataType) -> bool:
    """Every value of `old` is one of `new`, exactly; so is every type of itself."""
    if old == new:
        return True
    if isinstance(old, DecimalOf) and isinstance(new, DecimalOf):
        # With another scale the stored bytes of Avro would mean another number.
        return old.scale == new.scale and old.precision <= new.precision
    if isinstance(old, Scalar) and isinstance(new, Scalar):
        return _is_widened_scalar(old, new)
    return False


def _is_widened_scalar(old: Scalar, new: Scalar) -> bool:
    if old in INTEGER_BITS:
        # One bit is the sign.
        return INTEGER_BITS[old] - 1 <= _exact_bits(new)
    return (old, new) == (Scalar.FLOAT, Scalar.DOUBLE)


def _exact_bits(scalar: Scalar) -> int:
    if scalar in INTEGER_BITS:
        return INTEGER_BITS[scalar] - 1
    return EXACT_BITS.get(scalar, 0)
