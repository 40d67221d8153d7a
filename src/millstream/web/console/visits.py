"""One look at one page: who looks, at what, and where its facts come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from millstream.web.console.ports import Source
from millstream.web.console.sessions import Visitor
from millstream.web.console.watch import Watch
from millstream.web.problems import Problem
from millstream.web.serving import Serving

T = TypeVar("T")

PAGE_LINES = 50
SEARCH_CHARACTERS_MAX = 250
NUMBER_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """`path` and `query` are what the URL says. `is_update`: only the live parts will be shown, so
    that the rest need not be asked for. For one thread."""

    serving: Serving
    source: Source
    watch: Watch
    visitor: Visitor
    path: Mapping[str, str]
    query: Mapping[str, str]
    now_ms: int
    is_update: bool = False

    def text(self, name: str) -> str:
        return self.query.get(name, "").strip()[:SEARCH_CHARACTERS_MAX]

    def number(self, name: str) -> int | None:
        """None if it is not given; what is no number is told."""
        text = self.text(name)
        if not text:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX):
            raise Problem("bad-request", f"{name}={text!r} is no whole number from 0 on")
        return int(text)

    def has(self, name: str) -> bool:
        return bool(self.text(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """One page of a longer list; pages are counted from 1."""

    shown: Sequence[Any]
    page: int
    pages: int
    total: int


def lines_of(found: Sequence[Any], visit: Visit, *, name: str = "page") -> Lines:
    """The page that the URL names; the last one if there are fewer by now."""
    pages = max(1, -(-len(found) // PAGE_LINES))
    page = min(max(1, visit.number(name) or 1), pages)
    start = (page - 1) * PAGE_LINES
    return Lines(shown=found[start : start + PAGE_LINES], page=page, pages=pages, total=len(found))


def searched(names: Sequence[str], wanted: str) -> list[str]:
    """Those that have the text in them, in any case of letters."""
    needle = wanted.casefold()
    return [name for name in names if needle in name.casefold()]


def require_found(found: T | None, what: str, name: str) -> T:
    if found is None:
        raise Problem("not-found", f"there is no {what} {name!r}")
    return found
