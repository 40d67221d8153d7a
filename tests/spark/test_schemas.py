"""Our schemas are Spark's: its types, its JSON, and its own reading of DDL."""

import json

import pytest
from hypothesis import given, settings
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from millstream.base.schema import Schema
from millstream.schemas.ddl import schema_from_ddl
from millstream.schemas.spark_json import schema_from_spark_json, schema_to_spark_json
from tests.support.schema_strategies import ANY_NAME, schemas

DDL = [
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BINARY",
    "j DATE, k TIMESTAMP, l TIMESTAMP_NTZ, m DECIMAL(12,2), n ARRAY<INT>, o MAP<STRING,INT>",
    "a BYTE, b SHORT, c INTEGER, d LONG, e REAL, f DEC, g NUMERIC(5), h TIMESTAMP_LTZ",
    "`order ``id``` LONG NOT NULL COMMENT 'it\\'s the key', b: INT",
    "s STRUCT<a: INT NOT NULL, b: ARRAY<STRUCT<c STRING COMMENT 'x'>>>",
    "STRUCT<c: STRING>",
]


@settings(max_examples=60, deadline=None)
@given(schemas(names=ANY_NAME))
def test_spark_reads_our_json_and_we_read_sparks(schema: Schema) -> None:
    in_spark = StructType.fromJson(schema_to_spark_json(schema))
    assert schema_from_spark_json(json.loads(in_spark.json())) == schema


@pytest.mark.parametrize("ddl", DDL)
def test_spark_reads_ddl_as_we_do(spark: SparkSession, ddl: str) -> None:
    ours = StructType.fromJson(schema_to_spark_json(schema_from_ddl(ddl)))
    assert StructType.fromDDL(ddl) == ours


@settings(max_examples=20, deadline=None)
@given(schema=schemas(names=ANY_NAME, elements_nullable=True))
def test_spark_reads_the_ddl_that_we_write(spark: SparkSession, schema: Schema) -> None:
    assert StructType.fromDDL(schema.ddl) == StructType.fromJson(schema_to_spark_json(schema))
