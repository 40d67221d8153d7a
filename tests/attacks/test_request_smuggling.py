"""Whoever shares a connection to the server, by a proxy, hides no request in another."""

import socket
from collections.abc import Iterator

import pytest

from millstream.web.server import Listening, server_beside
from millstream.web.service import make_service
from tests.support.web_application import MemoryApplication, sales_view

HIDDEN = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = HIDDEN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
JSON = "Content-Type: application/json"
WITHIN_S = 30.0


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    application = MemoryApplication(sales_view(tmp_path_factory.mktemp("views")))
    listening = Listening(host="127.0.0.1", port=0)
    with server_beside(lambda: make_service(application), listening) as url:
        yield "127.0.0.1", int(url.rpartition(":")[2])
    application.close()


def statuses(address: tuple[str, int], said: bytes) -> list[str]:
    """Of all answers until the server ends the connection."""
    with socket.create_connection(address, timeout=WITHIN_S) as one:
        one.sendall(said)
        heard = b""
        while some := one.recv(65_536):
            heard += some
    return [part[:3].decode() for part in heard.split(b"HTTP/1.1 ")[1:]]


def posting(*headers: str, body: bytes = b"") -> bytes:
    lines = ["POST /v1/topics/clicks/records HTTP/1.1", "Host: localhost", JSON, *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 0"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding: \x0bchunked",),
        ("Transfer-Encoding : chunked",),
        ("Content-Length: +5",),
        ("Content-Length: 0x5",),
    ],
    ids=" and ".join,
)
def test_a_request_of_two_lengths_is_the_last_of_its_connection(
    address: tuple[str, int], headers: tuple[str, ...]
) -> None:
    said = posting(*headers, body=b"0\r\n\r\n") + HIDDEN + LAST
    assert statuses(address, said) in (["400"], ["501"])


def test_requests_of_one_length_are_answered_one_after_the_other(
    address: tuple[str, int],
) -> None:
    """The control."""
    said = posting("Transfer-Encoding: chunked", body=b"0\r\n\r\n")
    said += posting("Content-Length: 2", body=b"{}")
    assert statuses(address, said + HIDDEN + LAST)[2:] == ["200", "200"]
