"""What the log has of a problem: one line that says more than the client gets, and no client's."""

import logging
from pathlib import Path

import pytest

from millstream.base.rare_lines import RARE_SECONDS
from millstream.views.store import ViewNotFound
from millstream.web.guard import Admission
from millstream.web.problems import Problem
from millstream.web.reporting import Reports
from tests.support.console_source import MemorySource
from tests.support.web_application import MemoryApplication, sales_view
from tests.support.web_client import WebClient

PRIVATE = "/tmp/shop.millstream/views/sales.sqlite"
FORGED = "/tmp/x\nERROR forged line"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reports(clock: Clock, caplog: pytest.LogCaptureFixture) -> Reports:
    caplog.set_level(logging.INFO)
    return Reports((), seconds=clock)


def not_there() -> ViewNotFound:
    return ViewNotFound(view="sales", place=PRIVATE)


def test_a_path_that_the_client_does_not_get_is_in_a_line_that_the_id_leads_to(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    found = reports.report(not_there(), "GET /v1/views")
    assert PRIVATE not in found.detail
    [line] = [record.getMessage() for record in caplog.records]
    assert found.id in line
    assert PRIVATE in line


def test_refusals_of_one_request_and_sort_have_one_line_a_minute(
    reports: Reports, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    found = [reports.report(not_there(), "GET /health") for _ in range(100)]
    assert len(caplog.records) == 1
    assert [bool(one.id) for one in found] == [True] + 99 * [False]
    assert all(PRIVATE not in one.detail for one in found)
    reports.report(not_there(), "GET /v1/views")
    clock.now = RARE_SECONDS
    reports.report(not_there(), "GET /health")
    assert len(caplog.records) == 3


def test_a_fault_has_its_line_each_time(reports: Reports, caplog: pytest.LogCaptureFixture) -> None:
    found = [reports.report(ValueError(FORGED), "GET /health") for _ in range(2)]
    lines = [record.getMessage() for record in caplog.records]
    assert [one.id in line for one, line in zip(found, lines, strict=True)] == [True, True]
    assert not any("\n" in line for line in lines)
    assert all(record.exc_info for record in caplog.records)


def test_what_a_request_says_wrong_is_no_line_whatever_its_words_look_like(
    reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    reports.report(Problem("bad-request", f"parameter {FORGED}"), "GET /health")
    assert not caplog.records


def test_nobody_without_a_token_writes_into_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    application = MemoryApplication(sales_view(tmp_path))
    admission = Admission(token="secret" * 6)
    with WebClient(application, admission=admission, console=MemorySource()) as client:
        caplog.clear()
        asked = client.get("/health/live?%2Fusr%2Fx%0AERROR+forged")
        signed_in = client.post("/console/sign-in", headers={"Content-Type": "'/usr/x'"})
    assert (asked.status_code, signed_in.status_code) == (400, 400)
    assert [one for one in caplog.records if one.name.startswith("millstream")] == []
    application.close()
