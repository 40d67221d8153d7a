from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Literal, Optional
from uuid import UUID

import pydantic
import pytest

from millstream.base.schema import BadSchema
from millstream.schemas import schema_of


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    sku: str
    pieces: Annotated[int, "SMALLINT"]
    price: Annotated[Decimal | None, "DECIMAL(12,2)"] = None


@dataclass
class Order:
    id: int
    at: datetime
    day: date
    lines: list[Line]
    paid: bool = False
    weight: float | None = None
    colour: Colour = Colour.RED
    kind: Literal["new", "used"] = "new"
    notes: Mapping[str, str | None] = field(default_factory=dict)
    raw: Optional[bytes] = None  # noqa: UP045 - the old spelling works too
    tags: Sequence[str] = ()
    amount: Decimal = Decimal(0)


class Click(pydantic.BaseModel):
    user: Annotated[str, pydantic.Field(min_length=1)]
    session: UUID | None = None
    url: str | None = None
    seen_at: datetime = pydantic.Field(alias="seenAt")
    line: Line | None = None


@dataclass
class Node:
    next: "Node | None"


@dataclass
class Odd:
    what: complex


@dataclass
class Either:
    what: int | str


def test_a_dataclass_declares_a_schema() -> None:
    schema = schema_of(Order)
    assert schema.ddl == (
        "id BIGINT NOT NULL, at TIMESTAMP NOT NULL, day DATE NOT NULL, "
        "lines ARRAY<STRUCT<sku: STRING NOT NULL, pieces: SMALLINT NOT NULL, "
        "price: DECIMAL(12,2)>> NOT NULL, paid BOOLEAN NOT NULL, weight DOUBLE, "
        "colour STRING NOT NULL, kind STRING NOT NULL, notes MAP<STRING, STRING> NOT NULL, "
        "raw BINARY, tags ARRAY<STRING> NOT NULL, amount DECIMAL(38,18) NOT NULL"
    )


def test_elements_may_be_null_only_if_they_say_so() -> None:
    tags, notes = schema_of(Order).field("tags"), schema_of(Order).field("notes")
    assert tags is not None
    assert notes is not None
    assert not tags.type.element_nullable  # type: ignore[union-attr]  # a list
    assert notes.type.value_nullable  # type: ignore[union-attr]  # a map


def test_a_pydantic_model_declares_a_schema_by_the_names_in_its_values() -> None:
    assert schema_of(Click).ddl == (
        "user STRING NOT NULL, session STRING, url STRING, seenAt TIMESTAMP NOT NULL, "
        "line STRUCT<sku: STRING NOT NULL, pieces: SMALLINT NOT NULL, price: DECIMAL(12,2)>"
    )


def test_a_class_that_contains_itself_is_refused() -> None:
    with pytest.raises(BadSchema, match="contains itself"):
        schema_of(Node)


def test_a_type_without_a_column_is_named_with_its_field() -> None:
    with pytest.raises(BadSchema, match=r"Odd.what: no type .*complex.*Annotated"):
        schema_of(Odd)
    with pytest.raises(BadSchema, match=r"Either.what: no type"):
        schema_of(Either)


def test_a_name_that_cannot_be_found_is_told() -> None:
    @dataclass
    class Local:
        what: "Nowhere"  # type: ignore[name-defined]  # noqa: F821 - the point of the test

    with pytest.raises(BadSchema, match="Local: name 'Nowhere' is not defined"):
        schema_of(Local)


def test_what_declares_nothing_is_refused() -> None:
    with pytest.raises(BadSchema, match="declares no schema: give Spark's DDL"):
        schema_of(int)
