"""Who may ask at all: checked before a request reaches any handler.

  Host     on loopback, only by the server's own names: a page of another site whose name was made
           to lead here (DNS rebinding) calls us by that name
  Origin   a page may ask only if it is ours; there is no CORS
  token    `Authorization: Bearer ...`, if the server has one; in the console also a session
  load     the length of the URL, and requests at one time: those that need no token apart

Knows no path but those that need no token, and where the console begins.
"""

import contextlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.base.client_address import address_key
from millstream.base.clock import Clock, system_clock
from millstream.web.bodies import CLOSE, body_within
from millstream.web.connections import PLACE
from millstream.web.console.sessions import COOKIE_PATH, is_session, session_in
from millstream.web.limits import (
    OPEN_BODY_BYTES_MAX,
    OPEN_REQUESTS_MAX,
    OPEN_REQUESTS_OF_ADDRESS_MAX,
    URL_BYTES_MAX,
    Limits,
)
from millstream.web.problems import PROBLEM_JSON, Problem

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
BEARER: Final = "bearer"
LIVE_PATH: Final = "/health/live"
# Where the slot of a request for an open path is, in the `state` of its scope.
SLOT: Final = "millstream_slot"
SIGN_IN_PATH: Final = f"{COOKIE_PATH}/sign-in"
EVERY_ANSWER: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
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
    now_ms: Clock = system_clock


def loopback_hosts(also: Iterable[str] = ()) -> frozenset[str]:
    return LOOPBACK_NAMES | {name.lower() for name in also}


class Slots:
    """Requests that are answered at one time, and how many of them for one address."""

    def __init__(self, total_max: int, of_address_max: int) -> None:
        self._total_max, self._of_address_max = total_max, of_address_max
        self._number, self._number_of = 0, dict[str, int]()

    @contextlib.contextmanager
    def slot(self, address: str) -> Iterator[None]:
        of_address = self._number_of.get(address, 0)
        if self._number >= self._total_max or of_address >= self._of_address_max:
            raise Problem("too-many", f"{self._number} requests are being answered already")
        self._number += 1
        self._number_of[address] = of_address + 1
        try:
            yield
        finally:
            self._number -= 1
            self._number_of[address] -= 1
            if not self._number_of[address]:
                del self._number_of[address]


class Guard:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp, admission: Admission, limits: Limits) -> None:
        self._app, self._admission, self._limits = app, admission, limits
        self._with_token = Slots(admission.requests_max, admission.requests_max)
        self._open = Slots(OPEN_REQUESTS_MAX, OPEN_REQUESTS_OF_ADDRESS_MAX)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        send = _with_headers(send)
        with contextlib.ExitStack() as admitted:
            try:
                self._require_allowed(scope, Headers(scope=scope))
                receive = await self._take_slot(scope, receive, admitted)
            except Problem as problem:
                await _refusal(problem, scope)(scope, receive, send)
                return
            _start_answering(scope)
            await self._app(scope, receive, send)

    async def _take_slot(
        self, scope: Scope, receive: Receive, admitted: contextlib.ExitStack
    ) -> Receive:
        """Open paths have slots of their own, and take one when their body is there: whoever sends
        it slowly holds nothing. Whether the server lives is answered in any case."""
        path = scope["path"]
        if path == LIVE_PATH:
            return receive
        if path not in self._admission.open_paths:
            admitted.enter_context(self._with_token.slot(""))
            return receive
        body = await body_within(
            Request(scope, receive),
            bytes_max=OPEN_BODY_BYTES_MAX,
            ms_max=self._limits.head_ms_max,
        )
        admitted.enter_context(self._open.slot(_address_of(scope)))
        scope.setdefault("state", {})[SLOT] = admitted
        return _body_first(body, receive)

    def _require_allowed(self, scope: Scope, headers: Headers) -> None:
        require_one_length(headers)
        require_short_url(scope)
        require_known_host(headers, self._admission.hosts)
        require_own_origin(headers)
        if scope["path"] not in self._admission.open_paths and not self._has_session(
            scope["path"], headers
        ):
            require_token(headers, self._admission.token)

    def _has_session(self, path: str, headers: Headers) -> bool:
        """A cookie opens the console, and nothing else: pages of other sites cannot use it."""
        token = self._admission.token
        if token is None or not is_console(path):
            return False
        return is_session(session_in(headers), token, now_ms=self._admission.now_ms())


def _start_answering(scope: Scope) -> None:
    """From here on its connection stays, whoever else wants to come in (`connections.py`)."""
    place = scope.get("state", {}).get(PLACE)
    if place is not None:
        place.start()


def let_others_in(scope: Scope) -> None:
    """Before an answer is held back: others may have its slot then, and its connection may go."""
    state = scope.get("state", {})
    if (admitted := state.get(SLOT)) is not None:
        admitted.close()
    if (place := state.get(PLACE)) is not None:
        place.rest()


def _address_of(scope: Scope) -> str:
    client = scope.get("client")
    return "" if client is None else address_key(client[0])


def _body_first(body: bytes, receive: Receive) -> Receive:
    """What has been read already, then what comes."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_next() -> Message:
        return messages.pop() if messages else await receive()

    return receive_next


def is_console(path: str) -> bool:
    return path == COOKIE_PATH or path.startswith(f"{COOKIE_PATH}/")


def _refusal(problem: Problem, scope: Scope) -> Response:
    """Who comes to a page of the console without a session is shown where to get one."""
    wants_page = "text/html" in Headers(scope=scope).get("accept", "")
    is_ours = is_console(scope["path"]) or scope["path"] == "/"
    is_page = scope["method"] == "GET" and is_ours and wants_page
    if problem.word != "no-token" or not is_page:
        return problem_response(problem)
    query = scope["query_string"].decode("latin-1")
    place = scope["path"] + (f"?{query}" if query else "")
    return RedirectResponse(f"{SIGN_IN_PATH}?next={quote(place, safe='')}", status_code=303)


def problem_response(problem: Problem) -> Response:
    return Response(
        problem.to_json(),
        status_code=problem.kind.status,
        headers=problem.all_headers,
        media_type=PROBLEM_JSON,
    )


def require_one_length(headers: Headers) -> None:
    """Where a proxy in front goes by the other one, the rest of the body would be a request."""
    if "transfer-encoding" in headers and "content-length" in headers:
        problem = "it has Content-Length and Transfer-Encoding: only one of them can be right"
        raise Problem("bad-request", problem, CLOSE)


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
    if scheme.lower() != BEARER or not is_same_token(given.strip(), token):
        problem = "is not this server's" if given else "is missing"
        raise Problem("no-token", f"the token {problem}", {"WWW-Authenticate": "Bearer"})


def is_same_token(given: str, token: str) -> bool:
    """In a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode(), token.encode())


def _with_headers(send: Send) -> Send:
    async def send_with(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in EVERY_ANSWER.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with
