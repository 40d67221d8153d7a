"""A table with a column of each type, which Debezium and a capture of ours read on the same log."""

from typing import NamedTuple


class Case(NamedTuple):
    name: str
    declared: str
    literal: str


CASES = (
    Case("c_smallint", "smallint", "-32768"),
    Case("c_int", "integer", "2147483647"),
    Case("c_bigint", "bigint", "9223372036854775807"),
    Case("c_bool", "boolean", "true"),
    Case("c_real", "real", "1.5"),
    Case("c_double", "double precision", "0.1"),
    Case("c_numeric_p", "numeric(10,2)", "-12345678.90"),
    Case("c_numeric", "numeric", "123456789012345678901234567890.12345"),
    Case("c_numeric_0", "numeric(20,0)", "18446744073709551615"),
    Case("c_money", "money", "'$12.34'"),
    Case("c_char", "char(5)", "'ab'"),
    Case("c_varchar", "varchar(20)", "'tea é'"),
    Case("c_text", "text", "'x\"y'"),
    Case("c_name", "name", "'nam'"),
    Case("c_bytea", "bytea", "'\\x00ff10'"),
    Case("c_date", "date", "'1975-05-05'"),
    Case("c_time", "time", "'12:34:56.789012'"),
    Case("c_time3", "time(3)", "'12:34:56.789'"),
    Case("c_timetz", "timetz", "'12:34:56.789+02'"),
    Case("c_ts", "timestamp", "'1975-05-05 12:34:56.789012'"),
    Case("c_ts3", "timestamp(3)", "'2026-01-02 03:04:05.678'"),
    Case("c_ts0", "timestamp(0)", "'2026-01-02 03:04:05'"),
    Case("c_tstz", "timestamptz", "'1975-05-05 12:34:56.789012+02'"),
    Case("c_interval", "interval", "'1 year 2 mons -3 days 04:05:06.7'"),
    Case("c_json", "json", "'{\"a\":  1}'"),
    Case("c_jsonb", "jsonb", "'{\"a\": [1, 2]}'"),
    Case("c_uuid", "uuid", "'123e4567-e89b-12d3-a456-426655440000'"),
    Case("c_inet", "inet", "'10.0.0.1/24'"),
    Case("c_cidr", "cidr", "'10.0.0.0/8'"),
    Case("c_macaddr", "macaddr", "'08:00:2b:01:02:03'"),
    Case("c_macaddr8", "macaddr8", "'08:00:2b:01:02:03:04:05'"),
    Case("c_bit1", "bit(1)", "B'1'"),
    Case("c_bit9", "bit(9)", "B'100000001'"),
    Case("c_varbit", "varbit(12)", "B'101'"),
    Case("c_point", "point", "'(1,2.5)'"),
    Case("c_int4range", "int4range", "'[1,5)'"),
    Case("c_int8range", "int8range", "'[1,5)'"),
    Case("c_numrange", "numrange", "'[1.5,5)'"),
    Case("c_tsrange", "tsrange", "'[2026-01-01,2026-01-02)'"),
    Case("c_tstzrange", "tstzrange", "'[2026-01-01 00:00+00,2026-01-02 00:00+00)'"),
    Case("c_daterange", "daterange", "'[2026-01-01,2026-01-05)'"),
    Case("c_ints", "integer[]", "'{1,NULL,3}'"),
    Case("c_texts", "text[]", "'{a,\"b,c\",NULL}'"),
    Case("c_numerics", "numeric(10,2)[]", "'{1.50,NULL}'"),
    Case("c_dates", "date[]", "'{2026-01-01}'"),
    Case("c_tss", "timestamp[]", "'{2026-01-01 12:00:00.5}'"),
    Case("c_bools", "boolean[]", "'{t,f}'"),
    Case("c_bigints", "bigint[]", "'{1,2}'"),
    Case("c_doubles", "double precision[]", "'{1.5}'"),
    Case("c_uuids", "uuid[]", "'{123e4567-e89b-12d3-a456-426655440000}'"),
    Case("c_enum", "mood", "'sad'"),
    Case("c_oid", "oid", "4294967295"),
    Case("c_tsvector", "tsvector", "'a fat cat'"),
    Case("c_domain", "money_amount", "'9.95'"),
    Case("c_default", "integer DEFAULT 7", "7"),
    Case("c_text_default", "text NOT NULL DEFAULT 'd'", "'e'"),
)
TYPES = (
    "CREATE TYPE mood AS ENUM ('sad','ok')",
    "CREATE DOMAIN money_amount AS numeric(8,2)",
)
TABLES = (
    "CREATE TABLE every (id integer PRIMARY KEY, "
    + ", ".join(f"{case.name} {case.declared}" for case in CASES)
    + ")",
    "CREATE TABLE plain (a integer, b text)",
    "ALTER TABLE plain REPLICA IDENTITY FULL",
)


def inserted(number: int) -> str:
    """A row with a value in every column."""
    names = ", ".join(case.name for case in CASES)
    values = ", ".join(case.literal for case in CASES)
    return f"INSERT INTO every (id, {names}) VALUES ({number}, {values})"
