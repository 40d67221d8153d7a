"""Clients without a token that want to shut the HTTP server: by slow bodies, half-sent heads, and
connections that say nothing. Health and whoever has the token are answered throughout."""

import resource
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.http_attackers import (
    all_end,
    ask,
    connections,
    get,
    is_ended,
    post,
    say,
)
from tests.support.serve_process import ServeProcess
from tests.support.waiting import eventually

TOKEN = "an-open-sesame-of-the-shop"
WITH_TOKEN = f"Authorization: Bearer {TOKEN}"
FORM = "Content-Type: application/x-www-form-urlencoded"
OWN_PAGE = "Sec-Fetch-Site: same-origin"
APP = """
import millstream

app = millstream.App("shop", data="data")
app.topic("clicks", schema="user STRING NOT NULL, url STRING", key="user")
"""
# More than the requests that are answered at one time by default.
MANY = 600
LINES_MAX = 50
HEAD_MS = 1_500
SLOW_SIGN_IN = post("/console/sign-in", "t", FORM, OWN_PAGE, length=1_000).encode()

pytestmark = pytest.mark.full

Serve = Callable[..., ServeProcess]


@pytest.fixture
def stderr(tmp_path: Path) -> Path:
    return tmp_path / "stderr.txt"


@pytest.fixture
def serve(tmp_path: Path, stderr: Path) -> Iterator[Serve]:
    """Starts a server with a token and no broker."""
    file, token = tmp_path / "shop.py", tmp_path / "http.token"
    file.write_text(APP, encoding="utf-8")
    token.write_text(f"{TOKEN}\n", encoding="utf-8")
    token.chmod(0o600)
    with ExitStack() as started:

        def start(*, files_max: int | None = None, **settings: object) -> ServeProcess:
            settings = {"head_ms_max": f"{HEAD_MS}ms"} | settings
            env = {f"MILLSTREAM_WEB_{name.upper()}": f"{one}" for name, one in settings.items()}
            env["MILLSTREAM_BROKERS"] = "127.0.0.1:1"
            options = ("--token-file", str(token))
            return started.enter_context(
                ServeProcess(file, env=env, options=options, files_max=files_max, stderr=stderr)
            )

        yield start


def assert_open(server: ServeProcess, *, tls: ssl.SSLContext | None = None) -> None:
    """To health, to who has the token, and to who signs in with it."""
    address = server.address
    assert " 200 OK" in ask(address, get("/health/live"), tls=tls)
    assert " 200 OK" in ask(address, get("/v1/topics", WITH_TOKEN), tls=tls)
    form = post(
        "/console/sign-in", f"token={TOKEN}&next=/console/", FORM, OWN_PAGE, "Connection: close"
    )
    assert " 303 See Other" in ask(address, form, tls=tls)


def lines_in(stderr: Path) -> int:
    return len(stderr.read_text(encoding="utf-8").splitlines())


def test_slow_bodies_on_the_sign_in_page_shut_nobody_out(serve: Serve, stderr: Path) -> None:
    server = serve()
    with connections(server.address, MANY, SLOW_SIGN_IN) as slow:
        assert_open(server)
        assert all_end(slow, drip=b"x")
    assert_open(server)
    assert lines_in(stderr) <= LINES_MAX


def test_wrong_tokens_of_many_addresses_keep_nobody_from_signing_in(serve: Serve) -> None:
    """Each is answered after a second. Behind a proxy all are of one address, as the first here."""
    server = serve(connections_max=400, connections_per_address_max=400)
    wrong = post("/console/sign-in", "token=none-of-it&next=/console/", FORM, OWN_PAGE).encode()
    for addresses in (["127.0.0.1"], [f"127.0.0.{number}" for number in range(2, 8)]):
        with ExitStack() as pressing:
            for one in addresses:
                pressing.enter_context(connections(server.address, 80, wrong, source=one))
            assert_open(server)
            assert " 200 OK" in ask(server.address, get("/console/sign-in"))


def test_half_sent_heads_end_by_their_deadline_though_bytes_keep_coming(
    serve: Serve, stderr: Path
) -> None:
    server = serve()
    with connections(server.address, MANY, b"GET /health/live HTTP/1.1\r\nHost: loc") as half:
        assert_open(server)
        assert all_end(half, drip=b"a")
    assert lines_in(stderr) <= LINES_MAX


def test_a_body_that_nobody_reads_ends_by_the_deadline(serve: Serve) -> None:
    """The answer is there at once, and the rest of the body could come for ever."""
    server = serve()
    asked = post("/v1/topics/clicks/records", "{", length=1_000_000).encode()
    with connections(server.address, 50, asked) as unread:
        assert all_end(unread, drip=b" ")


def test_few_files_shut_nobody_out_and_fill_no_log(serve: Serve, stderr: Path) -> None:
    server = serve(files_max=192, head_ms_max="60s")
    with connections(server.address, 400, b"GET / HTTP/1.1\r\n") as idle:
        for _ in range(5):
            assert_open(server)
        assert any(is_ended(one) for one in idle)
    assert lines_in(stderr) <= LINES_MAX


def test_files_that_run_out_under_the_server_shut_nobody_out(serve: Serve, stderr: Path) -> None:
    """The application has opened more than was left to it: accept fails, places there are."""
    server = serve(head_ms_max="60s")
    assert_open(server)
    pid = server.process.pid
    in_use = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use + 40, hard))
    with connections(server.address, 200, b"GET / HTTP/1.1\r\n") as idle:
        eventually(lambda: any(map(is_ended, idle)), what="one of them is ended", within_s=20)
        for _ in range(3):
            assert " 200 OK" in ask(server.address, get("/health/live"))
    assert "no more connections for the moment" in stderr.read_text(encoding="utf-8")
    assert lines_in(stderr) <= LINES_MAX


def test_the_server_takes_as_many_files_as_the_system_gives(serve: Serve) -> None:
    """Its soft limit is often 1,024."""
    server = serve(files_max="300:2000")
    limits = Path(f"/proc/{server.process.pid}/limits").read_text(encoding="utf-8")
    [line] = [one for one in limits.splitlines() if one.startswith("Max open files")]
    assert line.split()[3:5] == ["2000", "2000"]


def test_connections_beyond_the_bound_end_those_that_wait_longest(serve: Serve) -> None:
    server = serve(connections_max=100, connections_per_address_max=100, head_ms_max="60s")
    with connections(server.address, 100, b"GET / HT") as idle:
        assert " 200 OK" in ask(server.address, get("/health/live"))
        eventually(lambda: is_ended(idle[0]), what="the oldest is ended")
        assert not any(is_ended(one) for one in idle[1:])
        assert_open(server)


def test_an_address_that_takes_all_it_may_ends_only_its_own_connections(serve: Serve) -> None:
    server = serve(connections_max=80, connections_per_address_max=20, head_ms_max="60s")
    with (
        connections(server.address, 1, b"GET / HT", source="127.0.0.2") as other,
        connections(server.address, 200, b"GET / HT") as greedy,
    ):
        assert " 200 OK" in ask(server.address, get("/health/live"), source="127.0.0.3")
        eventually(
            lambda: sum(not is_ended(one) for one in greedy) <= 20, what="the others are ended"
        )
        assert not is_ended(other[0])


def test_requests_that_cannot_be_understood_fill_no_log(serve: Serve, stderr: Path) -> None:
    server = serve()
    answer = ask(server.address, "nonsense\r\n\r\n")
    assert answer.startswith("HTTP/1.1 400 "), answer
    assert "frame-ancestors 'none'" in answer
    with connections(server.address, 300, b"\x16\x03\x01 nonsense\r\n\r\n") as bad:
        assert all_end(bad)
    assert_open(server)
    assert lines_in(stderr) <= LINES_MAX


def test_bodies_that_break_after_their_answer_fill_no_log(serve: Serve, stderr: Path) -> None:
    server = serve()
    chunked = "POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connections(server.address, 300, chunked.encode()) as bad:
        for one in bad:
            one.settimeout(30)
            assert b" 401 " in one.recv(65_536)
            say(one, b"no chunk\r\n\r\n")
        assert all_end(bad)
    assert lines_in(stderr) <= LINES_MAX


def test_half_tls_handshakes_shut_nobody_out(serve: Serve, stderr: Path, tmp_path: Path) -> None:
    made = [sys.executable, "-m", "millstream", "certs", str(tmp_path), "--host", "localhost"]
    subprocess.run(made, check=True, capture_output=True)
    server = serve(
        tls_certificate=tmp_path / "server.pem",
        tls_key=tmp_path / "server.key",
        connections_max=100,
        connections_per_address_max=100,
    )
    tls = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    with connections(server.address, 300, b"\x16\x03\x01") as half:
        assert_open(server, tls=tls)
        assert all_end(half)
    assert lines_in(stderr) <= LINES_MAX


def test_a_slow_body_of_who_has_the_token_is_read_to_its_end(serve: Serve) -> None:
    """It takes longer than a head may, and others press for its connection."""
    server = serve(connections_max=100, connections_per_address_max=100)
    rows = '{"rows": [{"user": 7}]}'
    head, body = post(
        "/v1/topics/clicks/records",
        rows,
        WITH_TOKEN,
        "Content-Type: application/json",
        "Connection: close",
    ).split("\r\n\r\n")
    with connections(server.address, 1, f"{head}\r\n\r\n".encode()) as [upload]:
        with connections(server.address, 200, b"GET / HT") as pressing:
            for one in body[:-1]:
                say(upload, one.encode())
                assert not all_end([upload], within_s=0.1)
            assert all_end(pressing)
        say(upload, body[-1].encode())
        upload.settimeout(30)
        assert b" 422 " in upload.recv(65_536)
