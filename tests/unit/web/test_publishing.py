"""Rows over HTTP into topics: all of a request, or nothing of it."""

import json
import threading
from typing import Any

import pytest

from millstream.base.record import Record
from millstream.queues.outbox import Receipt
from millstream.web.limits import LARGE_BODIES_MAX, SMALL_BODY_BYTES_MAX, Limits
from millstream.web.row_json import NESTING_MAX
from tests.support.web_application import MemoryApplication
from tests.support.web_client import WITHIN_S, WebClient, problem

CLICKS = "/v1/topics/clicks/records"
PRICES = "/v1/topics/prices/records"
NOTES = "/v1/topics/notes/records"
SMALL_ROW = {"user": "ada", "url": None, "count": None, "at": None}


def nested(levels: int) -> bytes:
    """An object with arrays within."""
    return b'{"user":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def values(application: MemoryApplication) -> list[Any]:
    return [json.loads(one.value) if one.value else None for one in application.written]


def test_a_row_is_published_and_its_place_told(
    client: WebClient, application: MemoryApplication
) -> None:
    row = {"user": "ada", "url": "/", "count": 1, "at": "2026-11-16T12:00:00Z"}
    answer = client.post(CLICKS, json=row)
    assert answer.status_code == 201
    assert answer.json() == {
        "receipts": [{"topic": "clicks", "partition": 0, "offset": 0}],
        "after": "clicks:0:0",
    }
    assert values(application) == [row]
    assert application.written[0].key == b"ada"


def test_several_rows_are_published_in_their_order(
    client: WebClient, application: MemoryApplication
) -> None:
    answer = client.post(CLICKS, json={"rows": [{"user": "ada"}, {"user": "bob"}, {"user": "cy"}]})
    assert [one["offset"] for one in answer.json()["receipts"]] == [0, 1, 2]
    assert answer.json()["after"] == "clicks:0:2"
    assert [row["user"] for row in values(application)] == ["ada", "bob", "cy"]


def test_a_decimal_keeps_every_digit(client: WebClient, application: MemoryApplication) -> None:
    body = b'{"rows": [{"item": 1, "price": 12345678.90}, {"item": 2, "price": "0.10"}]}'
    assert client.post(PRICES, content=body, headers=JSON).status_code == 201
    assert [row["price"] for row in values(application)] == ["12345678.90", "0.10"]


def test_a_delete_needs_its_key_alone(client: WebClient, application: MemoryApplication) -> None:
    rows = [{"item": 1, "price": "1.00"}, {"item": 1, "_change": "delete"}]
    assert client.post(PRICES, json={"rows": rows}).status_code == 201
    assert application.written[1] == Record(key=b"1", value=None)


def test_a_topic_without_a_schema_takes_text_and_bytes(
    client: WebClient, application: MemoryApplication
) -> None:
    rows = [{"key": "k", "value": "héllo"}, {"value_base64": "AP8="}, {}]
    assert client.post(NOTES, json={"rows": rows}).status_code == 201
    assert [(one.key, one.value) for one in application.written] == [
        (b"k", "héllo".encode()),
        (None, b"\x00\xff"),
        (None, None),
    ]


# What is refused

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "row", "told"),
    [
        (CLICKS, {"count": 1}, "row 1: field `user`: it is NOT NULL, and is missing"),
        (
            CLICKS,
            {"user": "ada", "count": "1"},
            "row 1: field `count`: expected INT, found a text: '1'",
        ),
        (CLICKS, {"user": "ada", "count": 2**31}, "row 1: field `count`"),
        (CLICKS, {"user": "ada", "cuont": 1}, "row 1: the topic has no field 'cuont'"),
        (CLICKS, {"user": "ada", "_change": "upset"}, "row 1: _change is 'upset'"),
        (CLICKS, {"user": "\ud800"}, "row 1: field `user`: half of a surrogate pair"),
        (CLICKS, 7, "row 1: expected an object"),
        (PRICES, {"_change": "delete"}, "row 1: field `item`: it is NOT NULL"),
        (PRICES, {"item": 1, "price": "1.001"}, "row 1: field `price`"),
        (NOTES, {"text": "x"}, "row 1: the topic has no schema"),
        (NOTES, {"value": 1}, "row 1: value is 1, and no text"),
        (NOTES, {"value": "x", "value_base64": "eA=="}, "row 1: value and value_base64 are both"),
        (NOTES, {"value_base64": "%"}, "row 1: value is '%', which cannot be read"),
    ],
)
def test_a_row_that_does_not_fit_keeps_back_all_of_its_request(
    client: WebClient, application: MemoryApplication, path: str, row: Any, told: str
) -> None:
    good: dict[str, Any] = {CLICKS: {"user": "ada"}, PRICES: {"item": 1, "price": "1"}, NOTES: {}}
    answer = client.post(path, content=json.dumps({"rows": [good[path], row]}), headers=JSON)
    assert problem(answer) == ("does-not-fit", 422)
    assert answer.json()["detail"].startswith(told)
    assert application.written == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"[]", "the body is no JSON object"),
        (b"null", "the body is no JSON object"),
        (b"\xff", "the body is not UTF-8"),
        (b"[" * 100_000, "the body is not JSON, or nested too deeply"),
        (nested(NESTING_MAX + 1), f"the body is nested too deeply: {NESTING_MAX} arrays"),
        (nested(900), "the body is nested too deeply"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(
    client: WebClient, body: bytes, told: str
) -> None:
    answer = client.post(CLICKS, content=body, headers=JSON)
    assert problem(answer) == ("bad-request", 400)
    assert answer.json()["detail"].startswith(told)


def test_a_body_may_be_nested_up_to_its_limit(client: WebClient) -> None:
    answer = client.post(CLICKS, content=nested(NESTING_MAX), headers=JSON)
    assert problem(answer) == ("does-not-fit", 422)
    assert answer.json()["detail"].startswith("row 0: field `user`: expected STRING")


def test_an_empty_batch_is_refused(client: WebClient) -> None:
    assert problem(client.post(CLICKS, json={"rows": []})) == ("does-not-fit", 422)


def test_a_topic_that_is_not_declared_is_refused(client: WebClient) -> None:
    answer = client.post("/v1/topics/click/records", json={})
    assert problem(answer) == ("unknown-topic", 404)
    assert answer.json()["detail"] == "no topic 'click' (there are: clicks, notes, prices)"


@pytest.mark.parametrize("given", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_body_that_a_foreign_page_can_send_is_refused(
    client: WebClient, given: str | None
) -> None:
    headers = {} if given is None else {"Content-Type": given}
    answer = client.post(CLICKS, content=b'{"user": "ada"}', headers=headers)
    assert problem(answer) == ("not-json", 415)


def test_rows_are_taken_up_to_their_limit_and_not_one_more(application: MemoryApplication) -> None:
    with WebClient(application, limits=Limits(rows_max=2)) as client:
        rows = [{"user": "ada"}, {"user": "bob"}]
        assert client.post(CLICKS, json={"rows": rows}).status_code == 201
        answer = client.post(CLICKS, json={"rows": [*rows, {"user": "cy"}]})
    assert problem(answer) == ("too-large", 413)
    assert len(application.written) == 2


def test_a_body_is_taken_up_to_its_limit_and_not_one_byte_more(
    application: MemoryApplication,
) -> None:
    body = b'{"user": "ada"}'
    with WebClient(application, limits=Limits(body_bytes_max=len(body))) as client:
        assert client.post(CLICKS, content=body, headers=JSON).status_code == 201
        told = client.post(CLICKS, content=body + b" ", headers=JSON)
        untold = client.post(CLICKS, content=iter_of(body, b" "), headers=JSON)
    assert problem(told) == problem(untold) == ("too-large", 413)
    assert len(application.written) == 1


async def iter_of(*parts: bytes) -> Any:
    for part in parts:
        yield part


# Threads


def test_a_publish_that_hangs_holds_up_no_read(
    application: MemoryApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def publish(topic: str, records: list[Record]) -> list[Receipt]:
        hangs.set()
        assert goes_on.wait(WITHIN_S)
        return [Receipt(topic, 0, 0)]

    monkeypatch.setattr(application, "publish", publish)
    with WebClient(application, limits=Limits(threads_max=1)) as client:
        posting = client.ask_beside("POST", CLICKS, json={"user": "ada"})
        assert client.waits_for(hangs)
        try:
            assert client.get("/v1/views/sales/rows").status_code == 200
        finally:
            goes_on.set()
        assert client.answer_of(posting).status_code == 201


def test_large_bodies_are_read_one_at_a_time(
    application: MemoryApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones meanwhile are."""
    large = {"user": "x" * SMALL_BODY_BYTES_MAX}
    goes_on, entered = threading.Event(), threading.Semaphore(0)
    found: list[Any] = []

    def records(topic: str, rows: list[Any]) -> list[Record]:
        found.append(rows)
        entered.release()
        assert rows == [SMALL_ROW] or goes_on.wait(WITHIN_S)
        return []

    monkeypatch.setattr(application, "records", records)
    with WebClient(application) as client:
        posting = [client.ask_beside("POST", CLICKS, json=large) for _ in range(5)]
        assert client.waits_for(entered)
        assert client.post(CLICKS, json={"user": "ada"}).status_code == 201
        at_one_time = len(found) - 1
        goes_on.set()
        assert [client.answer_of(one).status_code for one in posting] == [201] * 5
    assert at_one_time == LARGE_BODIES_MAX == 1


# Idempotency keys


def test_the_same_key_again_answers_the_same_and_publishes_nothing(
    client: WebClient, application: MemoryApplication
) -> None:
    row, key = {"user": "ada"}, {"Idempotency-Key": "order-17"}
    first = client.post(CLICKS, json=row, headers=key)
    again = client.post(CLICKS, json=row, headers=key)
    assert first.status_code == 201
    assert (again.status_code, again.json()) == (201, first.json())
    assert len(application.written) == 1


def test_a_key_stands_for_one_request(client: WebClient, application: MemoryApplication) -> None:
    key = {"Idempotency-Key": "order-17"}
    assert client.post(CLICKS, json={"user": "ada"}, headers=key).status_code == 201
    for path, row in ((CLICKS, {"user": "bob"}), (NOTES, {"value": "ada"})):
        answer = client.post(path, json=row, headers=key)
        assert problem(answer) == ("key-used-otherwise", 409)
    assert len(application.written) == 1


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\xe9"])
def test_a_key_that_is_no_plain_text_is_refused(client: WebClient, key: str) -> None:
    headers = [(b"Idempotency-Key", key.encode("latin-1"))]
    answer = client.post(CLICKS, json={"user": "ada"}, headers=headers)
    assert problem(answer) == ("bad-request", 400)


def test_a_key_of_the_greatest_length_is_taken(client: WebClient) -> None:
    headers = {"Idempotency-Key": "x" * 255}
    assert client.post(CLICKS, json={"user": "ada"}, headers=headers).status_code == 201


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("body", ['{"user":"ada","count":%s}', '{"rows":[{"user":[%s]}]}'])
def test_a_number_that_json_has_not_is_refused(
    client: WebClient, application: MemoryApplication, word: str, body: str
) -> None:
    answer = client.post(CLICKS, content=(body % word).encode(), headers=JSON)
    assert problem(answer) == ("bad-request", 400)
    assert answer.json()["detail"].startswith(f"the body is not JSON: {word} is not a number")
    assert application.written == []
