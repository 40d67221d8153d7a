"""Records become columns."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from millstream.processing.reading.record_columns import COLUMNS, RAW_TYPES, column_of


def record(
    number: int,
    *,
    time_ms: int | None = 0,
    headers: list[tuple[str, str | bytes | None]] | None = None,
) -> Message:
    kind = TIMESTAMP_NOT_AVAILABLE if time_ms is None else TIMESTAMP_CREATE_TIME
    return Message(
        topic="orders",
        partition=3,
        offset=number,
        key=b"k" if number % 2 else None,
        value=b"%d" % number,
        headers=headers,
        timestamp=(kind, -1 if time_ms is None else time_ms),
    )


@pytest.mark.parametrize("name", RAW_TYPES)
def test_every_column_has_its_type_and_a_row_for_every_record(name: str) -> None:
    column = COLUMNS[name]([record(0), record(1)])
    assert (column.type, len(column)) == (RAW_TYPES[name], 2)


def test_a_record_without_a_key_has_none() -> None:
    assert column_of("key", [record(0), record(1)]).to_pylist() == [None, b"k"]


def test_headers_keep_their_order_and_repetitions() -> None:
    with_headers = record(0, headers=[("b", b"1"), ("a", None), ("b", b"2")])
    assert column_of("headers", [with_headers, record(1)]).to_pylist() == [
        [{"key": "b", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b"2"}],
        [],
    ]


def test_a_record_without_a_time_has_none_and_others_are_exact() -> None:
    moment = datetime(2026, 7, 1, 12, 0, 0, 7_000, tzinfo=UTC)
    times = [record(0, time_ms=None), record(1, time_ms=round(moment.timestamp() * 1000))]
    assert column_of("timestamp", times).to_pylist() == [None, moment]


def test_a_time_that_no_microseconds_can_tell_is_none_and_stops_nobody() -> None:
    last_ms = (2**63 - 1) // 1_000
    times = [
        record(0, time_ms=last_ms),
        record(1, time_ms=last_ms + 1),
        record(2, time_ms=2**63 - 1),
    ]
    found = column_of("timestamp", times).cast(pa.int64()).to_pylist()
    assert found == [last_ms * 1_000, None, None]
