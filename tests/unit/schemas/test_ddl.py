import json

import pytest
from hypothesis import given, settings

from millstream.base.schema import (
    BadSchema,
    DecimalOf,
    Field,
    ListOf,
    MapOf,
    Scalar,
    Schema,
    Struct,
)
from millstream.schemas.arrow_types import schema_from_arrow, schema_to_arrow
from millstream.schemas.ddl import schema_from_ddl
from millstream.schemas.spark_json import schema_from_spark_json, schema_to_spark_json
from tests.support.schema_strategies import ANY_NAME, schemas

# DDL cannot say that elements are never null.
SCHEMAS = schemas(names=ANY_NAME, elements_nullable=True)


def test_every_type_has_its_name() -> None:
    schema = schema_from_ddl(
        "a BOOLEAN, b tinyint, c SMALLINT, d int, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BINARY,"
        "j DATE, k TIMESTAMP, l TIMESTAMP_NTZ, m DECIMAL(12,2), n ARRAY<INT>, o MAP<STRING,INT>"
    )
    assert [field.type for field in schema] == [
        *Scalar,
        DecimalOf(12, 2),
        ListOf(Scalar.INT),
        MapOf(Scalar.STRING, Scalar.INT),
    ]


def test_short_names_are_those_of_spark() -> None:
    schema = schema_from_ddl("a BYTE, b SHORT, c INTEGER, d LONG, e REAL, f DEC, g NUMERIC(5)")
    assert schema == schema_from_ddl(
        "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DECIMAL(10,0), g DECIMAL(5,0)"
    )


def test_names_nullability_and_comments_are_read() -> None:
    schema = schema_from_ddl("`order ``id``` LONG NOT NULL COMMENT 'it\\'s the key', b: INT")
    assert schema.fields == (
        Field("order `id`", Scalar.BIGINT, nullable=False, comment="it's the key"),
        Field("b", Scalar.INT),
    )


def test_structs_nest() -> None:
    nested = schema_from_ddl("s STRUCT<a: INT NOT NULL, b: ARRAY<STRUCT<c STRING>>>")
    inner = Struct((Field("c", Scalar.STRING),))
    assert nested.fields[0].type == Struct(
        (Field("a", Scalar.INT, nullable=False), Field("b", ListOf(inner)))
    )
    assert schema_from_ddl("STRUCT<c: STRING>") == inner


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("", "expected a field, such as 'id BIGINT' at position 0, found the end"),
        ("a", "expected a type .* at position 1, found the end"),
        ("a INT b INT", "expected a comma or the end at position 6, found 'b'"),
        ("a INTERVAL", "expected a type .*BIGINT.* found 'INTERVAL'"),
        ("a ARRAY<INT", "expected '>' at position 11, found the end"),
        ("a DECIMAL(x)", "expected a number at position 10, found 'x'"),
        ("a DECIMAL(39,1)", r"DECIMAL\(39,1\): a decimal has 1 to 38 digits"),
        ("a INT NOT", "expected 'NULL' at position 9"),
        ("a INT, A STRING", "'A' is there twice"),
        ("a INT; b INT", "cannot read '; b INT'"),
        ("a INT,", "expected the name of a field at position 6, found the end"),
        ("a " + "ARRAY<" * 70, "more than 64 levels"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(ddl: str, problem: str) -> None:
    with pytest.raises(BadSchema, match=problem):
        schema_from_ddl(ddl)


@settings(max_examples=60, deadline=None)
@given(SCHEMAS)
def test_a_schema_is_read_as_it_was_written(schema: Schema) -> None:
    assert schema_from_ddl(schema.ddl) == schema
    assert schema_from_ddl(str(schema)) == schema


@settings(max_examples=60, deadline=None)
@given(schemas(names=ANY_NAME))
def test_the_stored_form_is_read_as_it_was_written(schema: Schema) -> None:
    assert schema_from_spark_json(json.loads(json.dumps(schema_to_spark_json(schema)))) == schema


@settings(max_examples=60, deadline=None)
@given(schemas(names=ANY_NAME))
def test_arrow_knows_all_but_the_comments(schema: Schema) -> None:
    arrow = schema_to_arrow(schema)
    assert schema_to_arrow(schema_from_arrow(arrow)) == arrow
    assert [field.nullable for field in arrow] == [field.nullable for field in schema]


def test_elements_that_are_never_null_survive_as_json() -> None:
    element = MapOf(Scalar.STRING, Scalar.INT, value_nullable=False)
    schema = Struct((Field("a", ListOf(element, element_nullable=False)),))
    assert schema_from_spark_json(schema_to_spark_json(schema)) == schema
    assert schema_from_arrow(schema_to_arrow(schema)) == schema


@pytest.mark.parametrize(
    "document", [{}, {"type": "struct"}, {"type": "map"}, {"type": "interval"}]
)
def test_json_that_is_no_schema_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(BadSchema):
        schema_from_spark_json(document)
