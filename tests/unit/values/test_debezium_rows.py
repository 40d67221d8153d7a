"""Rows as Debezium writes them, read as a table's. The records are of a real Debezium 3.6.1."""

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.base.declared import BadDeclaration, DebeziumModes, DeclaredTable
from millstream.schemas.declaration import schema_of
from millstream.values.envelope_decoder import EnvelopeDecoder

GOLDEN = Path(__file__).parents[2] / "golden" / "debezium"
SCHEMA = schema_of(
    "id INT, c_bool BOOLEAN, c_double DOUBLE, c_numeric_p DECIMAL(10,2), "
    "c_numeric DECIMAL(38,5), c_numeric_0 DECIMAL(20,0), c_money DECIMAL(10,2), "
    "c_domain DECIMAL(8,2), c_date DATE, c_timetz STRING, c_ts TIMESTAMP_NTZ, "
    "c_ts3 TIMESTAMP_NTZ, c_ts0 TIMESTAMP_NTZ, c_tstz TIMESTAMP, c_interval BIGINT, "
    "c_bytea BINARY, c_text STRING, c_ints ARRAY<INT>, c_oid BIGINT"
)
MS = {"c_ts3": "ms", "c_ts0": "ms"}


def first(name: str) -> Any:
    """The value of the first record: a row of every type."""
    return json.loads((GOLDEN / f"{name}.jsonl").read_text().splitlines()[0])[1]


def read(value: Any, **modes: Any) -> dict[str, Any]:
    decoder = EnvelopeDecoder(SCHEMA, DebeziumModes(**modes))
    found = decoder.decode(pa.array([json.dumps(value).encode()], pa.binary()))
    assert not found.bad, found.bad
    row: dict[str, Any] = found.batch.to_pylist()[0]
    return row


def require_right(row: dict[str, Any], *, micros: int = 789012, is_double: bool = False) -> None:
    assert row["c_date"] == date(1975, 5, 5)
    assert row["c_ts"] == datetime(1975, 5, 5, 12, 34, 56, micros)
    assert row["c_ts3"] == datetime(2026, 1, 2, 3, 4, 5, 678000)
    assert row["c_ts0"] == datetime(2026, 1, 2, 3, 4, 5)
    assert row["c_tstz"].isoformat() == "1975-05-05T10:34:56.789012+00:00"
    assert row["c_interval"] == 36572706700000
    assert row["c_numeric_p"] == Decimal("-12345678.90")
    assert (row["c_money"], row["c_domain"]) == (Decimal("12.34"), Decimal("9.95"))
    assert row["c_bytea"] == b"\x00\xff\x10"
    if not is_double:
        assert row["c_numeric"] == Decimal("123456789012345678901234567890.12345")
        assert row["c_numeric_0"] == Decimal(2**64 - 1)


@pytest.mark.parametrize(
    "name",
    [
        "adaptive-precise",
        "adaptive_time_microseconds-string",
        "isostring-precise",
        "microseconds-precise",
        "nanoseconds-precise",
    ],
)
def test_a_record_with_schemas_says_itself_how_it_is_read(name: str) -> None:
    require_right(read(first(name)))


@pytest.mark.parametrize(
    ("name", "modes"),
    [
        ("adaptive-precise", {"units": MS}),
        ("adaptive_time_microseconds-string", {"decimal": "string", "units": MS}),
        ("isostring-precise", {"time": "isostring"}),
        ("microseconds-precise", {"time": "microseconds"}),
        ("nanoseconds-precise", {"time": "nanoseconds"}),
    ],
)
def test_without_schemas_the_declaration_says_it(name: str, modes: dict[str, Any]) -> None:
    require_right(read(first(name)["payload"], **modes))


def test_what_a_mode_cut_off_is_not_there() -> None:
    value = first("connect-double")
    value["payload"]["after"] |= {"c_numeric": None, "c_numeric_0": None}  # no digits left
    require_right(read(value), micros=789000, is_double=True)
    modes = {"time": "connect", "decimal": "double"}
    require_right(read(value["payload"], **modes), micros=789000, is_double=True)


def test_microseconds_are_never_read_as_milliseconds() -> None:
    assert read(first("adaptive-plain"), units=MS)["c_ts"] == datetime(
        1975, 5, 5, 12, 34, 56, 789012
    )


def bad_of(after: dict[str, Any], **modes: Any) -> list[str]:
    decoder = EnvelopeDecoder(SCHEMA, DebeziumModes(**modes))
    value = json.dumps({"op": "c", "after": {"id": 1, **after}}).encode()
    return [bad.reason for bad in decoder.decode(pa.array([value, value], pa.binary())).bad]


@pytest.mark.parametrize(
    ("after", "modes", "reason"),
    [
        ({"c_numeric_p": "12.34"}, {}, "c_numeric_p"),  # a string where bytes are declared
        ({"c_ts": 5}, {"time": "isostring"}, "c_ts: 5 is a number"),
        ({"c_date": 10**9}, {}, "c_date"),
        ({"c_ts": 10**20}, {}, "c_ts"),
    ],
)
def test_what_does_not_fit_is_a_bad_row_and_no_guess(
    after: dict[str, Any], modes: dict[str, Any], reason: str
) -> None:
    found = bad_of(after, **modes)
    assert len(found) == 2
    assert all(reason in one for one in found)


def test_a_value_that_debezium_did_not_have_is_no_value() -> None:
    (reason, _) = bad_of({"c_text": "__debezium_unavailable_value"})
    assert "left out c_text" in reason


def test_records_of_our_own_captures_are_read_as_they_are() -> None:
    source = {"table": "orders", "schema_version": 1, "ts_ms": 7, "txId": "7", "commit": "0/1"}
    row = {"id": 1, "c_numeric_p": "1234", "c_ts": "1975-05-05T12:34:56", "c_date": "1975-05-05"}
    for separators in ((",", ":"), (", ", ": ")):
        value = json.dumps({"op": "c", "after": row, "source": source}, separators=separators)
        decoder = EnvelopeDecoder(SCHEMA)
        found = decoder.decode(pa.array([value.encode(), None], pa.binary()))
        assert not found.bad
        assert found.batch.to_pylist()[0]["c_numeric_p"] == Decimal("1234.00")


def test_a_column_with_the_name_of_our_mark_fools_nobody() -> None:
    after = {"id": 1, "schema_version": 1, "commit": "x", "c_ts": 168525296789012}
    decoder = EnvelopeDecoder(SCHEMA)
    value = json.dumps({"op": "c", "after": after}, separators=(",", ":")).encode()
    row = decoder.decode(pa.array([value], pa.binary())).batch.to_pylist()[0]
    assert row["c_ts"] == datetime(1975, 5, 5, 12, 34, 56, 789012)


@pytest.mark.parametrize(
    "modes", [{"time": "seconds"}, {"decimal": "base64"}, {"units": {"c_ts": "s"}}]
)
def test_a_mode_that_is_none_is_refused(modes: dict[str, Any]) -> None:
    with pytest.raises(BadDeclaration, match="one of"):
        DebeziumModes(**modes)


def test_modes_are_of_the_encoding_and_units_of_columns() -> None:
    with pytest.raises(BadDeclaration, match="encoding='debezium'"):
        DeclaredTable(
            name="t", schema=SCHEMA, key=("id",), debezium=DebeziumModes(decimal="string")
        )
    with pytest.raises(BadDeclaration, match="nowhere"):
        DeclaredTable(
            name="t",
            schema=SCHEMA,
            key=("id",),
            encoding="debezium",
            debezium=DebeziumModes(units={"nowhere": "ms"}),
        )
