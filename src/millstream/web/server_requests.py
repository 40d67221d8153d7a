"""The server itself: whether it is well, what it can do, and a page for people."""

from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from millstream.base.errors import MillstreamError
from millstream.web.questions import Asked
from millstream.web.serving import Serving, answer
from millstream.web.view_facts import ViewColumns

STYLE = "body{font:16px/1.5 sans-serif;max-width:40em;margin:2em auto;padding:0 1em}"


async def live(request: Request, serving: Serving) -> Response:
    Asked(request.query_params.multi_items(), known=())
    return answer({"status": "live"})


async def health(request: Request, serving: Serving) -> Response:
    Asked(request.query_params.multi_items(), known=())
    found = await serving.calls.run(lambda: _health(serving))
    return answer(found, status=200 if found["status"] == "ready" else 503)


def _health(serving: Serving) -> dict[str, Any]:
    broker = _told(serving, serving.application.require_broker)
    views = {
        name: _told(serving, lambda name=name: serving.view(name).position())
        for name in _views(serving)
    }
    is_ready = all(one == "ready" for one in (broker, *views.values()))
    return {"status": "ready" if is_ready else "not ready", "broker": broker, "views": views}


def _views(serving: Serving) -> list[str]:
    return sorted(serving.application.views())


def _told(serving: Serving, ask: Any) -> str:
    try:
        ask()
    except MillstreamError as error:
        problem = serving.reported(error, "GET /health")
        more = f" (the server's log has more: {problem.id})" if problem.id else ""
        return f"{problem}{more}"
    return "ready"


async def openapi_document(request: Request, serving: Serving) -> Response:
    Asked(request.query_params.multi_items(), known=())
    from millstream.web.openapi import document  # which has this handler in its table

    application = serving.application
    views = await serving.calls.run(lambda: _columns_of_views(serving))
    tables = sorted(application.tables())
    found = document(application.name, application.topics(), views, tables, limits=serving.limits)
    return answer(found)


def _columns_of_views(serving: Serving) -> dict[str, ViewColumns | None]:
    """None for one that is not there yet."""
    return {name: _columns(serving, name) for name in _views(serving)}


def _columns(serving: Serving, name: str) -> ViewColumns | None:
    try:
        view = serving.view(name)
        return ViewColumns(view.schema, view.key)
    except MillstreamError:
        return None


async def page(request: Request, serving: Serving) -> Response:
    """Where there is a console, that is the page for people."""
    Asked(request.query_params.multi_items(), known=())
    if serving.has_console:
        return RedirectResponse("/console/", status_code=303)
    application = serving.application
    name = escape(application.name)
    topics = "".join(f"<li>{escape(topic)}</li>" for topic in sorted(application.topics()))
    views = "".join(_links(escape(view, quote=True)) for view in _views(serving))
    tables = "".join(_table_link(escape(one, quote=True)) for one in sorted(application.tables()))
    return HTMLResponse(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{name}</title>"
        f"<style>{STYLE}</style><h1>{name}</h1>"
        f"<h2>Views</h2><ul>{views or '<li>none</li>'}</ul>"
        f'<h2><a href="/v1/topics">Topics</a></h2><ul>{topics or "<li>none</li>"}</ul>'
        f'<h2><a href="/v1/tables">Captured tables</a></h2><ul>{tables or "<li>none</li>"}</ul>'
        '<p><a href="/health">Health</a>, <a href="/openapi.json">OpenAPI document</a></p></html>'
    )


def _links(view: str) -> str:
    path = f"/v1/views/{view}"
    return (
        f'<li><a href="{path}">{view}</a>: <a href="{path}/rows">rows</a>, '
        f'<a href="{path}/changes">changes</a></li>'
    )


def _table_link(table: str) -> str:
    return f'<li>{table}: <a href="/v1/tables/{table}/changes?timeout=0">changes</a></li>'
