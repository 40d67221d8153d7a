"""Rows as records: keys that a table's reader reads back, tombstones, and rows that do not fit."""

import json
import pickle
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millstream.base.declared import BadDeclaration, DeclaredTable, DeclaredTopic
from millstream.base.schema import Schema
from millstream.processing.reading.table_rows import TableKeys
from millstream.schemas.declaration import schema_of
from millstream.values.key_encoder import KeyEncoder
from millstream.values.row_records import (
    BadRow,
    RowRecords,
    RowsDoNotFit,
    records_for_columns,
    row_records,
)

SALE = schema_of("id BIGINT NOT NULL, item STRING, price DECIMAL(10, 2)")


def records(schema: Schema = SALE, key: tuple[str, ...] = ("id",), **terms: Any) -> RowRecords:
    return row_records(DeclaredTopic(name="sales", schema=schema, key=key, **terms), schema)


@pytest.mark.parametrize(
    ("ddl", "row", "expected"),
    [
        ("k BIGINT", {"k": -7}, b"-7"),
        ("k BOOLEAN", {"k": True}, b"true"),
        ("k DOUBLE", {"k": 0.5}, b"0.5"),
        ("k STRING", {"k": "ada"}, b"ada"),
        ("k STRING", {"k": "7"}, b"7"),
        ("k STRING", {"k": "Ä \n"}, "Ä \n".encode()),
        ("k STRING", {"k": '"quoted"'}, rb'"\"quoted\""'),
        ("k STRING", {"k": ' {"a": 1}'}, rb'" {\"a\": 1}"'),
        ("k STRING", {"k": ""}, b""),
        ("k DATE", {"k": date(2026, 7, 1)}, b"2026-07-01"),
        ("k TIMESTAMP", {"k": datetime(2026, 7, 1, tzinfo=UTC)}, b"2026-07-01T00:00:00Z"),
        ("k DECIMAL(5, 2)", {"k": Decimal("1.5")}, b"1.50"),
        ("k BINARY", {"k": b"\xff"}, b"/w=="),
        ("k ARRAY<INT>", {"k": [1, 2]}, b'{"k":[1,2]}'),
        ("k STRUCT<a: INT>", {"k": {"a": 1}}, b'{"k":{"a":1}}'),
        ("b STRING, a INT", {"a": 1, "b": "x"}, b'{"b":"x","a":1}'),
    ],
)
def test_a_key_is_read_back_from_its_record(ddl: str, row: dict[str, Any], expected: bytes) -> None:
    schema = schema_of(ddl)
    key = tuple(field.name for field in schema)
    encoder = pickle.loads(pickle.dumps(KeyEncoder(schema, key)))
    assert encoder.encode(row) == expected
    decoded = TableKeys(schema, key).decode([expected])
    assert (decoded.bad, decoded.batch.to_pylist()) == ([], [row])


def test_a_key_that_is_null_is_none() -> None:
    assert KeyEncoder(SALE, ("item",)).encode({"item": None}) is None
    assert KeyEncoder(SALE, ("id", "item")).encode({"id": 1}) == b'{"id":1,"item":null}'


def test_changes_become_records() -> None:
    row = {"id": 1, "item": "tea", "price": Decimal("2.5"), "_order": 9}
    value = {"id": 1, "item": "tea", "price": "2.50"}
    made = {
        change: records().record(row | {"_change": change})
        for change in (None, "upsert", "insert", "retract", "delete")
    }
    assert {key for key, _ in made.values()} == {b"1"}
    values = {change: json.loads(value or b"null") for change, (_, value) in made.items()}
    assert values == {
        None: value,
        "upsert": value,
        "insert": value | {"_change": "insert"},
        "retract": value | {"_change": "retract"},
        "delete": None,
    }


def test_columns_of_arrow_become_records() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"id": 1, "item": None, "price": Decimal("1.00")}, {"id": 2, "item": "x", "price": None}]
    )
    made = records().records(batch).to_pylist()
    assert [(row["key"], json.loads(row["value"])["item"]) for row in made] == [
        (b"1", None),
        (b"2", "x"),
    ]


def test_a_dataclass_is_a_row() -> None:
    @dataclass
    class Sale:
        id: int
        item: str = "tea"

    _, value = records().record(Sale(1))
    assert json.loads(value or b"") == {"id": 1, "item": "tea", "price": None}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"item": "tea"}, r"the row \{'item': 'tea'\} cannot be written: .*`id`.* NOT NULL"),
        ({"id": "x"}, "`id`: expected BIGINT, found 'x'"),
        ({"id": 1, "tax": 2}, "`tax`: it is not in the schema"),
        ({"_change": "delete"}, "it deletes, and has no key"),
        (7, "expected a mapping, a dataclass or a pydantic model"),
    ],
)
def test_a_row_that_does_not_fit_is_named(row: Any, message: str) -> None:
    with pytest.raises(BadRow, match=message):
        records().record(row)


def test_avro_needs_the_change_in_its_schema() -> None:
    without = records(encoding="avro")
    with pytest.raises(BadRow, match=r"it is a retract, and .* has no field _change"):
        without.record({"id": 1, "_change": "retract"})
    schema = schema_of("id BIGINT, _change STRING")
    key, value = records(schema, encoding="avro").record({"id": 1, "_change": "retract"})
    assert (key, b"retract" in (value or b"")) == (b"1", True)


def test_a_schema_with_the_change_gets_it_of_every_row() -> None:
    telling = records(schema_of("id BIGINT, _change STRING"))
    for change in ("upsert", "insert", None):
        _, value = telling.record({"id": 1, "_change": change})
        assert json.loads(value or b"") == {"id": 1, "_change": change}
    assert telling.record({"id": 1, "_change": "delete"}) == (b"1", None)


def test_raw_values_are_one_column() -> None:
    assert records(schema_of("v STRING"), (), encoding="raw").record({"v": "a"}) == (None, b"a")
    with pytest.raises(BadDeclaration, match="raw values are one column"):
        records(encoding="raw")


def test_columns_must_fit_the_schema() -> None:
    topic = DeclaredTable(name="sales", schema=SALE, key=("id",))
    records_for_columns(topic, schema_of("price DECIMAL(5, 2), id INT, _change STRING"))
    with pytest.raises(RowsDoNotFit, match="column tax is INT, the schema has no such field"):
        records_for_columns(topic, schema_of("id INT, tax INT"))
    with pytest.raises(RowsDoNotFit, match="column id is STRING, the schema has BIGINT"):
        records_for_columns(topic, schema_of("id STRING"))
