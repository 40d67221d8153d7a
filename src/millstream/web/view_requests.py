"""Views: which there are, what they are, and their rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from millstream.queues.outbox import Receipt
from millstream.views.conditions import rank
from millstream.views.store import Row
from millstream.web.ports import ServedView
from millstream.web.problems import Problem
from millstream.web.questions import (
    Asked,
    KeyColumns,
    conditions_of,
    cursor_of,
    from_cursor,
    key_columns,
    receipts_of,
)
from millstream.web.serving import Serving, answer
from millstream.web.view_facts import facts_of

LIMIT_DEFAULT = 100
WAIT_SECONDS_DEFAULT = 10.0
# Of /v1/views/{view}/rows/{key}, cut at its slashes.
KEY_PLACE = 5
FRESHNESS = ("after", "timeout")
SELECTION = ("where", "order_by", "limit")
ROWS_PARAMETERS = ("key", "where", "order_by", "first", "last", "limit", "cursor", *FRESHNESS)


async def list_views(request: Request, serving: Serving) -> Response:
    Asked(request.query_params.multi_items(), known=())
    return answer({"views": sorted(serving.application.views())})


async def describe_view(request: Request, serving: Serving) -> Response:
    Asked(request.query_params.multi_items(), known=())
    name = request.path_params["view"]

    def work() -> dict[str, Any]:
        view = serving.view(name)
        generations = serving.application.generations(name)
        return facts_of(name, view.schema, view.key, view.position(), generations)

    return answer(await serving.calls.run(work))


# --- one row ----------------------------------------------------------------------------------


async def get_row(request: Request, serving: Serving) -> Response:
    asked = Asked(request.query_params.multi_items(), known=FRESHNESS, repeated=("after",))
    fresh = freshness(asked, serving)
    segments = key_segments(request)
    name = request.path_params["view"]

    def work() -> Row | None:
        view = serving.view(name)
        key = key_columns(name, view.schema, view.key).from_segments(segments)
        return view.get_many([key], after=fresh.receipts, timeout=fresh.timeout_s)[0]

    row = await fresh.run(serving, work)
    if row is None:
        raise Problem("no-row", f"view {name} has no row of key {'/'.join(segments)}")
    return answer(row)


def key_segments(request: Request) -> list[str]:
    """Of the path as it was sent: a slash within a part is %2F there."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    parts = raw.partition(b"?")[0].split(b"/")[KEY_PLACE:]
    try:
        return [unquote_to_bytes(part).decode() for part in parts]
    except UnicodeDecodeError:
        raise Problem("bad-request", "the key in the path is not UTF-8") from None


# --- several ----------------------------------------------------------------------------------


async def list_rows(request: Request, serving: Serving) -> Response:
    asked = Asked(
        request.query_params.multi_items(), known=ROWS_PARAMETERS, repeated=("key", "after")
    )
    fresh = freshness(asked, serving)
    limit = asked.whole("limit", default=LIMIT_DEFAULT, at_most=serving.limits.limit_max)
    name = request.path_params["view"]

    def work() -> dict[str, Any]:
        view = serving.view(name)
        columns = key_columns(name, view.schema, view.key)
        question = Question(view=view, columns=columns, asked=asked, limit=limit, fresh=fresh)
        return question.answer()

    return answer(await fresh.run(serving, work))


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """What the view must have passed before it answers, and how long that may take."""

    receipts: list[Receipt]
    timeout_s: float

    async def run(self, serving: Serving, work: Callable[[], Any]) -> Any:
        return await (serving.calls.wait(work) if self.receipts else serving.calls.run(work))


def freshness(asked: Asked, serving: Serving) -> Freshness:
    at_most = serving.limits.timeout_ms_max / 1000
    return Freshness(
        receipts=receipts_of(asked.all("after")),
        timeout_s=asked.seconds("timeout", default=WAIT_SECONDS_DEFAULT, at_most=at_most),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Rows by keys, by conditions, or page by page in the order of keys: one of the three."""

    view: ServedView
    columns: KeyColumns
    asked: Asked
    limit: int
    fresh: Freshness

    def answer(self) -> dict[str, Any]:
        if self.asked.all("key"):
            self._require_only("key")
            return {"rows": self._by_key(), "next": None, "more": False}
        if self.asked.all("where") or self.asked.all("order_by"):
            self._require_only(*SELECTION)
            return self._selected()
        return self._page()

    def _require_only(self, *names: str) -> None:
        for name in ROWS_PARAMETERS:
            if self.asked.all(name) and name not in (*names, *FRESHNESS):
                detail = f"parameter {name} does not go together with {names[0]}"
                raise Problem("does-not-fit", detail)

    def _by_key(self) -> list[Row | None]:
        keys = [self.columns.from_document(one) for one in self.asked.documents("key")]
        return self.view.get_many(keys, after=self.fresh.receipts, timeout=self.fresh.timeout_s)

    def _selected(self) -> dict[str, Any]:
        rows = self.view.scan(
            where=conditions_of(self.view.schema, self.asked.document("where")),
            order_by=self.asked.names("order_by"),
            limit=self.limit + 1,
            after=self.fresh.receipts,
            timeout=self.fresh.timeout_s,
        )
        return {"rows": rows[: self.limit], "next": None, "more": len(rows) > self.limit}

    def _page(self) -> dict[str, Any]:
        """From a cursor on, without its own row: that one ended the page before."""
        cursor = self.asked.text("cursor")
        begun = None if cursor is None else from_cursor(self.columns, cursor)
        rows = self.view.range(
            self._bound("first") if begun is None else begun,
            self._bound("last"),
            limit=self.limit + 2,
            after=self.fresh.receipts,
            timeout=self.fresh.timeout_s,
        )
        if rows and begun is not None and rank(self.columns.of_row(rows[0])) == rank(begun):
            rows = rows[1:]
        page, more = rows[: self.limit], len(rows) > self.limit
        goes_on = more and self.columns.have_order
        following = cursor_of(self.columns.of_row(page[-1])) if goes_on else None
        return {"rows": page, "next": following, "more": more}

    def _bound(self, name: str) -> tuple[Any, ...] | None:
        if self.asked.text(name) is None:
            return None
        return self.columns.from_document(self.asked.document(name), partly=True)
