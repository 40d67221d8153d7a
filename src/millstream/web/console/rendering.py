"""Pages as HTML: templates with what they may call. Everything is escaped unless it is markup.

A page's blocks whose names begin with `live_` can be rendered on their own: they are the parts that
change while somebody looks.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from millstream._version import __version__
from millstream.web.console import figures
from millstream.web.console.facts import Node
from millstream.web.console.record_text import in_line

LIVE_PREFIX: Final = "live_"
STATIC: Final = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
FIGURES: Final = (
    "ago",
    "clock",
    "count",
    "counted",
    "curve",
    "day_clock",
    "duration",
    "iso",
    "rate",
    "short",
    "size",
)
# Behind a sign between two parts of a name.
BREAKS: Final = re.compile(r"(?<=[_.-])(?=\w)")
PATHS: Final = {
    "capture": "captures",
    "topic": "topics",
    "job": "jobs",
    "view": "views",
    "aggregate": "aggregates",
}


def render(template: str, context: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(**context)


def live_parts(template: str, context: Mapping[str, Any]) -> dict[str, str]:
    """The markup of each live block, by the id of its element."""
    found = _environment().get_template(template)
    inside = found.new_context(dict(context))
    return {
        name: "".join(block(inside))
        for name, block in found.blocks.items()
        if name.startswith(LIVE_PREFIX)
    }


def render_part(name: str, *given: Any) -> str:
    """One macro of parts.html."""
    return str(getattr(_environment().globals["parts"], name)(*given))


@cache
def static_file(name: str) -> bytes:
    return (files("millstream.web.console") / "static" / name).read_bytes()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("millstream.web.console"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {name: getattr(figures, name) for name in FIGURES}
    environment.globals |= {
        "asset": _asset,
        "parts_of_name": parts_of_name,
        "href": href,
        "in_line": in_line,
        "with_query": with_query,
        "version": __version__,
    }
    # Macros that every template has, also where a block is rendered on its own.
    environment.globals["parts"] = environment.get_template("parts.html").module
    return environment


def _asset(name: str) -> str:
    """With a mark of its content: a browser may keep it for ever."""
    mark = hashlib.sha256(static_file(name)).hexdigest()[:12]
    return f"/console/static/{name}?v={mark}"


def parts_of_name(name: str) -> list[str]:
    """Behind each of them it may go on in the next line."""
    return BREAKS.split(name)


def href(kind: str | Node, *names: object) -> str:
    """The address of something's page; empty if it has none."""
    if isinstance(kind, Node):
        return href(kind.kind, kind.name, *names)
    if kind not in PATHS.values() and kind not in PATHS and kind not in ("groups", "queues"):
        return ""
    parts = [PATHS.get(kind, kind), *(quote(str(name), safe="") for name in names)]
    return "/console/" + "/".join(parts)


def with_query(query: Mapping[str, str], **changed: object) -> str:
    """The same page with other questions; None takes one away."""
    merged = {**query, **{name: str(value) for name, value in changed.items() if value is not None}}
    kept = {
        name: value
        for name, value in merged.items()
        if value and not (name in changed and changed[name] is None)
    }
    return f"?{urlencode(kept)}"
