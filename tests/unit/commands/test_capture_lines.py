from dataclasses import replace
from typing import Any

import pytest

from millstream.base.schema import Scalar
from millstream.capture.change import CapturedColumn, CapturedTable
from millstream.capture.definition import CaptureDefinition
from millstream.capture.load.plan import Phase, TableLoad, load_to_json
from millstream.capture.position_record import CaptureRecords, Control, Position
from millstream.capture.source import Finding
from millstream.capture.status import STALE_MS, Status
from millstream.commands import capture_lines
from millstream.queues.broker_health import BrokerHealth, DiskSeen

NOW_MS = 1_000_000
SHOP = CaptureDefinition(
    name="shop", url="postgresql://mill:${SHOP_PASSWORD}@db/shop", tables=("orders",)
)
STREAMING = Status(state="streaming", run="r", at_ms=NOW_MS)
HALF = load_to_json(TableLoad(rows=500, rows_estimate=1_000))
DONE = load_to_json(TableLoad(phase=Phase.DONE, rows=1_200, rows_estimate=1_000))


def records(status: Status | None = None, **terms: Any) -> CaptureRecords:
    told = None if status is None else status.to_json()
    return CaptureRecords(definition=SHOP, status=told, **terms)


def facts(found: CaptureRecords) -> dict[str, Any]:
    return capture_lines.facts_of("shop", found, now_ms=NOW_MS)


def state(found: CaptureRecords) -> str:
    return capture_lines.state_of(found, now_ms=NOW_MS)


def test_a_capture_that_nobody_has_run_says_so() -> None:
    assert state(records()) == "never run"
    assert capture_lines.row_of(facts(records())) == [
        "shop",
        "never run",
        "orders",
        None,
        None,
        None,
        None,
    ]


def test_a_status_that_is_old_is_of_a_process_that_is_gone() -> None:
    assert state(records(STREAMING)) == "streaming"
    assert state(records(replace(STREAMING, at_ms=NOW_MS - STALE_MS - 1))) == "not running"
    assert state(records(replace(STREAMING, state="ended"))) == "not running"


def test_what_is_wanted_goes_before_what_was() -> None:
    assert state(records(STREAMING, control=Control(is_paused=True))) == "pausing"
    paused = replace(STREAMING, state="paused")
    assert state(records(paused, control=Control(is_paused=True))) == "paused"
    assert state(records(STREAMING, control=Control(is_dropped=True))) == "dropping"


def test_an_error_that_needs_somebody_stays_also_when_it_is_old() -> None:
    failed = Status(state="failed", run="r", error="the slot is lost", at_ms=0)
    assert state(records(failed)) == "failed"
    assert capture_lines.troubles([facts(records(failed))]) == ["shop: the slot is lost"]


def test_how_far_behind_a_capture_is_can_be_read_at_a_glance() -> None:
    behind = replace(
        STREAMING,
        behind_ms=1_500,
        lag_bytes=3 << 20,
        retained_bytes=64 << 20,
        retained_bytes_max=10 << 30,
        changes_per_s=1234.4,
        warnings=["the disk fills"],
    )
    found = facts(records(behind))
    shown = capture_lines.row_of(found)
    assert shown[3:] == ["1s 500ms", "3MiB", "64MiB of 10GiB", 1234]
    assert capture_lines.troubles([found]) == ["shop: warning: the disk fills"]


def test_how_far_behind_a_capture_was_is_not_shown_as_how_far_it_is() -> None:
    ended = replace(STREAMING, state="ended", behind_ms=0, retained_bytes=56, changes_per_s=17.0)
    found = facts(records(ended))
    assert capture_lines.row_of(found)[1:] == ["not running", "orders", None, None, None, None]
    assert capture_lines.heading(found)[-1] == (
        "  when it last ran, behind: 0ms, kept by the database: 56B"
    )


def test_more_tables_than_fit_into_a_row_are_counted() -> None:
    many = replace(SHOP, tables=tuple(f"table_{number}" for number in range(12)))
    assert capture_lines.row_of(facts(CaptureRecords(definition=many)))[2] == "12 tables"


def test_what_an_earlier_run_told_is_not_taken_for_the_one_that_begins() -> None:
    failed = facts(records(replace(STREAMING, state="failed", error="the slot is lost", changes=3)))
    begun = capture_lines.of_this_run(failed, began_ms=NOW_MS + 1, is_over=False)
    assert capture_lines.line_of(begun) == "shop: starting"
    assert capture_lines.of_this_run(failed, began_ms=NOW_MS, is_over=False) == failed


def test_a_run_that_is_over_says_what_it_wrote() -> None:
    told = replace(STREAMING, state="ended", changes=1, changes_per_s=2.0, rows_loaded=1_200)
    over = capture_lines.of_this_run(facts(records(told)), began_ms=NOW_MS, is_over=True)
    assert capture_lines.line_of(over) == "shop: ended, 1 change, 2/s, 1,200 rows loaded"


DISK = DiskSeen(broker="db:9092", path="/data", usable_bytes=0, total_bytes=24 << 20)
FULL = BrokerHealth(disks=(DISK,), without_room={"_captures": DISK})


@pytest.mark.parametrize("age_ms", [0, STALE_MS + 1])
def test_a_capture_that_the_broker_refuses_says_so_whatever_its_last_status_was(
    age_ms: int,
) -> None:
    told = records(replace(STREAMING, at_ms=NOW_MS - age_ms))
    found = capture_lines.facts_of("shop", told, now_ms=NOW_MS, health=FULL)
    assert found["state"] == "cannot write"
    [line] = capture_lines.troubles([found])
    assert "its disk is full (/data of the broker at db:9092: 0B of 24MiB free)" in line
    assert capture_lines.of_this_run(found, began_ms=NOW_MS + 1, is_over=False) == found


def test_a_capture_that_does_not_want_to_write_stays_as_it_is_on_a_full_disk() -> None:
    for state in ("ended", "failed", "paused"):
        told = records(replace(STREAMING, state=state))
        found = capture_lines.facts_of("shop", told, now_ms=NOW_MS, health=FULL)
        assert found["state"] in (state, "not running")


def test_a_capture_is_not_refused_by_a_full_broker_that_has_none_of_its_topics() -> None:
    elsewhere = BrokerHealth(disks=(DISK,), without_room={"clicks": DISK})
    told = records(STREAMING)
    found = capture_lines.facts_of("shop", told, now_ms=NOW_MS, health=elsewhere)
    assert (found["state"], found["error"]) == ("streaming", "")


def test_a_capture_is_refused_only_by_read_only_partitions_of_its_own() -> None:
    told = records(STREAMING)
    other = BrokerHealth(read_only=(("clicks", 0),))
    assert capture_lines.facts_of("shop", told, now_ms=NOW_MS, health=other)["error"] == ""
    own = BrokerHealth(read_only=(("_captures.shop", 0),))
    found = capture_lines.facts_of("shop", told, now_ms=NOW_MS, health=own)
    assert "as _captures.shop-0 is read-only" in found["error"]


def test_a_load_has_a_bar_until_it_is_done() -> None:
    found = facts(records(STREAMING, loads={"public.orders": HALF, "public.customers": DONE}))
    (line,) = capture_lines.load_lines(found)
    assert line == "  public.orders  ██████████░░░░░░░░░░  50%  500 of about 1,000 rows"
    assert {one["table"]: one["fraction"] for one in found["load"]} == {
        "public.orders": 0.5,
        "public.customers": 1.0,
    }


def test_loads_say_how_fast_they_are_and_how_long_they_will_take() -> None:
    loading = replace(STREAMING, state="loading", changes_per_s=100.0)
    lines = capture_lines.load_lines(facts(records(loading, loads={"orders": HALF})))
    assert len(lines) == 2
    assert lines[1] == "  500 of about 1,000 rows (50%), 100 rows/s, 5s left"
    done = facts(records(loading, loads={"orders": DONE}))
    assert capture_lines.load_lines(done) == []


def test_a_line_tells_what_is_going_on() -> None:
    status = replace(
        STREAMING, state="loading", changes=3, changes_per_s=1.0, rows_loaded=500, behind_ms=20
    )
    line = capture_lines.line_of(facts(records(status, loads={"public.orders": HALF})))
    assert line == (
        "shop: loading, 3 changes, 1/s, 500 rows loaded, public.orders 50%, 20ms behind"
    )


def test_a_capture_is_shown_with_its_tables_and_its_place_and_no_password() -> None:
    column = CapturedColumn(name="id", database_type="bigint", type=Scalar.BIGINT)
    table = CapturedTable(
        name="public.orders", topic="shop.orders", columns=(column,), key=("id",), version=2
    )
    found = records(
        replace(STREAMING, behind_ms=0),
        position=Position(resume="0/15D6F40"),
        schemas={("public.orders", 2): table},
        loads={"public.orders": DONE},
    )
    assert capture_lines.heading(facts(found)) == [
        "shop: streaming, postgresql://mill:${SHOP_PASSWORD}@db/shop, mode log",
        "  written up to 0/15D6F40",
        "  behind: 0ms",
    ]
    assert capture_lines.table_rows(found, facts(found)) == [
        ["public.orders", "shop.orders", "id", 1, 2, "all"]
    ]
    assert capture_lines.table_facts(table)["columns"] == [
        {"name": "id", "type": "BIGINT", "database_type": "bigint"}
    ]


def test_findings_are_told_with_the_statement_that_mends_them() -> None:
    lack = Finding(what="wal_level is replica", mend="ALTER SYSTEM SET wal_level = logical")
    advice = Finding(what="orders has no key", mend="ADD PRIMARY KEY\nsoon", is_fatal=False)
    assert capture_lines.finding_lines([lack, advice]) == [
        "missing: wal_level is replica",
        "    ALTER SYSTEM SET wal_level = logical",
        "advice: orders has no key",
        "    ADD PRIMARY KEY",
        "    soon",
    ]
