"""A status says how a capture is, and warns before a database's disk is full."""

from dataclasses import replace

import pytest

from millstream.base.quantity import MIB
from millstream.capture.definition import CaptureDefinition
from millstream.capture.load.plan import Phase, TableLoad, load_to_json
from millstream.capture.position_record import CaptureRecords
from millstream.capture.runner import PAUSE_SECONDS_MAX, pause_seconds
from millstream.capture.source import Lag
from millstream.capture.status import (
    STALE_MS,
    Rate,
    Status,
    is_over_limit,
    retained_warnings,
    status_from_json,
    with_lag,
)
from millstream.commands.capture_lines import facts_of, line_of, load_lines, waits


def definition(retained_bytes_max: int | None) -> CaptureDefinition:
    return CaptureDefinition(
        name="shop", url="", tables=("orders",), retained_bytes_max=retained_bytes_max
    )


def kept(retained_bytes: int | None, most: int | None = None) -> Lag:
    return Lag(bytes=1, retained_bytes=retained_bytes, retained_bytes_max=most)


def test_a_status_is_read_again() -> None:
    status = Status(state="loading", run="r", changes=3, warnings=["w"], load=[{"table": "a"}])
    found = status_from_json(status.to_json() | {"colour": "blue"})
    assert found.to_json() == status.to_json()


def test_an_old_status_says_that_nobody_runs_the_capture() -> None:
    status = Status(state="streaming", run="r", at_ms=1_000)
    assert not status.is_stale(now_ms=1_000 + STALE_MS)
    assert status.is_stale(now_ms=1_001 + STALE_MS)


@pytest.mark.parametrize(
    ("declared", "lag", "is_warned"),
    [
        (100, kept(49), False),
        (100, kept(50), True),
        (None, kept(50, most=100), True),  # beyond it the database gives the capture up
        (1_000, kept(50, most=100), True),
        (None, kept(1 << 40), False),
        (100, kept(None), False),
    ],
)
def test_half_of_what_may_be_kept_is_worth_a_warning(
    declared: int | None, lag: Lag, is_warned: bool
) -> None:
    assert bool(retained_warnings(lag, definition(declared))) is is_warned


def test_only_the_declared_limit_is_acted_on() -> None:
    assert not is_over_limit(kept(99), definition(100))
    assert is_over_limit(kept(100), definition(100))
    assert not is_over_limit(kept(1 << 40, most=1), definition(None))


def test_the_lower_limit_is_shown() -> None:
    status = Status(state="streaming", run="r")
    assert with_lag(status, kept(5, most=70), definition(100)).retained_bytes_max == 70
    assert with_lag(status, kept(5), definition(None)).retained_bytes_max is None


def test_a_rate_is_of_the_time_since_the_last_look() -> None:
    rate = Rate()
    assert rate.at(100, now_ms=1_000) == 0.0
    assert rate.at(400, now_ms=3_000) == 150.0
    assert rate.at(400, now_ms=3_000) == 0.0


def test_a_rate_is_never_below_nothing_when_another_run_counts_anew() -> None:
    rate = Rate()
    rate.at(400, now_ms=1_000)
    assert rate.at(30, now_ms=3_000) == 15.0


def test_pauses_grow_up_to_a_limit() -> None:
    pauses = [pause_seconds(failures) for failures in range(20)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 1
    assert pauses[-1] == pause_seconds(5_000) == PAUSE_SECONDS_MAX


@pytest.mark.parametrize(
    ("behind_ms", "lag_bytes", "why"),
    [
        (None, None, ""),
        (4_999, MIB, ""),
        (5_000, None, "waits for the stream to catch up: 5s behind"),
        (7_200_000, 40 * MIB, "waits for the stream to catch up: 2h behind, 40 MiB to read"),
        (None, 16 * MIB, "waits for the stream to catch up: 16 MiB to read"),
        (0, 16 * MIB - 1, ""),
    ],
)
def test_a_load_says_that_it_waits_for_the_stream(
    behind_ms: int | None, lag_bytes: int | None, why: str
) -> None:
    told = Status(state="loading", run="a", behind_ms=behind_ms, lag_bytes=lag_bytes)
    assert told.load_waits_for == why
    assert replace(told, state="streaming").load_waits_for == ""


def test_lists_and_lines_say_why_a_load_stands() -> None:
    definition = CaptureDefinition(name="shop", url="postgresql://db/shop", tables=("orders",))
    load = load_to_json(TableLoad(phase=Phase.READING, rows_estimate=100))
    status = Status(state="loading", run="a", at_ms=1_000, behind_ms=60_000)
    records = CaptureRecords(definition=definition, loads={"orders": load}, status=status.to_json())
    facts = facts_of("shop", records, now_ms=2_000)
    why = "waits for the stream to catch up: 1m behind"
    assert facts["load_waits_for"] == why
    assert load_lines(facts)[-1].strip() == f"the load {why}"
    assert waits([facts]) == [f"shop: the load {why}"]
    assert line_of(facts).endswith(f"orders 0%, the load {why}")
    assert facts_of("shop", records, now_ms=60_000)["load_waits_for"] == ""
