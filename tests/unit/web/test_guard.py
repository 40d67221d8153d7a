"""Who may ask: by which name, from which page, with which token, how much at one time."""

from collections.abc import Iterator

import pytest

from millstream.web import guard
from millstream.web.guard import Admission, Slots, host_name, loopback_hosts
from millstream.web.limits import URL_BYTES_MAX
from millstream.web.listening import (
    PLAIN_ON_THE_NETWORK,
    NoTokenBeyondLoopback,
    PlainBeyondLoopback,
    TlsFiles,
    WeakToken,
    check_listening,
)
from millstream.web.problems import Problem
from tests.support.waiting import eventually
from tests.support.web_application import MemoryApplication, sales_row
from tests.support.web_client import WebClient, problem

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def guarded(application: MemoryApplication) -> Iterator[WebClient]:
    with WebClient(application, admission=Admission(token=TOKEN)) as client:
        yield client


@pytest.fixture
def on_loopback(application: MemoryApplication) -> Iterator[WebClient]:
    hosts = loopback_hosts(["Shop.example.org"])
    with WebClient(application, admission=Admission(hosts=hosts)) as client:
        yield client


# The token


def test_who_has_the_token_is_let_in(guarded: WebClient) -> None:
    for scheme in ("Bearer", "bearer"):
        headers = {"Authorization": f"{scheme} {TOKEN}"}
        assert guarded.get("/v1/views", headers).status_code == 200


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xe9"],
)
def test_who_has_not_is_refused_everywhere(guarded: WebClient, given: str | None) -> None:
    headers = [] if given is None else [(b"Authorization", given.encode("latin-1"))]
    for path in ("/", "/v1/views", "/v1/views/sales/rows", "/openapi.json", "/health", "/nothing"):
        answer = guarded.get(path, headers)
        assert problem(answer) == ("no-token", 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert problem(guarded.post("/v1/topics/clicks/records", json={}))[1] == 401


def test_whether_the_server_lives_is_no_secret(guarded: WebClient) -> None:
    assert guarded.get("/health/live").status_code == 200


def test_the_token_is_not_shown() -> None:
    assert TOKEN not in repr(Admission(token=TOKEN))


# Browsers


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "LOCALHOST", "localhost."]
)
def test_a_server_on_loopback_answers_to_its_own_names(on_loopback: WebClient, host: str) -> None:
    assert on_loopback.get("/v1/views", {"Host": host}).status_code == 200
    assert on_loopback.get("/v1/views", {"Host": "shop.example.org"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "localhost.evil.example"])
def test_a_name_that_was_made_to_lead_here_is_refused(on_loopback: WebClient, host: str) -> None:
    assert problem(on_loopback.get("/v1/views", {"Host": host})) == ("foreign-page", 403)


def test_a_page_of_another_site_is_refused(client: WebClient) -> None:
    own = {"Origin": "http://localhost:8080"}
    assert client.get("/v1/views", own).status_code == 200
    for origin in ("http://evil.example", "http://localhost:9090", "null", "http://["):
        answer = client.post("/v1/topics/clicks/records", json={}, headers={"Origin": origin})
        assert problem(answer) == ("foreign-page", 403)


def test_no_answer_allows_other_sites_to_read_it(client: WebClient) -> None:
    answer = client.get("/v1/views", {"Origin": "http://localhost:8080"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_host_is_told_from_its_port() -> None:
    assert [host_name(one) for one in ("a:1", "a", "[::1]:1", "[::1]", "")] == [
        "a",
        "a",
        "[::1]",
        "[::1]",
        "",
    ]


# Load


def test_a_url_is_taken_up_to_its_limit_and_not_one_byte_more(client: WebClient) -> None:
    path = "/" + "x" * (URL_BYTES_MAX - 1)
    assert problem(client.get(path)) == ("not-found", 404)
    assert problem(client.get(path + "x")) == ("url-too-long", 414)


def test_no_more_requests_at_one_time_than_the_limit(application: MemoryApplication) -> None:
    with WebClient(application, admission=Admission(requests_max=1)) as client:
        feed = client.stream_beside("/v1/views/sales/changes", lambda came: b"77.70" in came)
        eventually(lambda: client.get("/v1/views").status_code == 429, what="the feed is open")
        assert problem(client.get("/v1/views")) == ("too-many", 429)
        assert client.get("/health/live").status_code == 200
        application.kept["sales"].write([sales_row("ada", 1, "77.70")])
        client.came_of(feed)
        assert client.get("/v1/views").status_code == 200


def test_slots_are_given_up_to_their_bounds_and_taken_back() -> None:
    slots = Slots(2, 1)
    with slots.slot("a"):
        with pytest.raises(Problem, match="answered already"), slots.slot("a"):
            pass
        with slots.slot("b"), pytest.raises(Problem, match="answered already"), slots.slot("c"):
            pass
    with slots.slot("a"):
        pass


# Where to listen

TLS = TlsFiles(certificate=None, key=None)  # type: ignore[arg-type]  # whether there is one counts


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_loopback_needs_nothing(host: str) -> None:
    check_listening(host, 8080, token=None, tls=None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "shop.example.org"])
def test_beyond_loopback_there_must_be_a_token_and_tls(host: str) -> None:
    with pytest.raises(NoTokenBeyondLoopback, match="--token-file"):
        check_listening(host, 8080, token=None, tls=TLS)
    with pytest.raises(PlainBeyondLoopback, match="tls_certificate"):
        check_listening(host, 8080, token=TOKEN, tls=None)
    with pytest.raises(PlainBeyondLoopback):
        check_listening(host, 8080, token=TOKEN, tls=None, plain_http="yes")
    check_listening(host, 8080, token=TOKEN, tls=TLS)
    check_listening(host, 8080, token=TOKEN, tls=None, plain_http=PLAIN_ON_THE_NETWORK)


@pytest.mark.parametrize("token", ["x" * 19, "secret", "with a space in it somewhere", "é" * 20])
def test_a_token_that_can_be_guessed_or_not_be_sent_is_refused(token: str) -> None:
    with pytest.raises(WeakToken):
        check_listening("127.0.0.1", 8080, token=token, tls=None)


def test_whether_the_server_lives_is_answered_where_open_paths_are_full(
    monkeypatch: pytest.MonkeyPatch, application: MemoryApplication
) -> None:
    monkeypatch.setattr(guard, "OPEN_REQUESTS_MAX", 0)
    with WebClient(application, admission=Admission(token=TOKEN)) as client:
        assert client.get("/health/live").status_code == 200
