"""What somebody should look at, of all that the application has: the overview begins with it. Pure.

A line says what is wrong, in a sentence that its owner has written, and leads to its page.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.web.console.facts import CaptureSeen, JobSeen, Node
from millstream.web.console.watch import ViewFigures

Level = Literal["bad", "warn"]
NOTICES_MAX = 12
BROKER = Node("broker", "broker")
SENTENCE_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    level: Level
    node: Node
    text: str


def notices_of(
    captures: Iterable[CaptureSeen],
    jobs: Iterable[JobSeen],
    views: Mapping[str, ViewFigures],
    *,
    broker: Sequence[str] = (),
) -> list[Notice]:
    """The bad ones first, and of these the broker's: the others may follow from them."""
    found = [
        *(_notice("bad", BROKER, text) for text in broker),
        *_of_captures(captures, must_wait=bool(broker)),
        *_of_jobs(jobs),
        *_of_views(views),
    ]
    return sorted(found, key=lambda one: one.level != "bad")[:NOTICES_MAX]


def _of_captures(captures: Iterable[CaptureSeen], *, must_wait: bool) -> Iterator[Notice]:
    """`must_wait`: the broker takes no records, so that captures cannot write their states."""
    for one in captures:
        node = Node("capture", one.name)
        if one.status is None:
            yield _notice("warn", node, "nobody has run it yet: `millstream run` does")
        elif one.status.state in ("failed", "waiting"):
            level: Level = "bad" if one.status.state == "failed" else "warn"
            yield _notice(level, node, one.status.error or f"it is {one.status.state}")
        elif one.is_stale and one.status.state != "ended":
            is_why = "the broker takes no records at present, so it cannot write"
            asks = "it has told nothing for a while: does its process run?"
            yield _notice("bad", node, is_why if must_wait else asks)
        if one.status is not None:
            yield from (_notice("warn", node, text) for text in one.status.warnings)


def _of_jobs(jobs: Iterable[JobSeen]) -> Iterator[Notice]:
    for one in jobs:
        node = Node("job", one.name)
        if one.status is None:
            yield _notice("warn", node, "nobody has run it yet: `millstream run` does")
            continue
        progress = one.status.progress
        if progress.state == "failed":
            yield _notice("bad", node, progress.error or "it has failed")
        elif one.is_stale:
            yield _notice("bad", node, "it has told nothing for a while: does its process run?")
        elif progress.state == "waiting":
            yield _notice("warn", node, f"tries again after: {progress.error or 'a failure'}")


def _of_views(views: Mapping[str, ViewFigures]) -> Iterator[Notice]:
    for name, one in sorted(views.items()):
        if one.problem:
            yield _notice("warn", Node("view", name), one.problem)


def _notice(level: Level, node: Node, text: str) -> Notice:
    return Notice(level=level, node=node, text=text[:SENTENCE_CHARACTERS_MAX])
