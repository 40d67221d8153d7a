"""Records of a captured table whose columns have had other types."""

import json
import pickle
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from millstream.schemas.declaration import schema_of
from millstream.values.decoder import Decoded
from millstream.values.envelope_decoder import EnvelopeDecoder


def envelope(version: int, after: dict[str, Any] | None, op: str = "c") -> bytes:
    source = {"table": "orders", "schema_version": version, "ts_ms": 1, "txId": 7}
    parts = {"before": None, "after": after, "source": source, "op": op, "ts_ms": 1}
    return json.dumps(parts, separators=(",", ":")).encode()


def decode(old: str, new: str, *values: bytes | None, used: Any = None) -> Decoded:
    """By a job that knows version 2 with the column `new`; in version 1 it was `old`."""
    versions = {number: schema_of(f"id BIGINT, v {v}") for number, v in ((1, old), (2, new))}
    decoder = pickle.loads(pickle.dumps(EnvelopeDecoder(versions[2], used=used, versions=versions)))
    found: Decoded = decoder.decode(pa.array(values, pa.binary()))
    return found


NOON = datetime(2026, 1, 1, 12)
CONVERTED = [
    ("INT", "BIGINT", 5, 5),
    ("BIGINT", "SMALLINT", 5, 5),
    ("INT", "STRING", -5, "-5"),
    ("INT", "DECIMAL(5,2)", 5, Decimal("5.00")),
    ("INT", "DOUBLE", 5, 5.0),
    ("FLOAT", "DOUBLE", 0.1, 0.10000000149011612),
    ("DOUBLE", "FLOAT", 0.5, 0.5),
    ("BOOLEAN", "INT", True, 1),
    ("DECIMAL(5,2)", "DECIMAL(9,3)", "1.50", Decimal("1.500")),
    ("DECIMAL(5,2)", "STRING", "1.50", "1.50"),
    ("STRING", "INT", "-5", -5),
    ("STRING", "DECIMAL(5,2)", "1.5", Decimal("1.50")),
    ("DATE", "STRING", "2026-01-01", "2026-01-01"),
    ("DATE", "TIMESTAMP_NTZ", "2026-01-01", datetime(2026, 1, 1)),
    ("TIMESTAMP_NTZ", "STRING", "2026-01-01T12:00:00.5", "2026-01-01 12:00:00.5"),
    ("STRING", "TIMESTAMP_NTZ", "2026-01-01 12:00:00", NOON),
]


@pytest.mark.parametrize(("old", "new", "written", "read"), CONVERTED)
def test_a_value_of_an_older_type_is_converted_where_nothing_is_lost(
    old: str, new: str, written: Any, read: Any
) -> None:
    found = decode(
        old, new, envelope(1, {"id": 1, "v": written}), envelope(1, {"id": 2, "v": None})
    )
    assert found.bad == []
    assert found.batch.to_pylist() == [{"id": 1, "v": read}, {"id": 2, "v": None}]


REFUSED = [
    ("BIGINT", "TIMESTAMP", 5),
    ("BIGINT", "BOOLEAN", 1),
    ("BIGINT", "DOUBLE", 2**53 + 1),
    ("INT", "FLOAT", 2**24 + 1),
    ("DOUBLE", "FLOAT", 0.1),
    ("DOUBLE", "FLOAT", 1e300),
    ("DOUBLE", "STRING", 1.5),
    ("DOUBLE", "BIGINT", 1.0),
    ("BOOLEAN", "STRING", True),
    ("BINARY", "STRING", "eA=="),
    ("STRING", "BINARY", "eA=="),
    ("STRING", "INT", "05"),
    ("STRING", "INT", "five"),
    ("STRING", "TINYINT", "128"),
    ("STRING", "BOOLEAN", "true"),
    ("DATE", "TIMESTAMP", "2026-01-01"),
    ("TIMESTAMP_NTZ", "TIMESTAMP", "2026-01-01T12:00:00"),
    ("TIMESTAMP", "TIMESTAMP_NTZ", "2026-01-01T12:00:00Z"),
    ("TIMESTAMP", "STRING", "2026-01-01T12:00:00Z"),
    ("ARRAY<INT>", "STRING", [1]),
]


@pytest.mark.parametrize(("old", "new", "written"), REFUSED)
def test_a_value_that_would_lose_something_is_bad_with_both_types(
    old: str, new: str, written: Any
) -> None:
    """Also one that can be read as the new type, and would be another value then."""
    found = decode(old, new, envelope(1, {"id": 1, "v": written}))
    (bad,) = found.bad
    assert bad.reason.startswith(f"field `v`: it was {old} in version 1 of the table")
    assert f"is {new} now" in bad.reason
    assert "millstream capture reload" in bad.reason
    unused = decode(old, new, envelope(1, {"id": 1, "v": written}), used=frozenset({"id"}))
    assert unused.bad == []


def test_records_of_all_versions_stay_in_their_order() -> None:
    found = decode(
        "INT",
        "STRING",
        envelope(2, {"id": 1, "v": "a"}),
        envelope(1, {"id": 2, "v": 2}),
        None,
        b"not JSON",
        envelope(1, {"id": 3, "v": "not of its version"}),
        envelope(1, None, op="d"),
        envelope(2, {"id": 4, "v": 4}),
        envelope(1, {"id": 5, "v": 5}),
        envelope(2, {"id": 6, "v": "f"}),
    )
    assert [bad.row for bad in found.bad] == [3, 4, 6]
    assert [row["v"] for row in found.batch.to_pylist() if row["id"]] == ["a", "2", "5", "f"]
    assert found.batch.column("id").to_pylist() == [1, 2, None, None, None, None, None, 5, 6]
    assert found.gone is not None
    assert found.gone.to_pylist() == [False] * 5 + [True] + [False] * 3


def test_a_bad_row_of_a_version_that_the_job_does_not_know_says_to_restart_it() -> None:
    found = decode(
        "INT", "INT", envelope(3, {"id": 1, "v": "text now"}), envelope(2, {"id": 1, "v": "bad"})
    )
    newer, known = (bad.reason for bad in found.bad)
    assert "it has version 3 of the table, which the job does not know: restart it" in newer
    assert "version" not in known
