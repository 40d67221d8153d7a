"""What changes something: a record produced, dead letters put back, a job begun again; and the way
in and out.

Each is a form of our own pages (`sessions.py`), and ends at a page that shows what was done.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from millstream.base.declared import DeclaredTable, DeclaredTopic
from millstream.web.console.broker_pages import is_internal
from millstream.web.console.facts import NewRecord
from millstream.web.console.page_serving import Console, html
from millstream.web.console.record_text import bytes_from, headers_from
from millstream.web.console.rendering import href, render, with_query
from millstream.web.console.sessions import (
    COOKIE,
    COOKIE_PATH,
    SESSION_MS,
    require_own_page,
    require_writer,
    session_for,
)
from millstream.web.guard import is_same_token, let_others_in
from millstream.web.problems import Problem
from millstream.web.sent_rows import documents_in, rows_for
from millstream.web.serving import whole_body

FORM: Final = "application/x-www-form-urlencoded"
FIELDS_MAX: Final = 1_000
SIGN_IN: Final = "/console/sign-in"
# Who guesses tokens waits.
WRONG_TOKEN_SECONDS: Final = 1.0


async def form_of(request: Request, console: Console) -> dict[str, list[str]]:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != FORM:
        raise Problem("bad-request", f"Content-Type is {given!r}, and no form's")
    body = await whole_body(request, console.serving.limits)
    try:
        pairs = parse_qsl(
            body.decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=FIELDS_MAX
        )
    except ValueError:
        raise Problem("bad-request", f"no form of up to {FIELDS_MAX} fields, in UTF-8") from None
    form: dict[str, list[str]] = {}
    for name, value in pairs:
        form.setdefault(name, []).append(value)
    return form


def firsts(form: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: values[0] for name, values in form.items()}


async def _writers_form(request: Request, console: Console) -> dict[str, list[str]]:
    form = await form_of(request, console)
    require_writer(console.visitor(request), request.headers, firsts(form))
    return form


def _seen_at(place: str) -> Response:
    return RedirectResponse(place, status_code=303)


# --- records ------------------------------------------------------------------------------------


async def produce(request: Request, console: Console) -> Response:
    form = firsts(await _writers_form(request, console))
    topic = request.path_params["topic"]
    partition, offset = await console.serving.calls.ask_broker(
        lambda: _produced(console, topic, form)
    )
    place = with_query({}, produced_partition=partition, produced_offset=offset)
    return _seen_at(f"{href('topics', topic)}{place}")


def _produced(console: Console, topic: str, form: Mapping[str, str]) -> tuple[int, int]:
    if topic not in console.source.topics.partitions() or is_internal(topic):
        raise Problem("unknown-topic", f"no topic {topic!r} that can be written")
    declared = console.serving.application.topics().get(topic)
    if declared is not None and declared.schema is not None:
        return _published(console, declared, form)
    text = form.get("partition", "").strip()
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise Problem("does-not-fit", f"partition: {text!r} is no whole number from 0 on")
    return console.source.topics.produce(
        NewRecord(
            topic=topic,
            key=bytes_from(form.get("key", "")) or None,
            value=bytes_from(form.get("value", ""), is_null="is_null" in form),
            headers=headers_from(form.get("headers", "")),
            partition=int(text) if text else None,
        )
    )


def _published(
    console: Console, declared: DeclaredTopic | DeclaredTable, form: Mapping[str, str]
) -> tuple[int, int]:
    """A declared topic takes rows that fit its columns, as the HTTP API does."""
    application = console.serving.application
    documents, _ = documents_in(form.get("value", "").encode(), rows_max=1)
    records = application.records(declared.name, rows_for(declared, documents))
    [receipt] = application.publish(declared.name, records)
    return receipt.partition, receipt.offset


# --- dead letters -------------------------------------------------------------------------------


async def redrive(request: Request, console: Console) -> Response:
    form = await _writers_form(request, console)
    queue, ids = request.path_params["queue"], form.get("id", [])
    if not ids and "all" not in form:
        raise Problem("does-not-fit", "choose the letters that are to be put back")
    wanted = None if "all" in form else ids
    number = await console.serving.calls.ask_broker(
        lambda: console.source.queues.redrive(queue, wanted)
    )
    return _seen_at(f"{href('queues', queue)}{with_query({}, redriven=number)}")


# --- jobs ---------------------------------------------------------------------------------------


async def restart(request: Request, console: Console) -> Response:
    await _writers_form(request, console)
    job = request.path_params["job"]
    await console.serving.calls.ask_broker(lambda: console.source.declared.restart(job))
    return _seen_at(f"{href('jobs', job)}{with_query({}, restarted=1)}")


# --- in and out ---------------------------------------------------------------------------------


async def sign_in_page(request: Request, console: Console) -> Response:
    if console.token is None:
        return _seen_at("/console/")
    return _sign_in(request, console, problem="")


def _sign_in(request: Request, console: Console, *, problem: str) -> Response:
    context = {
        **console.common(console.visitor(request), section="sign-in"),
        "app": "Console",  # whose it is, is for those who are in
        "problem": problem,
        "next": request.query_params.get("next", ""),
        "live": False,
    }
    return html(render("sign_in.html", context), status=401 if problem else 200)


async def sign_in(request: Request, console: Console) -> Response:
    form = firsts(await form_of(request, console))
    require_own_page(request.headers)
    given = form.get("token", "").strip()
    if console.token is None or not is_same_token(given, console.token):
        let_others_in(request.scope)
        await anyio.sleep(WRONG_TOKEN_SECONDS)
        return _sign_in(request, console, problem="This is not the server's token.")
    answer = _seen_at(own_place(form.get("next", "")))
    answer.set_cookie(
        COOKIE,
        session_for(console.token, now_ms=console.now_ms()),
        max_age=SESSION_MS // 1000,
        path=COOKIE_PATH,
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


def own_place(wanted: str) -> str:
    """A page of the console: an address elsewhere would lend our name to another site."""
    is_own = wanted.startswith("/console/") and not set(wanted) & set("\\\r\n\t")
    return wanted if is_own else "/console/"


async def sign_out(request: Request, console: Console) -> Response:
    await _writers_form(request, console)
    answer = _seen_at(SIGN_IN)
    answer.delete_cookie(COOKIE, path=COOKIE_PATH)
    return answer
