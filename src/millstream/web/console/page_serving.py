"""Serves a page; and, to who accepts events, the same page again and again: its parts that changed.

    event: parts
    data: {"live_totals": "<div>…"}

An update that fails says so, and the next one is tried.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError
from millstream.web.change_feeds import EVENT_STREAM, Feed, event_stream
from millstream.web.console.ports import Source
from millstream.web.console.rendering import live_parts, render
from millstream.web.console.sessions import Visitor, visitor_of
from millstream.web.console.visits import Visit
from millstream.web.console.watch import Watch
from millstream.web.problems import Problem
from millstream.web.serving import Serving

UPDATE_SECONDS: Final = 1.0
# Also where pages have nothing of another host: what slips through a template cannot run.
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
PAGE_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    # Without a referrer, forms would come from "null": the guard must see that they are ours.
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """`load` blocks, in a thread; `section` is where the navigation is then."""

    path: str
    template: str
    section: str
    load: Callable[[Visit], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """What every page has. `token` is the server's."""

    serving: Serving
    source: Source
    watch: Watch
    token: str | None
    now_ms: Clock

    def visitor(self, request: Request) -> Visitor:
        return visitor_of(request.headers, self.token, now_ms=self.now_ms())

    def visit(self, request: Request, *, is_update: bool = False) -> Visit:
        self.watch.look()
        return Visit(
            serving=self.serving,
            source=self.source,
            watch=self.watch,
            visitor=self.visitor(request),
            path=request.path_params,
            query=dict(request.query_params),
            now_ms=self.now_ms(),
            is_update=is_update,
        )

    def common(self, visitor: Visitor, *, section: str) -> dict[str, Any]:
        return {
            "app": self.serving.application.name,
            "visitor": visitor,
            "section": section,
            "has_aggregates": bool(self.source.aggregates.kinds()),
        }

    async def load(self, page: Page, visit: Visit) -> dict[str, Any]:
        def load() -> dict[str, Any]:
            visit.watch.await_figures()
            return page.load(visit)

        found = await self.serving.calls.ask_broker(load)
        return {
            **self.common(visit.visitor, section=page.section),
            "query": visit.query,
            "now_ms": visit.now_ms,
            "trouble": visit.watch.trouble,
            **found,
        }


async def show(request: Request, page: Page, console: Console) -> Response:
    if EVENT_STREAM in request.headers.get("accept", ""):
        return await _updates(request, page, console)
    context = await console.load(page, console.visit(request))
    return html(render(page.template, context))


def html(text: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return HTMLResponse(text, status_code=status, headers={**PAGE_HEADERS, **(headers or {})})


def problem_page(request: Request, problem: Problem, console: Console) -> Response:
    visitor = console.visitor(request)
    context = {**console.common(visitor, section=""), "problem": problem, "live": False}
    return html(
        render("problem.html", context), status=problem.kind.status, headers=problem.all_headers
    )


# --- updates ------------------------------------------------------------------------------------


async def _updates(request: Request, page: Page, console: Console) -> Response:
    with contextlib.ExitStack() as slot:
        slot.enter_context(console.serving.calls.feed())
        feed = Feed(PageUpdates(request, page, console), closing=console.serving.closing)
        return await event_stream(feed, console.serving, slot.pop_all(), bytes)


class PageUpdates:
    """Events without an end. One that changes nothing is not sent."""

    def __init__(self, request: Request, page: Page, console: Console) -> None:
        self._request, self._page, self._console = request, page, console
        self._shown: dict[str, str] = {}

    def __aiter__(self) -> "PageUpdates":
        return self

    async def __anext__(self) -> bytes:
        while True:
            await asyncio.sleep(UPDATE_SECONDS)
            event = await self._event()
            if event is not None:
                return event

    async def _event(self) -> bytes | None:
        visit = self._console.visit(self._request, is_update=True)
        try:
            context = await self._console.load(self._page, visit)
        except MillstreamError as error:
            trouble = self._console.serving.reported(error, f"an update of {self._page.path}")
            return sent("trouble", {"text": str(trouble)})
        parts = live_parts(self._page.template, context)
        changed = {name: text for name, text in parts.items() if self._shown.get(name) != text}
        self._shown |= changed
        return sent("parts", changed) if changed else None

    async def aclose(self) -> None:
        """Nothing is held between two events."""


def sent(event: str, data: Mapping[str, Any]) -> bytes:
    """One server-sent event; JSON has no line breaks outside of its texts."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), json.dumps(data).encode())
