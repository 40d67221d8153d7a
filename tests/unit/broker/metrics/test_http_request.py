import contextlib
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.metrics.http_request import RefusedRequest, answer, read_request


def test_a_request_has_its_method_path_and_headers() -> None:
    request = read_request(
        b"GET /metrics?name=x HTTP/1.1\r\nHost: localhost\r\nAccept:  text/plain \r\n\r\n"
    )
    assert (request.method, request.path) == ("GET", "/metrics")
    assert request.headers == {"host": "localhost", "accept": "text/plain"}


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET /metrics HTTP/2\r\n\r\n", 505),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"\xff\xfe\x00 /metrics HTTP/1.1\r\n\r\n", 405),
    ],
)
def test_what_is_no_request_for_metrics_is_refused(head: bytes, status: int) -> None:
    with pytest.raises(RefusedRequest) as refused:
        read_request(head)
    assert refused.value.status == status


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(head: bytes) -> None:
    for request in (head, b"GET /metrics HTTP/1.1\r\n" + head):
        with contextlib.suppress(RefusedRequest):
            read_request(request + b"\r\n\r\n")


def test_an_answer_says_how_long_it_is_and_that_it_is_the_last() -> None:
    text = answer(HTTPStatus.OK, b"ok\n", method="GET")
    head, body = text.split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 3\r\n" in head
    assert head.endswith(b"Connection: close")
    assert body == b"ok\n"


def test_the_answer_to_head_has_no_body() -> None:
    text = answer(HTTPStatus.OK, b"ok\n", method="HEAD")
    assert b"Content-Length: 3\r\n" in text
    assert text.endswith(b"\r\n\r\n")


def test_a_refused_method_hears_which_are_allowed() -> None:
    text = answer(HTTPStatus.METHOD_NOT_ALLOWED, b"", method="POST")
    assert b"\r\nAllow: GET, HEAD\r\n" in text
