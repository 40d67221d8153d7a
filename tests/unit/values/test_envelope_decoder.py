import json
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millstream.schemas.declaration import schema_of
from millstream.values.decoder import Decoded
from millstream.values.envelope_decoder import EnvelopeDecoder

SCHEMA = schema_of("id BIGINT NOT NULL, total DECIMAL(10,2), note STRING")


def envelope(op: str, after: dict[str, Any] | None, **more: Any) -> bytes:
    source = {"table": "orders", "schema_version": 1}  # as captures of ours write it
    parts = {"before": None, "after": after, "source": source, "op": op, "ts_ms": 1}
    return json.dumps(parts | more).encode()


def decoded(*values: bytes | None) -> Decoded:
    return EnvelopeDecoder(SCHEMA).decode(pa.array(values, pa.binary()))


def rows(*values: bytes | None) -> list[dict[str, Any]]:
    found = decoded(*values)
    assert not found.bad
    rows: list[dict[str, Any]] = found.batch.to_pylist()
    return rows


def reason(value: bytes) -> str:
    (bad,) = decoded(value).bad
    return bad.reason


@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_the_row_is_what_it_is_after_the_change(op: str) -> None:
    after = {"id": 7, "total": "9.50", "note": "tea"}
    assert rows(envelope(op, after)) == [{"id": 7, "total": Decimal("9.50"), "note": "tea"}]


def test_a_delete_and_a_tombstone_are_rows_of_nulls_and_a_delete_says_so_itself() -> None:
    found = decoded(envelope("d", None, before={"id": 7}), None, envelope("c", {"id": 8}))
    assert found.batch.column("id").to_pylist() == [None, None, 8]
    assert found.gone is not None
    assert found.gone.to_pylist() == [True, False, False]


def test_a_truncation_is_about_no_row_and_not_bad() -> None:
    found = decoded(envelope("t", None), envelope("c", {"id": 8}))
    assert not found.bad
    assert found.passed is not None
    assert found.passed.to_pylist() == [True, False]


def test_columns_that_the_table_has_got_or_lost_since_are_passed_over_or_null() -> None:
    assert rows(envelope("c", {"id": 7, "color": "red"})) == [
        {"id": 7, "total": None, "note": None}
    ]


def test_a_value_that_the_database_left_out_is_not_taken_for_null() -> None:
    cut = envelope("u", {"id": 7, "total": "1.00"}, unavailable=["note"])
    assert "left out note" in reason(cut)
    assert "REPLICA IDENTITY FULL" in reason(cut)


def test_a_left_out_column_that_nobody_reads_does_no_harm() -> None:
    assert rows(envelope("u", {"id": 7}, unavailable=["picture"]))[0]["id"] == 7


def test_what_is_no_envelope_is_bad_and_takes_no_others_with_it() -> None:
    found = decoded(envelope("c", {"id": 1}), b"oops", b'{"id":2}', envelope("c", {"id": 3}))
    assert [bad.row for bad in found.bad] == [1, 2]
    assert found.batch.column("id").to_pylist() == [1, None, None, 3]


def test_an_op_that_is_not_known_or_has_no_row_is_bad() -> None:
    assert "op 'x'" in reason(envelope("x", {"id": 1}))
    assert "no `after`" in reason(envelope("u", None))


def test_a_value_that_does_not_fit_names_its_column() -> None:
    assert "after.total" in reason(envelope("c", {"id": 1, "total": "much"}))


def test_it_travels_to_workers() -> None:
    again = pickle.loads(pickle.dumps(EnvelopeDecoder(SCHEMA)))
    assert again.arrow_schema == EnvelopeDecoder(SCHEMA).arrow_schema


def test_a_column_that_nobody_looks_at_makes_no_row_bad() -> None:
    """It had another type when the change was written, or was left out by the database."""
    retyped = envelope("u", {"id": 7, "total": "9.50", "note": {"was": "JSON"}})
    left_out = envelope("u", {"id": 8, "total": "1.00"}, unavailable=["note"])
    values = pa.array([retyped, left_out], pa.binary())
    decoder = pickle.loads(pickle.dumps(EnvelopeDecoder(SCHEMA, used=frozenset({"id", "total"}))))
    found = decoder.decode(values)
    assert not found.bad
    assert found.batch.schema == decoder.arrow_schema
    assert [row["total"] for row in found.batch.to_pylist()] == [Decimal("9.50"), Decimal("1.00")]
    assert found.batch.column("note").null_count == 2
    assert len(EnvelopeDecoder(SCHEMA).decode(values).bad) == 2


def test_numbers_that_json_has_not_are_read_as_captures_write_them() -> None:
    schema = schema_of("id BIGINT NOT NULL, x DOUBLE, y FLOAT")
    value = envelope("c", {"id": 1, "x": "NaN", "y": "-Infinity"})
    found = EnvelopeDecoder(schema).decode(pa.array([value], pa.binary()))
    assert not found.bad
    assert repr(found.batch.to_pylist()) == "[{'id': 1, 'x': nan, 'y': -inf}]"
