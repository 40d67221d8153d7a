"""Joins the table of operations to one ASGI application behind its guard.

Whatever a handler raises becomes a problem here; what nobody foresaw is logged with its traceback
(`reporting.py`), and the client gets the id of that line.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from millstream.base.tracing import TRACEPARENT, span
from millstream.web.calls import Calls
from millstream.web.console.page_serving import Console
from millstream.web.console.ports import Source
from millstream.web.console.routes import OPEN_PATHS, console_routes
from millstream.web.console.watch import Watch
from millstream.web.guard import Admission, Guard, problem_response
from millstream.web.limits import Limits
from millstream.web.operations import OPERATIONS, Operation
from millstream.web.ports import Application
from millstream.web.problems import Problem
from millstream.web.reporting import Reports
from millstream.web.serving import Serving

WORDS_OF_STATUS = {404: "not-found", 405: "method-not-allowed"}


@dataclass(frozen=True, slots=True)
class Service:
    """`watch` looks at figures for the console, in a thread: stop it at the end."""

    asgi: ASGIApp
    serving: Serving
    watch: Watch | None = None


def make_service(
    application: Application,
    *,
    limits: Limits | None = None,
    admission: Admission | None = None,
    console: Source | None = None,
    folders: tuple[str, ...] = (),
) -> Service:
    """`console`: what its pages show; without it there is none. `folders`: the application's, as
    its errors may name them."""
    found, admitted = limits or Limits(), admission or Admission()
    serving = Serving(
        application=application,
        limits=found,
        calls=Calls(found),
        has_console=console is not None,
        reports=Reports(folders, seconds=time.monotonic),
    )
    routes = [_route(operation, serving) for operation in OPERATIONS]
    watch = None
    if console is not None:
        watch = Watch(console, application, admitted.now_ms)
        routes += console_routes(
            Console(
                serving=serving,
                source=console,
                watch=watch,
                token=admitted.token,
                now_ms=admitted.now_ms,
            )
        )
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _not_routed})
    inner.router.redirect_slashes = False
    open_paths = {one.path for one in OPERATIONS if not one.needs_token}
    if console is not None:
        open_paths |= OPEN_PATHS
    guard = Guard(inner, replace(admitted, open_paths=frozenset(open_paths)), found)
    return Service(guard, serving, watch)


def _route(operation: Operation, serving: Serving) -> Route:
    path = operation.path.replace("{key}", "{key:path}")
    return Route(path, _endpoint(operation, serving), methods=[operation.method])


def _endpoint(operation: Operation, serving: Serving) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        doing = f"{operation.method} {operation.path}"
        with span(doing, parent=request.headers.get(TRACEPARENT, "")):
            try:
                return await operation.handler(request, serving)
            except Exception as error:
                return problem_response(serving.reported(error, doing))

    return endpoint


async def _not_routed(request: Request, error: Any) -> Response:
    word = WORDS_OF_STATUS.get(error.status_code, "bad-request")
    detail = f"{request.method} {request.url.path}: {error.detail.lower()}"
    return problem_response(Problem(word, detail, dict(error.headers or {})))
