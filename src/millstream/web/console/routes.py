"""Every address of the console, in one table, and what becomes of errors: pages that say them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from millstream.web.change_feeds import EVENT_STREAM
from millstream.web.console import actions, app_pages, broker_pages, overview
from millstream.web.console.page_serving import Console, Page, problem_page, show
from millstream.web.console.rendering import STATIC, static_file
from millstream.web.console.tails import tail_changes, tail_records
from millstream.web.guard import problem_response
from millstream.web.problems import Problem

Handler = Callable[[Request, Console], Awaitable[Response]]
STATIC_HEADERS: Final = {
    "Cache-Control": "public, max-age=31536000, immutable",  # their address changes with them
    "Cross-Origin-Resource-Policy": "same-origin",
}


def _page(path: str, template: str, section: str, load: Callable[..., dict[str, object]]) -> Page:
    return Page(path=f"/console/{path}", template=f"{template}.html", section=section, load=load)


PAGES: Final = (
    _page("", "overview", "overview", overview.load),
    _page("topics", "topics", "topics", broker_pages.topics),
    _page("topics/{topic}", "topic", "topics", broker_pages.topic),
    _page("topics/{topic}/{partition}/{offset}", "record", "topics", broker_pages.record),
    _page("groups", "groups", "groups", broker_pages.groups),
    _page("groups/{group:path}", "group", "groups", broker_pages.group),
    _page("captures", "captures", "captures", app_pages.captures),
    _page("captures/{capture}", "capture", "captures", app_pages.capture),
    _page("jobs", "jobs", "jobs", app_pages.jobs),
    _page("jobs/{job}", "job", "jobs", app_pages.job),
    _page("views", "views", "views", app_pages.views),
    _page("views/{view}", "view", "views", app_pages.view),
    _page("views/{view}/row", "row", "views", app_pages.row),
    _page("queues", "queues", "queues", broker_pages.queues),
    _page("queues/{queue}", "queue", "queues", broker_pages.queue),
    _page("aggregates", "aggregates", "aggregates", app_pages.aggregates),
    _page("aggregates/{aggregate}", "aggregate", "aggregates", app_pages.aggregate),
    _page("aggregates/{aggregate}/{stream:path}", "stream", "aggregates", app_pages.stream),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    method: str
    path: str
    handler: Handler


ACTS: Final = (
    Act(method="GET", path="/console/topics/{topic}/tail", handler=tail_records),
    Act(method="GET", path="/console/views/{view}/tail", handler=tail_changes),
    Act(method="POST", path="/console/topics/{topic}/records", handler=actions.produce),
    Act(method="POST", path="/console/queues/{queue}/redrive", handler=actions.redrive),
    Act(method="POST", path="/console/jobs/{job}/restart", handler=actions.restart),
    Act(method="GET", path=actions.SIGN_IN, handler=actions.sign_in_page),
    Act(method="POST", path=actions.SIGN_IN, handler=actions.sign_in),
    Act(method="POST", path="/console/sign-out", handler=actions.sign_out),
)
# A browser must see them before it has a session.
OPEN_PATHS: Final = frozenset({actions.SIGN_IN, *(f"/console/static/{name}" for name in STATIC)})


def console_routes(console: Console) -> list[Route]:
    acts = [_route(one.path, one.handler, console, one.method) for one in ACTS]
    pages = [_route(one.path, _shown(one), console) for one in PAGES]
    static = _route("/console/static/{name}", _static, console)
    front = Route("/console", _to_front, methods=["GET"])
    other = _route("/console/{other:path}", _not_there, console)
    return [front, static, *acts, *pages, other]


def _shown(page: Page) -> Handler:
    async def handler(request: Request, console: Console) -> Response:
        return await show(request, page, console)

    return handler


def _route(path: str, handler: Handler, console: Console, method: str = "GET") -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return await handler(request, console)
        except Exception as error:
            problem = console.serving.reported(error, f"{method} {path}")
            if EVENT_STREAM in request.headers.get("accept", ""):
                return problem_response(problem)
            return problem_page(request, problem, console)

    return Route(path, endpoint, methods=[method])


async def _not_there(request: Request, _console: Console) -> Response:
    raise Problem("not-found", f"there is no page {request.url.path}")


async def _to_front(request: Request) -> Response:
    return RedirectResponse("/console/", status_code=303)


async def _static(request: Request, console: Console) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise Problem("not-found", f"there is no {name!r} here")
    return Response(static_file(name), media_type=STATIC[name], headers=STATIC_HEADERS)
