"""The OpenAPI document: what it says is served, and what is served it says."""

import re
from typing import Any

import pytest

from millstream.web.operations import OPERATIONS
from millstream.web.problems import KINDS, WORDS
from tests.support.web_application import TOPICS, MemoryApplication
from tests.support.web_client import WebClient, problem

OF_PROBLEM = "application/problem+json"


@pytest.fixture
def document(client: WebClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def template(path: str) -> str:
    """The path as the table has it."""
    path = re.sub(r"^/v1/topics/[^/]+/", "/v1/topics/{topic}/", path)
    path = re.sub(r"^/v1/views/[^/]+", "/v1/views/{view}", path)
    path = re.sub(r"^/v1/tables/[^/]+", "/v1/tables/{table}", path)
    return re.sub(r"/rows/.+", "/rows/{key}", path)


def test_every_operation_is_documented_and_no_other(document: dict[str, Any]) -> None:
    documented = {
        (method.upper(), template(path))
        for path, methods in document["paths"].items()
        for method in methods
    }
    assert documented == {(one.method, one.path) for one in OPERATIONS}
    assert {f"/v1/topics/{topic}/records" for topic in TOPICS} < set(document["paths"])


def test_every_documented_path_is_served(client: WebClient, document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method in methods:
            asked = path.replace("{shop}", "ada").replace("{day}", "2026-11-01")
            answer = client.ask(method.upper(), asked, json={} if method == "post" else None)
            is_problem = answer.headers["content-type"] == OF_PROBLEM
            assert not is_problem or problem(answer)[0] == "does-not-fit", path


def test_every_name_of_an_operation_is_its_own(document: dict[str, Any]) -> None:
    names = [
        one["operationId"] for methods in document["paths"].values() for one in methods.values()
    ]
    assert len(names) == len(set(names))


def test_the_columns_of_rows_and_keys_are_described(document: dict[str, Any]) -> None:
    get_row = document["paths"]["/v1/views/sales/rows/{shop}/{day}"]["get"]
    assert [one["name"] for one in get_row["parameters"]] == ["shop", "day", "after", "timeout"]
    assert get_row["parameters"][1]["schema"] == {"type": "string", "format": "date"}
    row = get_row["responses"]["200"]["content"]["application/json"]["schema"]
    assert row["required"] == ["shop", "day", "total", "at", "share"]


def test_a_view_that_is_not_there_yet_is_documented_without_its_columns(
    client: WebClient, application: MemoryApplication
) -> None:
    application.kept["sales"].close()
    application.kept["sales"].store.drop()
    paths = client.get("/openapi.json").json()["paths"]
    assert "/v1/views/sales/rows/{key}" in paths


def test_every_kind_of_problem_has_words(document: dict[str, Any]) -> None:
    assert set(WORDS.values()) <= set(KINDS)
    for kind in KINDS.values():
        assert 400 <= kind.status < 600
        assert kind.what_to_do.endswith(".")


def test_a_method_that_a_path_has_not_is_refused_with_those_that_it_has(client: WebClient) -> None:
    answer = client.ask("DELETE", "/v1/views/sales")
    assert problem(answer) == ("method-not-allowed", 405)
    assert "GET" in answer.headers["allow"]


def test_the_page_leads_to_what_there_is(client: WebClient) -> None:
    links = re.findall(r'href="([^"]+)"', client.get("/").text)
    assert "/v1/views/sales/rows" in links
    assert {client.get(link).status_code for link in links} == {200}
