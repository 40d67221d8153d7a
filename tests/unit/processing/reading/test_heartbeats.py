"""Clock records, and the clock of an idle source."""

from dataclasses import dataclass

import pyarrow as pa
import pytest

from millstream.base.declared import EventTime
from millstream.processing.reading.heartbeats import (
    BEAT_FIELD,
    CLOCK_HEADER,
    IdleClock,
    beat_row,
    is_clock,
    read_clocks,
)
from millstream.processing.reading.lateness import MOMENT, moment

TERMS = EventTime(column="at", ahead_ms_max=1_000)


@dataclass
class Record:
    clock: bytes | None
    written_ms: int = 5_000
    content: bytes | None = None

    def value(self) -> bytes | None:
        return self.content

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self.clock is None else [("other", b"x"), (CLOCK_HEADER, self.clock)]

    def timestamp(self) -> tuple[int, int]:
        return 1, self.written_ms


def test_a_record_with_a_value_or_without_the_header_is_no_clock() -> None:
    assert is_clock(Record(b"1"))
    assert not is_clock(Record(b"1", content=b"{}"))
    assert not is_clock(Record(None))


def test_the_latest_clock_that_can_be_believed_counts() -> None:
    latest, bad = read_clocks([Record(b"4000"), Record(b"6000"), Record(b"6001")], TERMS)
    assert latest == 6_000
    assert [letter.row for letter in bad] == [2]


@pytest.mark.parametrize(
    "text", [b"", b"-1", b"soon", b"1.5", b"\xff", "²".encode(), b"1" * 16, b"0" * 5_000]
)
def test_a_clock_that_is_not_digits_is_bad(text: bytes) -> None:
    latest, (bad,) = read_clocks([Record(text)], TERMS)
    assert latest is None
    assert "not milliseconds in digits" in bad.reason


def test_a_heartbeat_is_null_in_all_but_its_time() -> None:
    schema = pa.schema([("name", pa.string()), ("at", MOMENT), BEAT_FIELD])
    told = moment(7).as_py()
    assert beat_row(schema, "at", 7).to_pylist() == [{"name": None, "at": told, "_beat": told}]


def test_a_heartbeat_may_be_of_any_year_that_spark_knows() -> None:
    told_ms = 10**15 - 1
    assert read_clocks([Record(b"9" * 15, written_ms=told_ms)], TERMS) == (told_ms, [])
    beat = beat_row(pa.schema([("at", MOMENT), BEAT_FIELD]), "at", told_ms)
    assert beat.column("at").cast(pa.int64()).to_pylist() == [told_ms * 1_000]


def test_a_source_tells_the_wall_clock_each_time_it_was_idle_so_long() -> None:
    clock = IdleClock(100, now_ms=0)
    assert clock.tell(None, now_ms=99, came=False) is None
    assert clock.tell(None, now_ms=100, came=False) == 100
    assert clock.tell(100, now_ms=199, came=False) == 100
    assert clock.tell(100, now_ms=200, came=False) == 200


def test_a_source_that_brings_records_is_not_idle() -> None:
    clock = IdleClock(100, now_ms=0)
    assert clock.tell(None, now_ms=90, came=True) is None
    assert clock.tell(None, now_ms=189, came=False) is None
    assert clock.tell(None, now_ms=190, came=False) == 190


def test_a_wall_clock_that_was_set_back_is_not_told() -> None:
    assert IdleClock(100, now_ms=0).tell(500, now_ms=200, came=False) == 500


def test_a_source_that_is_never_idle_tells_nothing() -> None:
    assert IdleClock(None, now_ms=0).tell(None, now_ms=10**9, came=False) is None
