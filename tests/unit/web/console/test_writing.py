"""Who may change something by the console, and what is then changed."""

import re

import httpx
import pytest

from millstream.web.console.actions import FIELDS_MAX
from millstream.web.console.sessions import (
    COOKIE,
    SESSION_MS,
    is_session,
    session_for,
    session_in,
    visitor_of,
)
from millstream.web.limits import OPEN_BODY_BYTES_MAX
from tests.support.console_source import NOW_MS, MemorySource
from tests.support.web_application import MemoryApplication
from tests.support.web_client import WebClient, problem
from tests.unit.web.console.conftest import TOKEN

OWN = {"Origin": "http://localhost:8080"}
PRODUCE = "/console/topics/notes/records"
REDRIVE = "/console/queues/restock/redrive"
RESTART = "/console/jobs/sales/restart"


def sign_in(client: WebClient, token: str = TOKEN, **fields: str) -> httpx.Response:
    return client.post("/console/sign-in", data={"token": token, **fields}, headers=OWN)


def signed_in(client: WebClient) -> dict[str, str]:
    """The headers of a browser that is signed in."""
    cookie = sign_in(client).headers["set-cookie"].partition(";")[0]
    return {"Cookie": cookie, "Accept": "text/html", **OWN}


def form_word(client: WebClient, headers: dict[str, str]) -> str:
    text = client.get("/console/topics/notes", headers).text
    found: list[str] = re.findall(r'name="form_word" value="(\w+)"', text)
    return found[0]


# --- without a token


def test_without_a_token_everything_can_be_read_and_nothing_written(
    console: WebClient, source: MemorySource
) -> None:
    page = console.get("/console/topics/notes").text
    assert "This console is read-only: the server" in page
    assert "<textarea" not in page
    assert "Restart sales" not in console.get("/console/jobs/sales").text
    for path in (PRODUCE, REDRIVE, RESTART, "/console/sign-out"):
        answer = console.post(path, data={"value": "x", "all": "yes", "form_word": ""}, headers=OWN)
        assert answer.status_code == 403
    assert source.topics.written == []
    assert source.queues.redriven == []
    assert source.declared.restarted == []
    assert sign_in(console, "").status_code == 401


# --- the way in


def test_a_page_leads_who_is_not_in_to_the_way_in(guarded: WebClient) -> None:
    answer = guarded.get("/console/topics?q=a", {"Accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/console/sign-in?next=%2Fconsole%2Ftopics%3Fq%3Da"
    assert guarded.get("/", {"Accept": "text/html"}).status_code == 303
    assert guarded.get("/", {"Accept": "application/json"}).status_code == 401
    assert guarded.get("/console/sign-in").status_code == 200
    assert guarded.get("/console/topics", {"Accept": "text/event-stream"}).status_code == 401


def test_the_way_in_does_not_say_whose_console_it_is(guarded: WebClient) -> None:
    page = guarded.get("/console/sign-in").text
    assert "shop" not in page
    assert "/console/topics" not in page


def test_the_token_opens_the_console_and_nothing_else(guarded: WebClient) -> None:
    headers = signed_in(guarded)
    assert guarded.get("/console/", headers).status_code == 200
    assert guarded.get("/v1/views", headers).status_code == 401
    assert guarded.get("/consoles", headers).status_code == 401


def test_the_cookie_is_for_our_pages_alone(guarded: WebClient) -> None:
    cookie = sign_in(guarded).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/console" in cookie
    assert TOKEN not in cookie
    assert "secure" not in cookie, "there is no TLS here"


def test_behind_tls_the_cookie_is_sent_over_tls_alone(guarded: WebClient) -> None:
    secure = {"Origin": "https://localhost:8080"}
    answer = guarded.post(
        "https://localhost:8080/console/sign-in", data={"token": TOKEN}, headers=secure
    )
    assert "secure" in answer.headers["set-cookie"].lower()


def test_a_form_of_too_many_fields_is_refused(guarded: WebClient) -> None:
    fields = {f"field-{number}": "x" for number in range(FIELDS_MAX + 1)}
    answer = guarded.post("/console/sign-in", data={"token": TOKEN, **fields}, headers=OWN)
    assert answer.status_code == 400


@pytest.mark.parametrize("given", ["", "wrong", f"{TOKEN}x", "é"])
def test_another_token_is_refused(guarded: WebClient, given: str) -> None:
    answer = sign_in(guarded, given)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("/console/jobs?q=1", "/console/jobs?q=1"),
        ("https://evil.example/", "/console/"),
        ("//evil.example/console/", "/console/"),
        ("/console/\r\nSet-Cookie: a=b", "/console/"),
        ("/\\evil.example", "/console/"),
    ],
)
def test_one_gets_to_a_page_of_the_console_and_nowhere_else(
    guarded: WebClient, wanted: str, place: str
) -> None:
    assert sign_in(guarded, next=wanted).headers["location"] == place


def test_a_session_ends(guarded: WebClient) -> None:
    session = session_for(TOKEN, now_ms=NOW_MS)
    assert is_session(session, TOKEN, now_ms=NOW_MS + SESSION_MS - 1)
    assert not is_session(session, TOKEN, now_ms=NOW_MS + SESSION_MS)
    assert not is_session(session, f"{TOKEN}2", now_ms=NOW_MS)
    assert not is_session("", TOKEN, now_ms=NOW_MS)
    later = f"{NOW_MS + 2 * SESSION_MS}.{session.partition('.')[2]}"
    assert not is_session(later, TOKEN, now_ms=NOW_MS)


def test_a_cookie_that_cannot_be_read_is_none() -> None:
    assert session_in({"cookie": 'a="\x00'}) == ""
    assert session_in({"cookie": f"x=1; {COOKIE}=7.ab"}) == "7.ab"


def test_a_token_in_a_header_reads_and_does_not_write(guarded: WebClient) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}", **OWN}
    assert guarded.get("/console/", bearer).status_code == 200
    assert guarded.post(PRODUCE, data={"value": "x"}, headers=bearer).status_code == 403
    assert not visitor_of(bearer, TOKEN, now_ms=NOW_MS).may_write


def test_signing_out_takes_the_cookie_back(guarded: WebClient) -> None:
    headers = signed_in(guarded)
    form = {"form_word": form_word(guarded, headers)}
    answer = guarded.post("/console/sign-out", data=form, headers=headers)
    assert answer.status_code == 303
    assert f'{COOKIE}="";' in answer.headers["set-cookie"]


# --- forms of other sites


def test_a_form_of_another_site_changes_nothing(guarded: WebClient, source: MemorySource) -> None:
    headers = signed_in(guarded)
    form = {"value": "x", "form_word": form_word(guarded, headers)}
    foreign = [{"Origin": "http://evil.example"}, {"Origin": "null"}]
    for other in foreign:
        assert guarded.post(PRODUCE, data=form, headers=headers | other).status_code == 403
    nowhere = {name: value for name, value in headers.items() if name != "Origin"}
    assert guarded.post(PRODUCE, data=form, headers=nowhere).status_code == 403
    cross = nowhere | {"Sec-Fetch-Site": "cross-site"}
    assert guarded.post(PRODUCE, data=form, headers=cross).status_code == 403
    named = headers | {"Host": "evil.example", "Origin": "http://evil.example"}
    assert guarded.post(PRODUCE, data=form, headers=named).status_code == 403
    assert source.topics.written == []


@pytest.mark.parametrize("word", ["", "0" * 64])
def test_a_form_without_the_word_of_the_session_changes_nothing(
    guarded: WebClient, source: MemorySource, word: str
) -> None:
    headers = signed_in(guarded)
    answer = guarded.post(PRODUCE, data={"value": "x", "form_word": word}, headers=headers)
    assert answer.status_code == 403
    assert "the form is none of this session" in answer.text
    assert source.topics.written == []


def test_json_is_no_form(guarded: WebClient) -> None:
    assert guarded.post(PRODUCE, json={}, headers=signed_in(guarded)).status_code == 400


# --- what is done


def test_a_record_is_produced_and_shown(guarded: WebClient, source: MemorySource) -> None:
    headers = signed_in(guarded)
    form = {
        "form_word": form_word(guarded, headers),
        "key": "ada",
        "value": "one\r\ntwo",
        "headers": "trace: 7\r\nof: me",
        "partition": "0",
    }
    answer = guarded.post(PRODUCE, data=form, headers=headers)
    assert answer.status_code == 303
    [written] = source.topics.written
    assert (written.key, written.value) == (b"ada", b"one\ntwo")
    assert written.headers == (("trace", b"7"), ("of", b"me"))
    page = guarded.get(answer.headers["location"], headers).text
    assert "Produced:" in page


def test_a_tombstone_is_no_value(guarded: WebClient, source: MemorySource) -> None:
    headers = signed_in(guarded)
    form = {"form_word": form_word(guarded, headers), "key": "k", "is_null": "yes", "value": "x"}
    assert guarded.post(PRODUCE, data=form, headers=headers).status_code == 303
    assert source.topics.written[0].value is None


@pytest.mark.parametrize(
    "wrong", [{"partition": "-1"}, {"partition": "x"}, {"headers": "no colon"}]
)
def test_what_does_not_fit_is_told(
    guarded: WebClient, source: MemorySource, wrong: dict[str, str]
) -> None:
    headers = signed_in(guarded)
    form = {"form_word": form_word(guarded, headers), "value": "x", **wrong}
    assert guarded.post(PRODUCE, data=form, headers=headers).status_code == 422
    assert source.topics.written == []


def test_a_declared_topic_takes_rows_that_fit(
    guarded: WebClient, application: MemoryApplication
) -> None:
    headers = signed_in(guarded)
    word = {"form_word": form_word(guarded, headers)}
    path = "/console/topics/clicks/records"
    good = word | {"value": '{"user": "ada", "url": "/", "count": 3, "at": null}'}
    assert guarded.post(path, data=good, headers=headers).status_code == 303
    assert len(application.written) == 1
    bad = word | {"value": '{"user": "ada", "count": "many"}'}
    assert guarded.post(path, data=bad, headers=headers).status_code == 422
    assert len(application.written) == 1


@pytest.mark.parametrize("topic", ["_state", "nothing"])
def test_an_internal_topic_is_not_written(
    guarded: WebClient, source: MemorySource, topic: str
) -> None:
    headers = signed_in(guarded)
    form = {"form_word": form_word(guarded, headers), "value": "x"}
    path = f"/console/topics/{topic}/records"
    assert guarded.post(path, data=form, headers=headers).status_code == 404
    assert source.topics.written == []


def test_chosen_letters_are_put_back_or_all(guarded: WebClient, source: MemorySource) -> None:
    headers = signed_in(guarded)
    word = {"form_word": form_word(guarded, headers)}
    assert guarded.post(REDRIVE, data=word, headers=headers).status_code == 422
    chosen = word | {"id": ["restock-0-1", "restock-0-2"]}
    answer = guarded.post(REDRIVE, data=chosen, headers=headers)
    assert answer.headers["location"] == "/console/queues/restock?redriven=2"
    guarded.post(REDRIVE, data=word | {"all": "yes"}, headers=headers)
    assert source.queues.redriven == [["restock-0-1", "restock-0-2"], None]
    assert "Put back: 2 letters." in guarded.get(answer.headers["location"], headers).text


def test_a_job_is_begun_again(guarded: WebClient, source: MemorySource) -> None:
    headers = signed_in(guarded)
    assert "Restart sales" in guarded.get("/console/jobs/sales", headers).text
    assert "Restart mails" not in guarded.get("/console/jobs/mails", headers).text  # it never ran
    word = {"form_word": form_word(guarded, headers)}
    assert guarded.post(RESTART, data={"form_word": "x"}, headers=headers).status_code == 403
    answer = guarded.post(RESTART, data=word, headers=headers)
    assert answer.headers["location"] == "/console/jobs/sales?restarted=1"
    assert source.declared.restarted == ["sales"]
    assert "Asked to begin again" in guarded.get(answer.headers["location"], headers).text


def test_a_sign_in_is_read_up_to_its_limit_and_not_one_byte_more(guarded: WebClient) -> None:
    """Anyone may send one: it has a limit of its own."""
    fields = {"next": "x" * (OPEN_BODY_BYTES_MAX - len(f"token={TOKEN}&next="))}
    assert sign_in(guarded, **fields).status_code == 303
    fields["next"] += "x"
    assert problem(sign_in(guarded, **fields)) == ("too-large", 413)
