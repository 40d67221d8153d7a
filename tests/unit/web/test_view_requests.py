"""Reading views over HTTP: by key, by conditions, page by page; fresh enough."""

import json
import math
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from millstream.base.errors import Retryable
from millstream.schemas.declaration import schema_of
from millstream.web.limits import Limits
from tests.support.web_application import KeptView, MemoryApplication, sales_row
from tests.support.web_client import WebClient, problem

ROWS = "/v1/views/sales/rows"
VIEW = "/v1/views/sales"


def days(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 200, answer.text
    return [(row["shop"], row["day"][-2:]) for row in answer.json()["rows"]]


def test_a_view_is_described(client: WebClient) -> None:
    assert client.get("/v1/views").json() == {"views": ["sales"]}
    found = client.get(VIEW).json()
    assert (found["name"], found["key"]) == ("sales", ["shop", "day"])
    assert found["columns"][1] == {"name": "day", "type": "DATE", "nullable": True}
    assert found["position"] == {"clicks": {"0": 1}}
    [generation] = found["generations"]
    assert (generation["number"], generation["is_served"]) == (1, True)


def test_the_row_of_a_key_is_found_by_its_path(client: WebClient) -> None:
    assert client.get(f"{ROWS}/ada/2026-11-02").json() == {
        "shop": "ada",
        "day": "2026-11-02",
        "total": "2.50",
        "at": "2026-11-16T12:00:00Z",
        "share": 0.5,
    }


def test_a_slash_within_a_key_is_written_in_hex(client: WebClient) -> None:
    assert client.get(f"{ROWS}/a%2Fb/2026-11-02").json()["shop"] == "a/b"


def test_a_key_without_a_row_is_not_found(client: WebClient) -> None:
    assert problem(client.get(f"{ROWS}/ada/2027-01-01")) == ("no-row", 404)


@pytest.mark.parametrize("key", ["ada", "ada/2026-11-02/x", "ada/today", "ada/", "/"])
def test_a_key_that_is_none_of_the_view_is_refused(client: WebClient, key: str) -> None:
    assert problem(client.get(f"{ROWS}/{key}")) == ("does-not-fit", 422)


def test_several_keys_are_asked_at_once(client: WebClient) -> None:
    keys = ['["ada", "2026-11-02"]', '["bob", "2026-11-02"]', '{"day":"2026-11-01","shop":"a/b"}']
    found = client.get(ROWS, key=keys).json()["rows"]
    assert [row and row["total"] for row in found] == ["2.50", None, "1.50"]


def test_rows_are_found_by_conditions_in_an_order(client: WebClient) -> None:
    where = json.dumps({"total >=": "3.5", "shop": "ada", "at <": "2027-01-01T00:00:00Z"})
    answer = client.get(ROWS, where=where, order_by="-total")
    assert days(answer) == [("ada", "05"), ("ada", "04"), ("ada", "03")]
    assert answer.json()["more"] is False


def test_a_list_of_values_is_a_condition(client: WebClient) -> None:
    where = '{"day in": ["2026-11-01", "2026-11-05"], "shop starts with": "a/"}'
    assert days(client.get(ROWS, where=where)) == [("a/b", "01"), ("a/b", "05")]


def test_more_rows_than_the_limit_are_told_of(client: WebClient) -> None:
    answer = client.get(ROWS, where='{"shop": "ada"}', limit=4)
    assert len(days(answer)) == 4
    assert answer.json()["more"] is True


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 9, 10, 11])
def test_pages_together_are_the_whole_view(client: WebClient, limit: int) -> None:
    found: list[tuple[str, str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get(ROWS, limit=limit, **cursor).json()
        assert len(page["rows"]) <= limit
        found += [(row["shop"], row["day"]) for row in page["rows"]]
        assert len(found) <= 10, "rows came twice"
        assert page["more"] == (page["next"] is not None)
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    days_of = [f"2026-11-{day:02}" for day in range(1, 6)]
    assert found == [(shop, day) for shop in ("a/b", "ada") for day in days_of]


def test_pages_go_on_at_keys_that_json_has_no_number_for(tmp_path: Path) -> None:
    """In a struct too; NaN is the same as NaN, and no row comes twice."""
    schema = schema_of("x DOUBLE, w STRUCT<y: FLOAT, s: STRING>")
    kept = KeptView(tmp_path, "measures", schema, ("x", "w"))
    numbers = [-math.inf, 1.5, math.inf, math.nan, None]
    rows = [{"x": x, "w": {"y": y, "s": '"'}} for x in numbers for y in numbers]
    kept.write(rows)
    application = MemoryApplication(kept)
    with closing(application), WebClient(application) as client:
        whole = client.get("/v1/views/measures/rows").json()["rows"]
        found: list[Any] = []
        cursor: dict[str, str] = {}
        for _ in rows:
            page = client.get("/v1/views/measures/rows", limit=1, **cursor).json()
            found += page["rows"]
            cursor = {"cursor": page["next"]}
    assert found == whole
    assert len(found) == len(rows)
    assert page["next"] is None


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_a_path_names_a_key_that_json_has_no_number_for(tmp_path: Path, word: str) -> None:
    kept = KeptView(tmp_path, "measures", schema_of("x DOUBLE, n INT"), ("x",))
    kept.write([{"x": float(word), "n": 7}])
    application = MemoryApplication(kept)
    with closing(application), WebClient(application) as client:
        assert client.get(f"/v1/views/measures/rows/{word}").json()["n"] == 7


@pytest.mark.parametrize("key", ["k ARRAY<STRING>", "k STRUCT<a: STRING, b: ARRAY<INT>>"])
def test_keys_without_an_order_have_no_next_page(tmp_path: Path, key: str) -> None:
    kept = KeptView(tmp_path, "unordered", schema_of(f"{key}, n INT"), ("k",))
    keys: list[Any] = [["a"], ["b"], ["c"]]
    if "STRUCT" in key:
        keys = [{"a": one[0], "b": [1]} for one in keys]
    kept.write([{"k": one, "n": 1} for one in keys])
    application = MemoryApplication(kept)
    with closing(application), WebClient(application) as client:
        page = client.get("/v1/views/unordered/rows", limit=2).json()
        whole = client.get("/v1/views/unordered/rows").json()
    assert (len(page["rows"]), page["more"], page["next"]) == (2, True, None)
    assert (len(whole["rows"]), whole["more"]) == (3, False)


def test_a_page_goes_on_where_its_last_row_was_though_that_is_gone(
    client: WebClient, application: MemoryApplication
) -> None:
    page = client.get(ROWS, limit=2).json()
    application.kept["sales"].write([sales_row("a/b", 2, "0")], deletes=True)
    following = client.get(ROWS, limit=2, cursor=page["next"])
    assert days(following) == [("a/b", "03"), ("a/b", "04")]


def test_a_range_of_keys_has_both_its_ends(client: WebClient) -> None:
    answer = client.get(ROWS, first='["a/b", "2026-11-05"]', last='["ada", "2026-11-01"]')
    assert days(answer) == [("a/b", "05"), ("ada", "01")]
    assert len(days(client.get(ROWS, first='["ada"]'))) == 5


def test_a_number_that_json_does_not_have_is_a_word(
    client: WebClient, application: MemoryApplication
) -> None:
    application.kept["sales"].write([sales_row("ada", 1, "1", share=float("nan"))])
    assert client.get(f"{ROWS}/ada/2026-11-01").json()["share"] == "NaN"


# Freshness


def test_a_read_waits_for_a_write(client: WebClient, application: MemoryApplication) -> None:
    application.kept["sales"].write([sales_row("ada", 9, "9")])
    answer = client.get(f"{ROWS}/ada/2026-11-09", after="clicks:0:1", timeout=10)
    assert answer.json()["total"] == "9.00"


def test_a_read_ends_when_the_view_does_not_get_there(client: WebClient) -> None:
    for path in (ROWS, f"{ROWS}/ada/2026-11-01"):
        answer = client.get(path, after="clicks:0:99", timeout="0.01")
        assert problem(answer) == ("not-reached", 412)
        assert answer.headers["retry-after"] == "1"


def test_a_topic_that_the_view_does_not_read_is_told(client: WebClient) -> None:
    answer = client.get(ROWS, after="orders:0:1")
    assert problem(answer) == ("refused", 422)
    assert "not made from topic orders" in answer.json()["detail"]


def test_no_more_wait_at_one_time_than_the_limit(application: MemoryApplication) -> None:
    with WebClient(application, limits=Limits(waits_max=1)) as client:
        taken = client.service.serving.calls._waiting.acquire_on_behalf_of_nowait
        taken("somebody else")
        answer = client.get(ROWS, after="clicks:0:0")
        assert client.get(ROWS).status_code == 200
    assert problem(answer) == ("too-many", 429)
    assert answer.headers["retry-after"] == "1"


# What is refused


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"limit": 0}, "parameter limit: '0' is no whole number from 1 to 10000"),
        ({"limit": 10_001}, "parameter limit: '10001' is no whole number from 1 to 10000"),
        ({"limit": "ten"}, "parameter limit: 'ten' is no whole"),
        ({"limit": ["1", "2"]}, "parameter limit: it is there 2 times"),
        ({"timeout": 61}, "parameter timeout: '61' is no number of seconds from 0 to 60"),
        ({"timeout": "nan"}, "parameter timeout: 'nan' is no number"),
        ({"wehre": "{}"}, "parameter wehre: there is no such parameter"),
        ({"where": "{"}, "parameter where: not JSON"),
        ({"where": "[]"}, "parameter where: it is a JSON object"),
        ({"key": "ada"}, "parameter key: not JSON"),
        ({"after": "clicks"}, "parameter after: 'clicks' is not topic:partition:offset"),
        ({"after": "clicks:0:-1"}, "parameter after: 'clicks:0:-1' is not topic"),
    ],
)
def test_a_question_that_the_document_does_not_allow_is_a_bad_request(
    client: WebClient, query: dict[str, Any], told: str
) -> None:
    answer = client.get(ROWS, **query)
    assert problem(answer) == ("bad-request", 400)
    assert answer.json()["detail"].startswith(told)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"where": '{"totl": 1}'}, "field `totl`: the view has no such column"),
        ({"where": '{"total": "x"}'}, "field `total`: expected DECIMAL(12,2)"),
        ({"where": '{"shop in": "ada"}'}, "field `shop in`: expected ARRAY"),
        ({"where": '{"total <": null}'}, "total < null is never true"),
        ({"order_by": "totl"}, "view sales has no column totl"),
        ({"key": '["ada"]'}, "view sales is read by shop, day: 2 values, not 1"),
        ({"key": '["ada", 7]'}, "field `day`: expected a DATE"),
        ({"key": '["ada", "2026-11-02"]', "where": "{}"}, "parameter where does not go together"),
        ({"where": "{}", "cursor": "x"}, "parameter cursor does not go together with where"),
        ({"cursor": "x"}, "parameter cursor: it is not one"),
        ({"cursor": "WyJhZGEiXQ"}, "view sales is read by shop, day"),
        ({"cursor": "e30"}, "parameter cursor: it is not one"),
    ],
)
def test_a_question_that_the_view_cannot_answer_does_not_fit(
    client: WebClient, query: dict[str, Any], told: str
) -> None:
    answer = client.get(ROWS, **query)
    assert problem(answer) == ("does-not-fit", 422)
    assert answer.json()["detail"].startswith(told)


@pytest.mark.parametrize("name", ["sale", "..", "..%2Fsales", "sales%00", "%ff"])
def test_a_view_that_is_not_declared_is_not_looked_for(client: WebClient, name: str) -> None:
    for path in (f"/v1/views/{name}/rows", f"/v1/views/{name}/changes"):
        assert problem(client.get(path))[1] == 404


def test_a_view_whose_job_never_ran_is_told(
    client: WebClient, application: MemoryApplication
) -> None:
    store = application.kept["sales"].store
    application.kept["sales"].close()
    store.drop()
    assert problem(client.get(ROWS)) == ("view-not-there-yet", 404)


# Health


def test_all_is_well(client: WebClient) -> None:
    answer = client.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    assert client.get("/health/live").json() == {"status": "live"}


def test_a_broker_that_does_not_answer_is_told(
    client: WebClient, application: MemoryApplication
) -> None:
    application.broker_trouble = Retryable("no broker answers at 127.0.0.1:9092")
    answer = client.get("/health")
    assert answer.status_code == 503
    assert answer.json()["broker"] == "no broker answers at 127.0.0.1:9092"
    assert answer.json()["views"] == {"sales": "ready"}
    assert client.get("/health/live").status_code == 200


def test_a_fault_tells_the_client_nothing_of_the_inside(
    client: WebClient, application: MemoryApplication, caplog: pytest.LogCaptureFixture
) -> None:
    application.opened.clear()
    application.opened["sales"] = None  # type: ignore[assignment]  # what nobody foresaw
    answer = client.get(ROWS)
    assert problem(answer) == ("fault", 500)
    assert "NoneType" not in answer.text
    assert "NoneType" in caplog.text
    application.opened.clear()
