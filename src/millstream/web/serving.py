"""What every handler has: the application, the limits, the threads; and how requests are read."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from starlette.requests import Request
from starlette.responses import Response

from millstream.web.bodies import body_within
from millstream.web.calls import Calls
from millstream.web.limits import Limits
from millstream.web.ports import Application, Declared, ServedView
from millstream.web.problems import Problem, unknown
from millstream.web.reporting import Reports
from millstream.web.row_json import to_json

JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Of one server; `closing` is set when it stops, so that feeds end."""

    application: Application
    limits: Limits
    calls: Calls
    reports: Reports
    has_console: bool = False
    closing: anyio.Event = field(default_factory=anyio.Event)

    def reported(self, error: BaseException, doing: str) -> Problem:
        return self.reports.report(error, doing)

    def topic(self, name: str) -> Declared:
        known = self.application.topics()
        if name not in known:
            raise unknown("topic", name, known)
        return known[name]

    def view(self, name: str) -> ServedView:
        """Only a name that is declared reaches a store: it may become a file's."""
        known = self.application.views()
        if name not in known:
            raise unknown("view", name, known)
        return self.application.view(name)

    def require_table(self, name: str) -> None:
        known = self.application.tables()
        if name not in known:
            raise unknown("table", name, known)


Handler: TypeAlias = Callable[[Request, Serving], Awaitable[Response]]


def answer(found: Any, *, status: int = 200) -> Response:
    return Response(to_json(found), status_code=status, media_type=JSON)


async def json_body(request: Request, limits: Limits) -> bytes:
    _require_json(request)
    return await whole_body(request, limits)


async def whole_body(request: Request, limits: Limits) -> bytes:
    """All of the body, within its bounds of size and time."""
    return await body_within(request, bytes_max=limits.body_bytes_max, ms_max=limits.body_ms_max)


def _require_json(request: Request) -> None:
    """A page of another site can send other types without asking first."""
    given = request.headers.get("content-type", "")
    if given.partition(";")[0].strip().lower() != JSON:
        raise Problem("not-json", f"Content-Type is {given!r}")
