import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa
import pydantic
import pytest

from millstream.base.schema import BadSchema
from millstream.values.json_encoder import JsonEncoder
from millstream.values.raw_decoder import RawDecoder
from millstream.values.unfit import Unfit


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    sku: str
    pieces: int = 1


@dataclass
class Order:
    id: int
    lines: list[Line]
    colour: Colour = Colour.RED


class Click(pydantic.BaseModel):
    seen_at: datetime = pydantic.Field(alias="seenAt")
    user: str | None = None


def encoded(schema: Any, row: Any) -> Any:
    return json.loads(JsonEncoder(schema).encode(row))


def test_a_dataclass_is_its_own_schema() -> None:
    assert encoded(Order, Order(7, [Line("a")])) == {
        "id": 7,
        "lines": [{"sku": "a", "pieces": 1}],
        "colour": "red",
    }


def test_a_pydantic_model_is_written_with_its_aliases() -> None:
    at = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert encoded(Click, Click(seenAt=at)) == {"seenAt": "2026-01-01T00:00:00Z", "user": None}


def test_what_json_has_no_word_for_is_text() -> None:
    row = {"d": date(2026, 1, 2), "b": b"\x00\xff", "m": Decimal("1E+2"), "t": datetime(2026, 1, 2)}
    assert encoded("d DATE, b BINARY, m DECIMAL(6,2), t TIMESTAMP", row) == {
        "d": "2026-01-02",
        "b": "AP8=",
        "m": "100.00",
        "t": "2026-01-02T00:00:00Z",
    }


@pytest.mark.parametrize(
    ("schema", "row", "problem"),
    [
        ("a INT", {"a": 1.0}, "field `a`: expected INT, found 1.0"),
        ("a INT", {"a": True}, "field `a`: expected INT, found True"),
        ("a TINYINT", {"a": 128}, "field `a`: 128 does not fit TINYINT"),
        ("a STRING", {"a": 1}, "field `a`: expected STRING, found 1"),
        ("a STRING", {"a": "\ud800"}, "field `a`: half of a surrogate pair"),
        ("a FLOAT", {"a": 1e39}, r"field `a`: 1e\+39 does not fit FLOAT"),
        ("a DOUBLE", {"a": 10**400}, r"field `a`: 10*\.\.\. does not fit DOUBLE"),
        ("a DECIMAL(4,2)", {"a": 0.5}, r"field `a`: expected DECIMAL\(4,2\), found 0.5"),
        ("a DECIMAL(4,2)", {"a": Decimal("NaN")}, "field `a`: expected DECIMAL"),
        ("a DATE", {"a": datetime(2026, 1, 1, tzinfo=UTC)}, "field `a`: expected DATE"),
        ("a TIMESTAMP", {"a": date(2026, 1, 1)}, "field `a`: expected TIMESTAMP"),
        ("a BINARY", {"a": "x"}, "field `a`: expected BINARY, found 'x'"),
        ("a BOOLEAN", {"a": 1}, "field `a`: expected BOOLEAN, found 1"),
        ("a ARRAY<INT>", {"a": "12"}, "field `a`: expected ARRAY, found '12'"),
        ("a ARRAY<STRUCT<b: INT>>", {"a": [{"b": "x"}]}, r"field `a\[\].b`: expected INT"),
        ("a MAP<STRING, INT>", {"a": [1]}, "field `a`: expected MAP"),
        ("a INT NOT NULL", {}, "field `a`: it is NOT NULL, and is missing"),
        ("a INT NOT NULL", {"a": None}, "field `a`: it is NOT NULL, and is null"),
        ("a INT", {"b": 1}, "field `b`: it is not in the schema, which has a"),
        ("a INT", 5, "expected a mapping, a dataclass or a pydantic model, found 5"),
    ],
)
def test_a_row_that_does_not_fit_names_its_field(schema: str, row: Any, problem: str) -> None:
    with pytest.raises(Unfit, match=problem):
        JsonEncoder(schema).encode(row)


def test_a_map_in_json_has_texts_for_keys() -> None:
    with pytest.raises(BadSchema, match="the keys of a map are STRING in JSON"):
        JsonEncoder("a ARRAY<MAP<INT, INT>>")


def test_raw_values_stay_as_they_are() -> None:
    values = pa.array([b"\xff", None, b""], pa.binary())
    result = RawDecoder().decode(values)
    assert result.batch.to_pylist() == [{"value": b"\xff"}, {"value": None}, {"value": b""}]
    assert not result.bad


def test_raw_text_must_be_utf8() -> None:
    values = pa.array([b"a\xff", None, "é".encode()], pa.binary())
    result = RawDecoder("line", text=True).decode(values)
    assert result.batch.to_pylist() == [{"line": None}, {"line": None}, {"line": "é"}]
    assert [(bad.row, bad.reason) for bad in result.bad] == [
        (0, "not UTF-8: byte 0xff at position 1")
    ]


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [("avro_decoder", "fastavro", "avro"), ("protobuf_encoder", "google.protobuf", "protobuf")],
)
def test_a_library_that_is_missing_is_named_with_the_way_to_get_it(
    module: str, library: str, extra: str
) -> None:
    code = f"import sys; sys.modules['{library}'] = None; import millstream.values.{module}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"is not installed: run `pip install 'millstream[{extra}]'`" in run.stderr
