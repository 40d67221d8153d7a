"""Rows of captured tables as Avro: what a type cannot hold goes aside, and stops nothing."""

import io
import json
from typing import Any

import fastavro
import pytest

from millstream.capture.avro_values import AvroValues, envelope_schema, with_unfit
from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.schemas.avro_schema import schema_to_avro
from millstream.schemas.declaration import schema_of

COLUMNS = schema_of(
    "id BIGINT, x DOUBLE, born DATE, at TIMESTAMP, price DECIMAL(10,2), tags ARRAY<INT>"
)
TABLE = CapturedTable(
    name="public.people",
    topic="shop.people",
    columns=tuple(
        CapturedColumn(name=one.name, database_type="any", type=one.type) for one in COLUMNS
    ),
    key=("id",),
)
ROW = {"id": 1, "x": 0.1, "born": "2026-01-01", "at": None, "price": "1.50", "tags": [1]}


def as_avro(after: dict[str, Any]) -> dict[str, Any]:
    envelope = {"before": None, "after": after, "source": None, "op": "c", "ts_ms": 1}
    values = AvroValues(TABLE).encode([json.dumps(one).encode() for one in (envelope, envelope)])
    schema = fastavro.parse_schema(schema_to_avro(with_unfit(envelope_schema(TABLE))))
    first, second = (fastavro.schemaless_reader(io.BytesIO(one), schema, None) for one in values)
    assert repr(first) == repr(second)
    assert isinstance(first, dict)
    return first


def test_a_row_that_fits_has_nothing_aside() -> None:
    found = as_avro(ROW)
    assert (found["after"]["x"], found["after"]["tags"], found["unfit"]) == (0.1, [1], None)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_has_not_are_numbers_in_avro(word: str) -> None:
    found = as_avro(ROW | {"x": word})
    assert repr(found["after"]["x"]) == repr(float(word))
    assert found["unfit"] is None


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("born", "0044-03-15 BC", "0044-03-15 BC"),
        ("born", "infinity", "infinity"),
        ("at", "-infinity", "-infinity"),
        ("price", "NaN", "NaN"),
        ("tags", "{{1,2},{3,4}}", "{{1,2},{3,4}}"),
        ("tags", [[1]], "[[1]]"),
    ],
)
def test_what_a_type_cannot_hold_is_a_text_beside_the_row(
    column: str, value: Any, text: str
) -> None:
    found = as_avro(ROW | {column: value})
    assert found["after"][column] is None
    assert found["unfit"] == {f"after.{column}": text}
    assert found["after"]["id"] == 1
