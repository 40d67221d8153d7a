"""Captures, jobs, views and aggregates: what their pages ask of the application."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.base.errors import MillstreamError
from millstream.values.unfit import Unfit
from millstream.views.store import NotInThisStore
from millstream.web.console.broker_pages import HIGH, WIDE
from millstream.web.console.condition import Condition
from millstream.web.console.figures import curve
from millstream.web.console.overview import (
    aside_topics,
    capture_figures,
    job_figures,
    view_figures,
)
from millstream.web.console.record_text import Shown, in_full
from millstream.web.console.rendering import href, with_query
from millstream.web.console.visits import PAGE_LINES, Visit, require_found
from millstream.web.ports import ServedView
from millstream.web.questions import Asked, conditions_of, key_columns
from millstream.web.row_json import as_text, from_segment, to_json, to_plain
from millstream.web.view_requests import ROWS_PARAMETERS, Freshness, Question

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "starts with")
# Types whose values stand right, as numbers do.
NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
STREAMS_SHOWN = 100
# Of a key in an address, as JSON.
KEY_CHARACTERS_MAX = 1_500
EVENTS_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLine:
    """A row in a table: `place` is where it is shown whole."""

    cells: Mapping[str, str]
    place: str


def captures(visit: Visit) -> dict[str, Any]:
    found = visit.source.declared.captures()
    return {
        "captures": found,
        "figures": {one.name: capture_figures(one, visit) for one in found},
    }


def capture(visit: Visit) -> dict[str, Any]:
    name = visit.path["capture"]
    there = {one.name: one for one in visit.source.declared.captures()}
    found = require_found(there.get(name), "capture", name)
    behind, retained = (
        visit.watch.series(what, name) for what in ("capture behind", "capture retained")
    )
    changes = visit.watch.series("capture", name)
    return {
        "capture": found,
        "figures": capture_figures(found, visit),
        "changes": curve(changes.rates(), width=WIDE, height=HIGH),
        "behind": curve(behind.gauge(), width=WIDE, height=HIGH),
        "retained": curve(retained.gauge(), width=WIDE, height=HIGH),
    }


def jobs(visit: Visit) -> dict[str, Any]:
    found = visit.source.declared.jobs()
    return {
        "jobs": found,
        "figures": {one.node: job_figures(one, visit) for one in found},
        "aside": aside_topics(found, visit),
    }


def job(visit: Visit) -> dict[str, Any]:
    name = visit.path["job"]
    there = {one.name: one for one in visit.source.declared.jobs()}
    found = require_found(there.get(name), "job", name)
    rows, lag, state = (visit.watch.series(what, name) for what in ("job", "job lag", "job state"))
    return {
        "job": found,
        "restarted": visit.number("restarted") is not None,
        "figures": job_figures(found, visit),
        "aside": aside_topics([found], visit)[name],
        "rows": curve(rows.rates(), width=WIDE, height=HIGH),
        "lag": curve(lag.gauge(), width=WIDE, height=HIGH),
        "state": curve(state.gauge(), width=WIDE, height=HIGH),
    }


# --- views --------------------------------------------------------------------------------------


def views(visit: Visit) -> dict[str, Any]:
    names, of_jobs = sorted(visit.serving.application.views()), _job_conditions(visit)
    return {
        "names": names,
        "places": {name: visit.source.declared.view_place(name) for name in names},
        "seen": visit.watch.views,
        "figures": {name: view_figures(name, of_jobs.get(name), visit.watch) for name in names},
    }


def view(visit: Visit) -> dict[str, Any]:
    name = visit.path["view"]
    found = visit.serving.view(name)
    return {
        "name": name,
        "place": visit.source.declared.view_place(name),
        "columns": list(found.schema),
        "numbers": {one.name for one in found.schema if str(one.type).startswith(NUMBERS)},
        "key": found.key,
        "opens": next((one.name for one in found.schema if one.name in found.key), ""),
        "operators": OPERATORS,
        "asked": {part: visit.text(part) for part in ("column", "operator", "value")},
        "seen": visit.watch.views.get(name),
        "figures": view_figures(name, _job_conditions(visit).get(name), visit.watch),
        "generations": visit.serving.application.generations(name),
        "lag_curve": curve(visit.watch.series("view lag", name).gauge(), width=WIDE, height=HIGH),
        "rows_curve": curve(visit.watch.series("view", name).gauge(), width=WIDE, height=HIGH),
        "has_feed": has_feed(found),
        **_rows(visit, found, name),
    }


def _job_conditions(visit: Visit) -> dict[str, Condition | None]:
    """A view is as the job of its name is."""
    found = visit.source.declared.jobs()
    return {one.name: job_figures(one, visit).condition for one in found if one.keeps_view}


def has_feed(found: ServedView) -> bool:
    try:
        found.token()
    except NotInThisStore:
        return False
    return True


def _rows(visit: Visit, found: ServedView, name: str) -> dict[str, Any]:
    """A search that does not fit is told beside the form, and shows no rows."""
    if visit.is_update:
        return {"rows": [], "next": None, "more": False, "refused": ""}
    try:
        answer = _question(visit, found, name).answer()
    except MillstreamError as error:
        return {"rows": [], "next": None, "more": False, "refused": str(error)}
    rows = [
        RowLine(
            cells={column: shown_value(value) for column, value in row.items()},
            place=row_place(name, found.key, row),
        )
        for row in answer["rows"]
    ]
    return {"rows": rows, "next": answer["next"], "more": answer["more"], "refused": ""}


def _question(visit: Visit, found: ServedView, name: str) -> Question:
    where = condition_of(visit, found)
    pairs = [("where", as_text(where))] if where else []
    if (cursor := visit.query.get("cursor")) and not where:
        pairs.append(("cursor", cursor))
    return Question(
        view=found,
        columns=key_columns(name, found.schema, found.key),
        asked=Asked(pairs, known=ROWS_PARAMETERS),
        limit=PAGE_LINES,
        fresh=Freshness(receipts=[], timeout_s=0.0),
    )


def row_place(view: str, key: Sequence[str], row: Mapping[str, Any]) -> str:
    """Where a row is shown whole; empty for one whose key is too long for an address."""
    text = to_json([row[name] for name in key]).decode()
    if len(text) > KEY_CHARACTERS_MAX:
        return ""
    return f"{href('views', view)}/row{with_query({}, key=text)}"


def row(visit: Visit) -> dict[str, Any]:
    name = visit.path["view"]
    found = visit.serving.view(name)
    text = visit.query.get("key", "")
    asked = Asked([("key", text)], known=ROWS_PARAMETERS)
    question = Question(
        view=found,
        columns=key_columns(name, found.schema, found.key),
        asked=asked,
        limit=1,
        fresh=Freshness(receipts=[], timeout_s=0.0),
    )
    there = require_found(question.answer()["rows"][0], f"row of {name} with the key", text)
    return {
        "name": name,
        "heading": ", ".join(shown_value(there[column]) for column in found.key),
        "values": [(one, _whole_value(there[one.name])) for one in found.schema],
    }


def _whole_value(value: Any) -> Shown:
    return in_full(None if value is None else shown_value(value).encode())


def condition_of(visit: Visit, found: ServedView) -> Mapping[str, Any]:
    """As the HTTP API takes it: {"count >=": 5}; none if no column is chosen."""
    column, operator = visit.text("column"), visit.text("operator") or "="
    if not column:
        return {}
    if operator not in OPERATORS:
        raise Unfit(f"the operator is one of {', '.join(OPERATORS)}", path=operator)
    field = found.schema.field(column)
    if field is None:
        raise Unfit("the view has no such column", path=column)
    return {f"{column} {operator}": from_segment(field.type, visit.text("value"))}


def where_of(visit: Visit, found: ServedView) -> Mapping[str, Any]:
    """With values of the columns' types, as feeds take it."""
    return conditions_of(found.schema, condition_of(visit, found) or None)


def shown_value(value: Any) -> str:
    plain = to_plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


# --- aggregates ---------------------------------------------------------------------------------


def aggregates(visit: Visit) -> dict[str, Any]:
    return {"kinds": visit.source.aggregates.kinds()}


def aggregate(visit: Visit) -> dict[str, Any]:
    name = visit.path["aggregate"]
    there = {one.name: one for one in visit.source.aggregates.kinds()}
    found = require_found(there.get(name), "aggregate", name)
    wanted = visit.text("q")
    streams = visit.source.aggregates.streams(name, starts_with=wanted, limit=STREAMS_SHOWN + 1)
    return {
        "aggregate": found,
        "wanted": wanted,
        "streams": streams[:STREAMS_SHOWN],
        "has_more": len(streams) > STREAMS_SHOWN,
    }


def stream(visit: Visit) -> dict[str, Any]:
    name, stream_id = visit.path["aggregate"], visit.path["stream"]
    history = visit.source.aggregates.history(
        name, stream_id, version=visit.number("version"), limit=EVENTS_SHOWN
    )
    found = require_found(history, f"{name} of identity", stream_id)
    return {
        "aggregate": name,
        "stream": found,
        "state": json.dumps(to_plain(found.state), indent=2, ensure_ascii=False),
        "data": {one.version: shown_value(one.data) for one in found.events},
    }
