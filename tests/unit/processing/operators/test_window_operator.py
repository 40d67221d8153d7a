"""The operators alone: Spark's own tester for the streams, Arrow tables for static groups."""

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from millstream.processing.operators import clock_skew, window_operator
from millstream.processing.operators.aggregates import Count, Sum
from millstream.processing.operators.clock_skew import SkewPlan, SkewProcessor
from millstream.processing.operators.window_changes import Emit
from millstream.processing.operators.window_kinds import Hopping
from millstream.processing.operators.window_operator import WindowPlan, WindowProcessor

SECOND_US = 1_000_000
TEN_SECONDS = Hopping(size_us=10 * SECOND_US, every_us=10 * SECOND_US)
SLOT = 7
Event = Row("slot", "time", "at", "key_0", "value_0", "value_1")


def plan(emit: Emit) -> WindowPlan:
    return WindowPlan(TEN_SECONDS, (Count(), Sum("amount")), emit, key_size=1)


def operator_of(emit: Emit) -> TwsTester:
    return TwsTester(
        WindowProcessor(plan(emit)),
        timeMode="EventTime",
        outputMode="Update",
        eventTimeExtractor=lambda row: used_until_ms(row["at"], plan(emit)),
    )


def used_until_ms(at_us: int, of: WindowPlan) -> int:
    """As `windows.py` has Spark judge it."""
    return max(int(of.last_use().until_us(np.array([at_us]))[0]) // 1000, 1)


def event(user: str, seconds: int, amount: int | None = 1) -> Row:
    made: Row = Event(SLOT, None, seconds * SECOND_US, user, 1, amount)
    return made


def seconds(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row[0], row[1], row.start // SECOND_US, *row[4:]) for row in rows]


def test_keys_of_a_slot_are_kept_apart() -> None:
    operator = operator_of("upsert")
    told = operator.test(SLOT, [event("ada", 1), event("bob", 2, 5), event("ada", 11)])
    assert seconds(told) == [
        ("upsert", "ada", 0, 1, 1),
        ("upsert", "ada", 10, 1, 1),
        ("upsert", "bob", 0, 1, 5),
    ]
    assert seconds(operator.test(SLOT, [event("bob", 3, None)])) == [("upsert", "bob", 0, 2, 5)]


def test_windows_are_told_when_their_timer_fires() -> None:
    operator = operator_of("final")
    assert operator.test(SLOT, [event("ada", 1), event("bob", 11)]) == []
    assert seconds(operator.setWatermark(9_999)) == []
    assert seconds(operator.setWatermark(10_000)) == [("insert", "ada", 0, 1, 1)]
    assert seconds(operator.setWatermark(20_000)) == [("insert", "bob", 10, 1, 1)]


def test_an_earlier_window_than_the_timer_waits_for_gets_its_own() -> None:
    operator = operator_of("final")
    operator.test(SLOT, [event("ada", 25)])
    operator.test(SLOT, [event("ada", 5)])
    assert seconds(operator.setWatermark(10_000)) == [("insert", "ada", 0, 1, 1)]
    assert seconds(operator.setWatermark(30_000)) == [("insert", "ada", 20, 1, 1)]


def test_an_event_before_1970_is_in_its_window_until_there_is_a_watermark() -> None:
    operator = operator_of("final")
    assert operator.test(SLOT, [event("ada", -15), event("ada", 0)]) == []
    assert operator.test(SLOT, [event("ada", -12)]) == []
    assert seconds(operator.setWatermark(1)) == [("insert", "ada", -20, 2, 2)]
    assert seconds(operator.setWatermark(10_000)) == [("insert", "ada", 0, 1, 1)]


def test_an_open_window_takes_an_event_behind_the_watermark_and_a_closed_one_none() -> None:
    operator = operator_of("upsert")
    operator.test(SLOT, [event("ada", 1)])
    operator.setWatermark(9_999)
    assert seconds(operator.test(SLOT, [event("ada", 2)])) == [("upsert", "ada", 0, 2, 2)]
    operator.setWatermark(10_000)
    assert operator.test(SLOT, [event("ada", 3)]) == []
    assert operator.peekValueState("windows", SLOT) is None


def test_nothing_is_kept_of_windows_that_are_over() -> None:
    operator = operator_of("upsert")
    operator.test(SLOT, [event("ada", 1)])
    assert operator.peekValueState("windows", SLOT) is not None
    assert operator.setWatermark(10_000) == []
    assert operator.peekValueState("windows", SLOT) is None


def test_a_static_group_is_told_at_once() -> None:
    rows = [event("ada", 1), event("ada", 2), event("bob", 11, None)]
    group = pa.table({name: [row[name] for row in rows] for name in rows[0].asDict()})
    types = [pa.string(), pa.string(), *[pa.int64()] * 4]
    schema = pa.schema(list(zip(plan("upsert").columns, types, strict=True)))
    told = window_operator.over_batch(plan("upsert"), schema)(group)
    assert [*zip(*told.to_pydict().values(), strict=True)] == [
        ("upsert", "ada", 0, 10 * SECOND_US, 2, 2),
        ("upsert", "bob", 10 * SECOND_US, 20 * SECOND_US, 1, None),
    ]


# Clocks


Reading = Row("slot", "device", "event", "sent", "received", "column_0")
SKEW = SkewPlan(60 * SECOND_US, ("column_0",))


def reading(device: str, sent: int | None, received: int) -> Row:
    made: Row = Reading(SLOT, device, sent, sent, received, f"{device} {received}")
    return made


READINGS = [
    reading("ada", 0, 900),
    reading("ada", 1000, 1100),
    reading("ada", None, 1000),
    reading("bob", 5000, 0),
]


def test_rows_are_corrected_in_order_of_arrival_however_they_are_split() -> None:
    """The quickest message of ada took 100; before it was there, 900 was the best known."""
    operator = TwsTester(SkewProcessor(SKEW), outputMode="Update")
    together = operator.test(SLOT, READINGS[::-1])
    apart = TwsTester(SkewProcessor(SKEW), outputMode="Update")
    ordered = sorted(READINGS, key=lambda row: int(row.received))
    assert [row for one in ordered for row in apart.test(SLOT, [one])] == together
    assert [(row.column_0, row.corrected_at) for row in together] == [
        ("bob 0", 0),
        ("ada 900", 900),
        ("ada 1000", 1000),
        ("ada 1100", 1100),
    ]


def test_a_row_without_a_time_of_sending_has_the_time_received_and_teaches_nothing() -> None:
    operator = TwsTester(SkewProcessor(SKEW), outputMode="Update")
    [row] = operator.test(SLOT, [reading("ada", None, 5)])
    assert tuple(row) == ("ada 5", 5, 60_000, 0)
    [row] = operator.test(SLOT, [Reading(SLOT, "ada", 1, 2, None, "never received")])
    assert tuple(row) == ("never received", None, None, None)
    [row] = operator.test(SLOT, [reading("ada", 0, 70)])
    assert (row.corrected_at, row.uncertainty_ms, row.clock_restarts) == (70, 60_000, 0)


def test_static_rows_are_corrected_the_same() -> None:
    group = pa.table({name: [row[name] for row in READINGS] for name in READINGS[0].asDict()})
    columns = [("column_0", pa.string()), *[(name, pa.int64()) for name in clock_skew.ADDED]]
    told = clock_skew.over_batch(SKEW, pa.schema(columns))(group)
    streamed = TwsTester(SkewProcessor(SKEW), outputMode="Update").test(SLOT, READINGS)
    assert told.to_pylist() == [row.asDict() for row in streamed]
