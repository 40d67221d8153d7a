"""The changes of a view over HTTP: streams of events, and answers of JSON that wait."""

import json
import threading
from typing import Any

import pytest

from millstream.web.limits import Limits
from tests.support.web_application import MemoryApplication, sales_row
from tests.support.web_client import WebClient, problem

CHANGES = "/v1/views/sales/changes"
STREAM = {"Accept": "text/event-stream"}


def kinds(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["kind"] for one in answer.json()["results"]]


def events(came: bytes) -> list[dict[str, str]]:
    """As a browser reads them."""
    found = []
    for block in came.decode().split("\n\n"):
        lines = [line.partition(": ") for line in block.split("\n") if line[:1] not in ("", ":")]
        if lines:
            found.append({name: value for name, _, value in lines})
    return found


# Answers of JSON


def test_the_first_answer_has_the_current_rows(client: WebClient) -> None:
    answer = client.get(CHANGES)
    assert kinds(answer) == ["row"] * 10 + ["current"]
    found = answer.json()
    assert found["results"][0]["key"] == {"shop": "a/b", "day": "2026-11-01"}
    assert found["results"][0]["row"]["total"] == "1.50"
    assert found["last"] == found["results"][-1]["token"]


def test_an_answer_goes_on_where_the_last_one_ended(
    client: WebClient, application: MemoryApplication
) -> None:
    last = client.get(CHANGES).json()["last"]
    sales = application.kept["sales"]
    sales.write([sales_row("ada", 1, "100")])
    sales.write([sales_row("ada", 2, "0")], deletes=True)
    answer = client.get(CHANGES, since=last)
    assert kinds(answer) == ["upsert", "delete"]
    upsert, delete = answer.json()["results"]
    assert (upsert["row"]["total"], delete["row"]) == ("100.00", None)
    assert delete["key"] == {"shop": "ada", "day": "2026-11-02"}
    assert upsert["version"] + 1 == delete["version"]
    assert kinds(client.get(CHANGES, since=answer.json()["last"], timeout=0)) == []


def test_an_answer_with_nothing_to_tell_ends_where_it_began(client: WebClient) -> None:
    last = client.get(CHANGES).json()["last"]
    assert client.get(CHANGES, since=last, timeout=0).json() == {"results": [], "last": last}


def test_an_answer_waits_for_a_change(client: WebClient, application: MemoryApplication) -> None:
    last = client.get(CHANGES).json()["last"]
    write = threading.Timer(0.2, application.kept["sales"].write, [[sales_row("ada", 1, "7")]])
    write.start()
    answer = client.get(CHANGES, since=last, timeout=60)
    write.join()
    assert kinds(answer) == ["upsert"]


def test_an_answer_is_cut_at_its_limit_and_the_next_has_the_rest(
    client: WebClient, application: MemoryApplication
) -> None:
    last = client.get(CHANGES, limit=1).json()["last"]  # current rows are never cut
    application.kept["sales"].write([sales_row("ada", day, "1") for day in range(1, 6)])
    days = []
    for _ in range(3):
        answer = client.get(CHANGES, since=last, limit=2).json()
        days += [one["key"]["day"][-1] for one in answer["results"]]
        last = answer["last"]
    assert sorted(days) == ["1", "2", "3", "4", "5"]


def test_more_current_rows_than_one_answer_may_have_are_refused(
    application: MemoryApplication,
) -> None:
    with WebClient(application, limits=Limits(limit_max=9)) as client:
        assert problem(client.get(CHANGES)) == ("too-large", 413)
        assert len(kinds(client.get(CHANGES, where='{"shop": "ada"}'))) == 6


def test_only_changes_that_meet_the_conditions_are_told(
    client: WebClient, application: MemoryApplication
) -> None:
    where = '{"total >=": "4"}'
    first = client.get(CHANGES, where=where)
    assert kinds(first) == ["row"] * 4 + ["current"]
    application.kept["sales"].write([sales_row("ada", 5, "1"), sales_row("ada", 1, "9")])
    answer = client.get(CHANGES, where=where, since=first.json()["last"])
    assert {(one["kind"], one["key"]["day"]) for one in answer.json()["results"]} == {
        ("delete", "2026-11-05"),
        ("upsert", "2026-11-01"),
    }


def test_a_token_of_another_feed_is_refused(client: WebClient) -> None:
    other = client.get(CHANGES, where='{"shop": "ada"}').json()["last"]
    for since in (other, "x", other[:-2]):
        assert problem(client.get(CHANGES, since=since)) == ("bad-token", 422)
        assert problem(client.get(CHANGES, STREAM, since=since)) == ("bad-token", 422)


# Streams of events


def test_a_stream_has_the_rows_and_then_every_change(
    client: WebClient, application: MemoryApplication
) -> None:
    def write_once_current(came: bytes) -> None:
        if came.endswith(b"\n\n") and events(came)[-1:] and events(came)[-1]["event"] == "current":
            application.kept["sales"].write([sales_row("ada", 1, "7")])

    came = client.stream(
        CHANGES, lambda came: b"event: upsert" in came, meanwhile=write_once_current
    )
    found = events(came)
    assert [one["event"] for one in found] == ["row"] * 10 + ["current", "upsert"]
    assert "id" not in found[0]
    assert json.loads(found[-1]["data"])["row"]["total"] == "7.00"
    assert json.loads(found[-1]["data"])["token"] == found[-1]["id"]


def test_a_browser_that_comes_back_goes_on_from_its_last_event(
    client: WebClient, application: MemoryApplication
) -> None:
    last = client.get(CHANGES).json()["last"]
    application.kept["sales"].write([sales_row("ada", 1, "7")])
    answer = client.get(CHANGES, {"Last-Event-ID": last}, since="what it began with")
    assert kinds(answer) == ["upsert"]


def test_a_silent_stream_says_that_it_is_there(application: MemoryApplication) -> None:
    with WebClient(application, limits=Limits(heartbeat_ms=10)) as client:
        came = client.stream(CHANGES, lambda came: came.count(b"\n:\n\n") >= 3)
    assert [one["event"] for one in events(came)] == ["row"] * 10 + ["current"]


def test_feeds_are_opened_up_to_their_limit_and_not_one_more(
    application: MemoryApplication,
) -> None:
    with WebClient(application, limits=Limits(feeds_max=1)) as client:
        with client.service.serving.calls.feed():
            answers = [client.get(CHANGES), client.get(CHANGES, STREAM)]
        assert client.get(CHANGES).status_code == 200
        client.stream(CHANGES, lambda came: b"event: current" in came)
        assert client.get(CHANGES).status_code == 200  # who hangs up makes room
    assert [problem(one) for one in answers] == [("too-many", 429)] * 2
    assert "1 feeds are open already" in answers[0].text


def test_a_stream_ends_when_the_server_stops(client: WebClient) -> None:
    client.service.serving.closing.set()
    came = client.stream(CHANGES, lambda came: False)
    assert came == b":\n\n"


@pytest.mark.parametrize("query", [{"slow": "never"}, {"timeout": -1}, {"limit": 0}])
def test_a_feed_that_cannot_be_is_refused(client: WebClient, query: dict[str, Any]) -> None:
    assert problem(client.get(CHANGES, **query)) == ("bad-request", 400)
