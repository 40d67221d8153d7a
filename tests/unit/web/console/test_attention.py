"""What the overview begins with: that which somebody should look at."""

from dataclasses import replace

from millstream.web.console.attention import notices_of
from millstream.web.console.condition import Condition, capture_condition, job_condition
from millstream.web.console.facts import Node
from millstream.web.console.watch import ViewFigures
from tests.support.console_source import NOW_MS, MemoryDeclared


def conditions_of(declared: MemoryDeclared) -> dict[Node, Condition]:
    captures = {
        Node("capture", one.name): capture_condition(one, now_ms=NOW_MS)
        for one in declared.captures()
    }
    return captures | {one.node: job_condition(one, now_ms=NOW_MS) for one in declared.jobs()}


def told(declared: MemoryDeclared, **views: ViewFigures) -> list[tuple[str, str]]:
    found = notices_of(declared.captures(), declared.jobs(), views, conditions_of(declared))
    return [(one.level, str(one.node)) for one in found]


def test_who_is_well_is_not_mentioned() -> None:
    assert told(MemoryDeclared(), sales=ViewFigures(rows=1, lag=0)) == [("warn", "job mails")]


def test_what_failed_comes_first_with_its_own_words() -> None:
    declared = MemoryDeclared()
    declared.progress = replace(declared.progress, state="failed", error="no such column: at")
    found = notices_of(declared.captures(), declared.jobs(), {}, conditions_of(declared))
    assert found[0].level == "bad"
    assert found[0].text == "no such column: at"


def test_a_job_that_waits_for_its_next_attempt_says_when_that_is_and_why() -> None:
    declared = MemoryDeclared()
    declared.progress = replace(
        declared.progress,
        state="waiting",
        failures=3,
        retry_at_ms=NOW_MS + 20_000,
        error="the broker is gone",
    )
    found = notices_of(declared.captures(), declared.jobs(), {}, conditions_of(declared))
    assert found[0].condition is not None
    assert found[0].condition.word == "failed"
    assert found[0].text == "the broker is gone (tries again in 20s)"


def test_a_job_that_is_behind_or_was_stopped_is_mentioned() -> None:
    declared = MemoryDeclared()
    declared.progress = replace(declared.progress, lag_ms={"clicks": 3_600_000})
    assert told(declared)[0] == ("warn", "job sales")
    declared.progress = replace(declared.progress, state="stopped")
    assert told(declared)[0] == ("warn", "job sales")
    declared.progress = replace(declared.progress, state="done")
    assert told(declared) == [("warn", "job mails")]


def test_a_capture_is_told_of_when_it_fails_falls_silent_or_keeps_too_much() -> None:
    declared = MemoryDeclared()
    assert declared.status is not None
    well = declared.status
    declared.status = replace(well, warnings=["the database keeps much"])
    assert ("warn", "capture shopdb") in told(declared)
    declared.status = replace(well, state="failed", error="no slot")
    assert ("bad", "capture shopdb") in told(declared)
    declared.status, declared.is_stale = well, True
    assert ("bad", "capture shopdb") in told(declared)
    declared.status = None
    assert ("warn", "capture shopdb") in told(declared)


def test_a_view_that_is_not_there_is_told_of() -> None:
    assert ("warn", "view sales") in told(
        MemoryDeclared(), sales=ViewFigures(problem="run its job once", is_missing=True)
    )


def test_a_view_that_is_not_there_is_no_news_while_its_job_makes_it_or_says_itself_why() -> None:
    declared = MemoryDeclared()
    missing = ViewFigures(problem="run its job once", is_missing=True)
    for state in ("starting", "failed", "stopped"):
        declared.progress = replace(declared.progress, state=state)
        assert ("warn", "view sales") not in told(declared, sales=missing)
        damaged = ViewFigures(problem="damaged")
        assert ("warn", "view sales") in told(declared, sales=damaged)


def test_what_the_broker_cannot_do_comes_first_and_then_the_captures_that_it_refuses() -> None:
    declared = MemoryDeclared()
    declared.refusal = "the broker refuses records, as its disk is full"
    found = notices_of(
        declared.captures(),
        declared.jobs(),
        {},
        conditions_of(declared),
        broker=["the broker's disk is full"],
    )
    assert (found[0].level, str(found[0].node)) == ("bad", "broker broker")
    assert found[0].text == "the broker's disk is full"
    [capture] = [one for one in found if one.node.kind == "capture"]
    assert capture.level == "bad"
    assert capture.text == "the broker refuses records, as its disk is full (cannot write)"
