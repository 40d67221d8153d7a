"""What the overview begins with: that which somebody should look at."""

from dataclasses import replace

from millstream.web.console.attention import notices_of
from millstream.web.console.watch import ViewFigures
from tests.support.console_source import MemoryDeclared


def told(declared: MemoryDeclared, **views: ViewFigures) -> list[tuple[str, str]]:
    found = notices_of(declared.captures(), declared.jobs(), views)
    return [(one.level, str(one.node)) for one in found]


def test_who_is_well_is_not_mentioned() -> None:
    assert told(MemoryDeclared(), sales=ViewFigures(rows=1, lag=0)) == [("warn", "job mails")]


def test_what_failed_comes_first_with_its_own_words() -> None:
    declared = MemoryDeclared()
    declared.progress = replace(declared.progress, state="failed", error="no such column: at")
    found = notices_of(declared.captures(), declared.jobs(), {})
    assert found[0].level == "bad"
    assert found[0].text == "no such column: at"


def test_a_job_that_waits_for_its_next_attempt_is_a_warning() -> None:
    declared = MemoryDeclared()
    declared.progress = replace(declared.progress, state="waiting", error="the broker is gone")
    assert ("warn", "job sales") in told(declared)


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
        MemoryDeclared(), sales=ViewFigures(problem="run its job once")
    )


def test_what_the_broker_cannot_do_comes_first_and_explains_a_capture_that_is_silent() -> None:
    declared = MemoryDeclared()
    declared.is_stale = True
    found = notices_of(
        declared.captures(), declared.jobs(), {}, broker=["the broker's disk is full"]
    )
    assert (found[0].level, str(found[0].node)) == ("bad", "broker broker")
    assert found[0].text == "the broker's disk is full"
    [capture] = [one for one in found if one.node.kind == "capture"]
    assert capture.text == "the broker takes no records at present, so it cannot write"
