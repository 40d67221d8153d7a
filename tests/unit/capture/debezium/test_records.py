"""Records of `format="debezium"` beside those of a real Debezium 3.6.1, for the same rows.

The golden files are what it wrote for tests/support/debezium_table.py, in each of its modes. How
they are compared on one log, with both running: tests/clients/test_debezium_format.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from millstream.base.schema import DataType, Scalar
from millstream.capture.change import CapturedColumn, CapturedTable, Change, Transaction
from millstream.capture.debezium.records import DebeziumRecords, Order, lsn_of
from millstream.capture.debezium.values import Modes, form_of
from millstream.capture.envelope import Place, place_of
from millstream.schemas.declaration import schema_of

GOLDEN = Path(__file__).parents[3] / "golden" / "debezium"
OURS = json.loads((GOLDEN / "ours.json").read_text())
ROW = {**OURS["row"], "id": 1}
# What a table's description does not tell us: members of enums, defaults, NOT NULL beyond the key.
SCHEMAS_UNKNOWN = {"c_enum", "c_default", "c_text_default"}


def type_of(kind: str) -> DataType:
    return schema_of(f"c {kind}").fields[0].type


def table() -> CapturedTable:
    columns = tuple(
        CapturedColumn(
            name=name, database_type=declared, type=schema_of(f"c {kind}").fields[0].type
        )
        for name, declared, kind in OURS["columns"]
    )
    topic = "shop.public.every"
    return CapturedTable(name="public.every", topic=topic, columns=columns, key=("id",))


def records(name: str, *, has_schemas: bool = True) -> DebeziumRecords:
    time, decimal = name.split("-")
    modes = Modes(time, "precise" if decimal == "plain" else decimal)
    return DebeziumRecords(name="shop", database="postgres", modes=modes, has_schemas=has_schemas)


def golden(name: str) -> list[list[Any]]:
    return [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines()]


def of_op(name: str, op: str) -> list[Any]:
    """A key and a value of Debezium's."""
    for key, value in golden(name):
        payload = value and value.get("payload", value)
        if payload and payload.get("op") == op:
            return [key, value]
    raise AssertionError(op)


def text(found: Any) -> bytes:
    return json.dumps(found).encode()


def place_like(source: dict[str, Any], read_ms: int) -> Place:
    lsn = f"{source['lsn'] >> 32:X}/{source['lsn'] & 0xFFFFFFFF:X}"
    transaction = Transaction(
        lsn, lsn, str(source["txId"]), source["ts_ms"], [], at_us=source["ts_us"]
    )
    return place_of(transaction, read_ms=read_ms)


def fields_of(schema: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (one for one in schema["fields"] if one["field"] == name)
    return {one["field"]: one for one in found["fields"]}


MODES = [
    "adaptive-precise",
    "adaptive_time_microseconds-string",
    "connect-double",
    "isostring-precise",
    "microseconds-precise",
    "nanoseconds-precise",
]


@pytest.mark.parametrize("name", MODES)
def test_every_value_and_its_schema_are_debeziums(name: str) -> None:
    _, theirs = golden(name)[0]
    change = Change(table(), "c", b'{"id":1}', None, text(ROW))
    place = place_like(theirs["payload"]["source"], theirs["payload"]["ts_ms"])
    ours = json.loads(records(name).table(table()).value(change, place, None, None))
    assert ours["payload"]["after"] == theirs["payload"]["after"]
    known = fields_of(theirs["schema"], "after")
    for column, schema in fields_of(ours["schema"], "after").items():
        if column not in SCHEMAS_UNKNOWN:
            assert schema == known[column]


def without_rows(schema: Any) -> Any:
    return schema | {
        "fields": [one | {"fields": None} if "fields" in one else one for one in schema["fields"]]
    }


@pytest.mark.parametrize("op", ["c", "u", "d", "t"])
@pytest.mark.parametrize("name", ["adaptive-plain", "adaptive-precise"])
def test_an_envelope_is_debeziums_in_every_field(name: str, op: str) -> None:
    has_schemas = name == "adaptive-precise"
    key, theirs = of_op(name, op)
    payload = theirs["payload"] if has_schemas else theirs
    if op in "cu":  # a column of the type `name` is null in what Debezium streams
        payload["after"]["c_name"] = "nam"
    if op == "d":  # JsonConverter writes a column's default where it has null
        payload["before"] |= {"c_default": None, "c_text_default": None}
    number = (payload["after"] or payload["before"] or {"id": 0})["id"]
    row = {**ROW, "id": number, "c_int": payload["after"]["c_int"]} if op in "cu" else None
    change = Change(
        table(),
        op,  # type: ignore[arg-type]  # one of them
        text({"id": number}),
        text({"id": number}) if op == "d" else None,
        text(row) if row else None,
    )
    place = place_like(payload["source"], payload["ts_ms"])
    last_end = json.loads(payload["source"]["sequence"])[0]
    block = payload["transaction"]
    order = Order(block["total_order"], block["data_collection_order"])
    written = records(name, has_schemas=has_schemas).table(table())
    value = written.value(change, place, last_end and int(last_end), order)
    ours = json.loads(value)
    found = ours["payload"] if has_schemas else ours
    assert list(found) == list(payload)
    assert list(found["source"]) == list(payload["source"])
    for field in ("ts_us", "ts_ns"):  # ours is in whole milliseconds
        found[field] = payload[field]
    found["source"]["version"] = payload["source"]["version"]
    assert found == payload
    if has_schemas:
        assert without_rows(ours["schema"]) == without_rows(theirs["schema"])
        for part in ("source", "transaction"):
            assert fields_of(ours["schema"], part) == fields_of(theirs["schema"], part)
    if op != "t":
        assert json.loads(written.topic_key(text({"id": number}))) == key


@pytest.mark.parametrize("name", ["adaptive-plain", "adaptive-precise"])
def test_boundaries_are_debeziums(name: str) -> None:
    has_schemas = name == "adaptive-precise"
    ends = [one for one in golden(name) if "END" in json.dumps(one) or "BEGIN" in json.dumps(one)]
    counts = {"public.every": 2, "public.plain": 1}
    for key, value in ends[:2]:
        payload = value["payload"] if has_schemas else value
        number, lsn = payload["id"].split(":")
        at = f"0/{int(lsn):X}"
        transaction = Transaction(at, at, number, payload["ts_ms"], [])
        made = records(name, has_schemas=has_schemas)
        is_end = payload["status"] == "END"
        first = Change(table(), "c", None, None, None)
        found = made.end_of(transaction, counts) if is_end else made.begin_of(transaction, first)
        assert json.loads(found.value or b"") == value
        assert json.loads(found.key or b"") == key


@pytest.mark.parametrize("has_schemas", [True, False])
def test_a_swept_delete_has_the_key_before_and_the_key_of_the_topic(has_schemas: bool) -> None:
    """Flink's debezium-json fails on a delete without a row before it."""
    column = CapturedColumn(name="day", database_type="date", type=Scalar.DATE)
    note = CapturedColumn(name="note", database_type="text", type=Scalar.STRING)
    days = CapturedTable(name="public.days", topic="t", columns=(column, note), key=("day",))
    written = records("adaptive-precise", has_schemas=has_schemas).table(days)
    key = written.topic_key(b'{"day":"1975-05-05"}')
    place = Place("0/10", at_ms=5, read_ms=6)
    found = json.loads(written.swept(key, place))
    found = found["payload"] if has_schemas else found
    assert (found["op"], found["before"]) == ("d", {"day": 1950, "note": None})
    assert (found["source"]["snapshot"], found["source"]["txId"]) == ("incremental", None)


def test_a_value_that_was_not_sent_is_debeziums_placeholder() -> None:
    change = Change(table(), "u", b'{"id":1}', None, b'{"id":1}', ("c_text", "c_bytea", "c_texts"))
    place = Place("0/10", at_ms=5, read_ms=6, transaction_id="7")
    made = records("adaptive-plain", has_schemas=False).table(table())
    after = json.loads(made.value(change, place, None, None))["after"]
    assert after["c_text"] == "__debezium_unavailable_value"
    assert after["c_bytea"] == "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    assert after["c_texts"] == ["__debezium_unavailable_value"]


@pytest.mark.parametrize(
    ("declared", "mode", "given", "written"),
    [
        ("date", "adaptive", "1969-12-31", -1),
        ("date", "adaptive", "0044-03-15 BC", -735160),
        ("date", "adaptive", "10000-01-01", 2932897),
        ("date", "adaptive", "infinity", None),
        ("timestamp without time zone", "adaptive", "infinity", 9223372036825200000),
        ("timestamp without time zone", "adaptive", "1969-12-31T23:59:59.5", -500000),
        ("timestamp(3) without time zone", "adaptive", "1969-12-31T23:59:59.999", -1),
        ("time without time zone", "adaptive", "24:00:00", 86400000000),
        ("time with time zone", "adaptive", "00:30:00-05:30", "06:00:00Z"),
        ("time with time zone", "adaptive", "01:00:00.5+02", "23:00:00.5Z"),
        ("interval", "adaptive", "-00:00:01", -1000000),
        ("interval", "adaptive", "-1 days +02:00:00", -79200000000),
        ("interval", "adaptive", "00:00:00", 0),
        ("numeric(5,2)", "adaptive", "0.00", "AA=="),
        ("numeric(5,2)", "adaptive", "-1.28", "gA=="),
        ("numeric(5,2)", "adaptive", "1.28", "AIA="),
        ("numeric(5,2)", "adaptive", "NaN", None),
        ("numeric", "adaptive", "100", {"scale": 0, "value": "ZA=="}),
        ("money", "adaptive", "-$1,234.50", "/h3G"),
        ("bit varying", "adaptive", "", ""),
        ("bit(8)", "adaptive", "00000000", ""),
        ("integer[]", "adaptive", "{{1,2},{3,4}}", "{{1,2},{3,4}}"),
    ],
)
def test_values_at_the_edges(declared: str, mode: str, given: Any, written: Any) -> None:
    column = CapturedColumn(name="c", database_type=declared, type=Scalar.STRING)
    assert form_of(column, Modes(mode)).convert(given) == written


def test_positions_of_other_sources_have_no_lsn() -> None:
    assert lsn_of("0/15D6F40") == 22900544
    assert lsn_of("42") is None
