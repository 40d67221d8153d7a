"""The changes of a captured table over HTTP: streams of events, and answers of JSON that wait."""

import json
import threading
from typing import Any

from tests.support.web_application import MemoryApplication, order_change
from tests.support.web_client import WebClient, problem
from tests.unit.web.test_changes import STREAM, events

CHANGES = "/v1/tables/orders/changes"


def ops(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [one["op"] for one in answer.json()["results"]]


def test_the_captured_tables_are_listed(client: WebClient) -> None:
    assert client.get("/v1/tables").json() == {"tables": ["orders"]}


def test_an_answer_has_what_is_captured_with_its_place_in_the_databases_log(
    client: WebClient,
) -> None:
    answer = client.get(CHANGES)
    assert ops(answer) == ["c", "d"]
    created = answer.json()["results"][0]
    assert (created["key"], created["before"], created["after"]) == ({"id": 7}, None, {"id": 7})
    assert (created["table"], created["commit"], created["seq"]) == ("orders", "0/0", 0)
    assert answer.json()["last"] == answer.json()["results"][-1]["token"]


def test_an_answer_is_cut_at_its_limit_and_the_next_has_the_rest(client: WebClient) -> None:
    first = client.get(CHANGES, limit=1)
    assert ops(first) == ["c"]
    assert ops(client.get(CHANGES, since=first.json()["last"])) == ["d"]


def test_an_answer_with_nothing_to_tell_ends_where_it_began(client: WebClient) -> None:
    last = client.get(CHANGES).json()["last"]
    assert client.get(CHANGES, since=last, timeout=0).json() == {"results": [], "last": last}


def test_an_answer_that_may_not_wait_has_what_is_there(client: WebClient) -> None:
    assert ops(client.get(CHANGES, timeout=0)) == ["c", "d"]


def test_who_begins_now_is_told_where_now_is(
    client: WebClient, application: MemoryApplication
) -> None:
    last = client.get(CHANGES, since="now", timeout=0).json()["last"]
    application.captured.append(order_change("c", 8, at=2))
    assert ops(client.get(CHANGES, since=last, timeout=0)) == ["c"]


def test_an_answer_waits_for_a_change(client: WebClient, application: MemoryApplication) -> None:
    last = client.get(CHANGES).json()["last"]
    change = order_change("c", 8, at=2)
    write = threading.Timer(0.2, application.captured.append, [change])
    write.start()
    answer = client.get(CHANGES, since=last, timeout=60)
    write.join()
    assert ops(answer) == ["c"]


def test_a_stream_has_every_change_with_the_token_to_go_on_from(client: WebClient) -> None:
    found = events(client.stream(CHANGES, lambda came: b"event: d" in came))
    assert [one["event"] for one in found] == ["c", "d"]
    told = json.loads(found[0]["data"])
    assert told["after"] == {"id": 7}
    assert found[0]["id"] == told["token"]


def test_a_browser_that_comes_back_goes_on_from_its_last_event(client: WebClient) -> None:
    first = client.get(CHANGES).json()["results"][0]["token"]
    answer = client.get(CHANGES, {"Last-Event-ID": first}, since="what it began with")
    assert ops(answer) == ["d"]


def test_a_token_of_another_table_is_refused(client: WebClient) -> None:
    assert problem(client.get(CHANGES, since="shop.customers@0:1")) == ("bad-token", 422)
    assert problem(client.get(CHANGES, STREAM, since="x")) == ("bad-token", 422)


def test_a_table_that_is_not_captured_is_told_with_those_that_are(client: WebClient) -> None:
    answer = client.get("/v1/tables/order/changes")
    assert problem(answer) == ("unknown-table", 404)
    assert "(there are: orders)" in answer.json()["detail"]
