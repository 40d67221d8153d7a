"""Records become columns."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE

from millstream.processing.reading.record_columns import COLUMNS, RAW_TYPES, column_of


@dataclass(frozen=True)
class Kept:
    """A record as librdkafka shows it."""

    number: int
    time_ms: int | None = 0
    its_headers: list[tuple[str, bytes | None]] | None = None

    def key(self) -> bytes | None:
        return b"k" if self.number % 2 else None

    def value(self) -> bytes | None:
        return b"%d" % self.number

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.its_headers

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return self.number

    def timestamp(self) -> tuple[int, int]:
        if self.time_ms is None:
            return TIMESTAMP_NOT_AVAILABLE, -1
        return TIMESTAMP_CREATE_TIME, self.time_ms


@pytest.mark.parametrize("name", RAW_TYPES)
def test_every_column_has_its_type_and_a_row_for_every_record(name: str) -> None:
    column = COLUMNS[name]([Kept(0), Kept(1)])
    assert (column.type, len(column)) == (RAW_TYPES[name], 2)


def test_a_record_without_a_key_has_none() -> None:
    assert column_of("key", [Kept(0), Kept(1)]).to_pylist() == [None, b"k"]


def test_headers_keep_their_order_and_repetitions() -> None:
    with_headers = Kept(0, its_headers=[("b", b"1"), ("a", None), ("b", b"2")])
    assert column_of("headers", [with_headers, Kept(1)]).to_pylist() == [
        [{"key": "b", "value": b"1"}, {"key": "a", "value": None}, {"key": "b", "value": b"2"}],
        [],
    ]


def test_a_record_without_a_time_has_none_and_others_are_exact() -> None:
    moment = datetime(2026, 7, 1, 12, 0, 0, 7_000, tzinfo=UTC)
    times = [Kept(0, time_ms=None), Kept(1, time_ms=round(moment.timestamp() * 1000))]
    assert column_of("timestamp", times).to_pylist() == [None, moment]


def test_a_time_that_no_microseconds_can_tell_is_none_and_stops_nobody() -> None:
    last_ms = (2**63 - 1) // 1_000
    times = [Kept(0, time_ms=last_ms), Kept(1, time_ms=last_ms + 1), Kept(2, time_ms=2**63 - 1)]
    found = column_of("timestamp", times).cast(pa.int64()).to_pylist()
    assert found == [last_ms * 1_000, None, None]
