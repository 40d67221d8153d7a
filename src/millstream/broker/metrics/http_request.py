"""The little of HTTP that a scrape needs: the head of a request in, an answer's bytes out. Pure.

One request for each connection, without a body; GET and HEAD. Everything else is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

# Prometheus sends some 300 bytes.
HEAD_BYTES_MAX = 8 << 10
END_OF_HEAD = b"\r\n\r\n"
METHODS = ("GET", "HEAD")
TEXT = "text/plain; charset=utf-8"


class RefusedRequest(Exception):
    """With the status that says why."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    path: str
    # Their names in lower case; the last one counts.
    headers: Mapping[str, str]


def read_request(head: bytes) -> HttpRequest:
    """The request line and the headers, up to the empty line."""
    lines = head.removesuffix(END_OF_HEAD).decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[1].startswith("/"):
        raise RefusedRequest(HTTPStatus.BAD_REQUEST)
    method, target, version = words
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise RefusedRequest(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    if method not in METHODS:
        raise RefusedRequest(HTTPStatus.METHOD_NOT_ALLOWED)
    headers = dict(map(_read_header, lines[1:]))
    return HttpRequest(method=method, path=target.partition("?")[0], headers=headers)


def _read_header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name != name.strip():
        raise RefusedRequest(HTTPStatus.BAD_REQUEST)
    return name.lower(), value.strip()


def answer(status: HTTPStatus, body: bytes, *, content_type: str = TEXT, method: str) -> bytes:
    """The whole answer; to HEAD without the body, but with its size."""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        f"Content-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"{'Allow: GET, HEAD' + chr(13) + chr(10) if status == 405 else ''}"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (b"" if method == "HEAD" else body)
