"""Who may ask at all: checked before a request reaches any handler.

  Host     on loopback, only by the server's own names: a page of another site whose name was made
           to lead here (DNS rebinding) calls us by that name
  Origin   a page may ask only if it is ours; there is no CORS
  token    `Authorization: Bearer ...`, if the server has one
  load     the length of the URL, and requests at one time

Knows no path but those that need no token.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.web.limits import URL_BYTES_MAX
from millstream.web.problems import PROBLEM_JSON, Problem

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
BEARER: Final = "bearer"
EVERY_ANSWER: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """`hosts`: the names that the server answers to; any, if None. `token`: none is asked for, if
    None."""

    token: str | None = field(default=None, repr=False)
    hosts: frozenset[str] | None = None
    requests_max: int = 512
    open_paths: frozenset[str] = frozenset()


def loopback_hosts(also: Iterable[str] = ()) -> frozenset[str]:
    return LOOPBACK_NAMES | {name.lower() for name in also}


class Guard:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app, self._admission = app, admission
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            self._admit(scope, Headers(scope=scope))
        except Problem as problem:
            await problem_response(problem)(scope, receive, _with_headers(send))
            return
        self._in_flight += 1
        try:
            await self._app(scope, receive, _with_headers(send))
        finally:
            self._in_flight -= 1

    def _admit(self, scope: Scope, headers: Headers) -> None:
        require_short_url(scope)
        require_known_host(headers, self._admission.hosts)
        require_own_origin(headers)
        if scope["path"] not in self._admission.open_paths:
            require_token(headers, self._admission.token)
        if self._in_flight >= self._admission.requests_max:
            raise Problem("too-many", f"{self._in_flight} requests are being answered already")


def problem_response(problem: Problem) -> Response:
    return Response(
        problem.to_json(),
        status_code=problem.kind.status,
        headers=problem.all_headers,
        media_type=PROBLEM_JSON,
    )


def require_short_url(scope: Scope) -> None:
    raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
    length = len(raw_path) + len(scope["query_string"])
    if length > URL_BYTES_MAX:
        raise Problem("url-too-long", f"{length} bytes of URL, {URL_BYTES_MAX} at most")


def require_known_host(headers: Headers, hosts: frozenset[str] | None) -> None:
    if hosts is not None and host_name(headers.get("host", "")) not in hosts:
        known = ", ".join(sorted(hosts))
        raise Problem("foreign-page", f"Host is {headers.get('host')!r}; this server is {known}")


def host_name(host: str) -> str:
    """Without the port; an address of IPv6 keeps its brackets."""
    name, colon, port = host.rpartition(":")
    is_split = bool(colon) and port.isdigit() and (":" not in name or name.endswith("]"))
    return (name if is_split else host).lower().rstrip(".")


def require_own_origin(headers: Headers) -> None:
    """Browsers say which site a request comes from; other clients do not."""
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        raise Problem("foreign-page", f"Origin is {origin!r}, which is not this server")


def require_token(headers: Headers, token: str | None) -> None:
    if token is None:
        return
    scheme, _, given = headers.get("authorization", "").partition(" ")
    is_right = hmac.compare_digest(given.strip().encode(), token.encode())
    if scheme.lower() != BEARER or not is_right:
        problem = "is not this server's" if given else "is missing"
        raise Problem("no-token", f"the token {problem}", {"WWW-Authenticate": "Bearer"})


def _with_headers(send: Send) -> Send:
    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in EVERY_ANSWER.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with
