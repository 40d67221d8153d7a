"""Everything that is served, in one table: path, handler, parameters, answers, problems.

The routes and the OpenAPI document are both made of it, so that they cannot disagree. `{topic}`,
`{view}` and `{table}` stand for the application's own: the document has a path for each of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from millstream.web.change_feeds import SLOW, changes
from millstream.web.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX
from millstream.web.server_requests import health, live, openapi_document, page
from millstream.web.serving import Handler
from millstream.web.table_changes import list_tables, table_changes
from millstream.web.topic_requests import list_topics, publish
from millstream.web.view_requests import describe_view, get_row, list_rows, list_views

Place = Literal["path", "query", "header"]
# What a schema of the document depends on: the columns of a topic's or a view's rows.
Shape = Literal[
    "row",
    "rows",
    "receipts",
    "topics",
    "views",
    "view",
    "changes",
    "tables",
    "table_changes",
    "health",
    "live",
    "document",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """`is_json`: its text is JSON of this schema. A bound that is a setting is named by `at_most`
    or, of seconds, by `at_most_ms`: names of `Limits`."""

    name: str
    help: str
    place: Place = "query"
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    is_json: bool = False
    repeats: bool = False
    at_most: str = ""
    at_most_ms: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`problems` are those beside what every path has: kinds of `problems.py`."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    summary: str
    shape: Shape | None = None
    status: int = 200
    parameters: tuple[Parameter, ...] = ()
    takes_rows: bool = False
    problems: tuple[str, ...] = ()
    media: tuple[str, ...] = ("application/json",)
    also: Mapping[int, str] = field(default_factory=dict)
    needs_token: bool = True


RECEIPT = r"[A-Za-z0-9._-]{1,249}:[0-9]{1,9}:[0-9]{1,18}"
AFTER: Final = Parameter(
    name="after",
    help="Wait until the view has passed these records: what publishing them answered as `after`.",
    schema={"type": "string", "pattern": f"^{RECEIPT}(,{RECEIPT})*$"},
)
TIMEOUT: Final = Parameter(
    name="timeout",
    help="Seconds to wait, at most.",
    schema={"type": "number", "minimum": 0},
    at_most_ms="timeout_ms_max",
)
LIMIT: Final = Parameter(
    name="limit",
    help="How many, at most.",
    schema={"type": "integer", "minimum": 1},
    at_most="limit_max",
)
WHERE: Final = Parameter(
    name="where",
    help='Conditions that all hold, as JSON: {"count >=": 5, "user in": ["ada", "bob"]}. '
    "The operators: = (or none), !=, <, <=, >, >=, in, starts with.",
    schema={"type": "object"},
    is_json=True,
)
LAST_EVENT_ID: Final = Parameter(
    name="Last-Event-ID",
    place="header",
    help="The same, as browsers send it; it goes before `since`.",
)
KEY: Final = Parameter(
    name="key",
    help="The row of this key, as JSON: a value, or an array of one for each column. Repeatable.",
    schema={},
    is_json=True,
    repeats=True,
)


def _bound(name: str, which: str) -> Parameter:
    return Parameter(
        name=name,
        help=f"The {which} key, included, as JSON: a value, or an array of its first parts.",
        schema={},
        is_json=True,
    )


OPERATIONS: Final = (
    Operation(
        name="page",
        method="GET",
        path="/",
        handler=page,
        summary="What there is, as a page.",
        media=("text/html",),
    ),
    Operation(
        name="openapi",
        method="GET",
        path="/openapi.json",
        handler=openapi_document,
        summary="This document.",
        shape="document",
    ),
    Operation(
        name="live",
        method="GET",
        path="/health/live",
        handler=live,
        summary="Whether the server runs. Needs no token.",
        shape="live",
        needs_token=False,
    ),
    Operation(
        name="health",
        method="GET",
        path="/health",
        handler=health,
        summary="Whether the broker answers and all views are there: 200 if so, else 503.",
        shape="health",
        also={503: "health"},
    ),
    Operation(
        name="listTopics",
        method="GET",
        path="/v1/topics",
        handler=list_topics,
        summary="The topics that can be written, and their columns.",
        shape="topics",
    ),
    Operation(
        name="publish",
        method="POST",
        path="/v1/topics/{topic}/records",
        handler=publish,
        summary="Publish a row, or several as `rows`: all of them, or none. On disk when answered.",
        shape="receipts",
        status=201,
        takes_rows=True,
        parameters=(
            Parameter(
                name="Idempotency-Key",
                place="header",
                help="A name for this request: sent again, it answers the same and publishes "
                "nothing twice.",
                schema={
                    "type": "string",
                    "pattern": rf"^[!-~]{{1,{IDEMPOTENCY_KEY_CHARACTERS_MAX}}}$",
                },
            ),
        ),
        problems=(
            "unknown-topic",
            "too-slow",
            "key-used-otherwise",
            "too-large",
            "not-json",
            "does-not-fit",
        ),
    ),
    Operation(
        name="listViews",
        method="GET",
        path="/v1/views",
        handler=list_views,
        summary="The views.",
        shape="views",
    ),
    Operation(
        name="describeView",
        method="GET",
        path="/v1/views/{view}",
        handler=describe_view,
        summary="A view: its columns, its key, where it is in its topics, its generations.",
        shape="view",
        problems=("unknown-view",),
    ),
    Operation(
        name="listRows",
        method="GET",
        path="/v1/views/{view}/rows",
        handler=list_rows,
        summary="Rows of keys (`key`); or those that meet conditions (`where`, `order_by`); or all "
        "by key, page by page (`first`, `last`, `cursor`).",
        shape="rows",
        parameters=(
            KEY,
            WHERE,
            Parameter(
                name="order_by", help="Columns, separated by commas; -count: greatest first."
            ),
            _bound("first", "least"),
            _bound("last", "greatest"),
            LIMIT,
            Parameter(name="cursor", help="`next` of the page before."),
            AFTER,
            TIMEOUT,
        ),
        problems=("unknown-view", "not-reached", "does-not-fit"),
    ),
    Operation(
        name="getRow",
        method="GET",
        path="/v1/views/{view}/rows/{key}",
        handler=get_row,
        summary="The row of a key.",
        shape="row",
        parameters=(
            Parameter(
                name="key",
                place="path",
                help="The key; of several columns their values with / between. A slash within a "
                "value is %2F.",
            ),
            AFTER,
            TIMEOUT,
        ),
        problems=("unknown-view", "no-row", "not-reached", "does-not-fit"),
    ),
    Operation(
        name="changes",
        method="GET",
        path="/v1/views/{view}/changes",
        handler=changes,
        summary="The current rows, then every change: as server-sent events (Accept: "
        "text/event-stream), or as one answer of JSON that waits for something to tell.",
        shape="changes",
        parameters=(
            Parameter(name="since", help="The token to go on from: `last` of the answer before."),
            LAST_EVENT_ID,
            WHERE,
            LIMIT,
            TIMEOUT,
            Parameter(
                name="slow",
                help="What becomes of a stream of events whose reader is slow.",
                schema={"type": "string", "enum": list(SLOW)},
            ),
        ),
        problems=("unknown-view", "does-not-fit", "too-large"),
        media=("application/json", "text/event-stream"),
    ),
    Operation(
        name="listTables",
        method="GET",
        path="/v1/tables",
        handler=list_tables,
        summary="The tables that are captured from databases.",
        shape="tables",
    ),
    Operation(
        name="tableChanges",
        method="GET",
        path="/v1/tables/{table}/changes",
        handler=table_changes,
        summary="Every change of a captured table, from its first row on or from a token: as "
        "server-sent events (Accept: text/event-stream), or as one answer of JSON that waits for "
        "something to tell.",
        shape="table_changes",
        parameters=(
            Parameter(
                name="since",
                help="The token to go on from: `last` of the answer before; `now` for what is yet "
                "to come.",
            ),
            LAST_EVENT_ID,
            LIMIT,
            TIMEOUT,
        ),
        problems=("unknown-table", "bad-token"),
        media=("application/json", "text/event-stream"),
    ),
)
