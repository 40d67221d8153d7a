"""What somebody should look at, of all that the application has: the overview begins with it. Pure.

A line says what is wrong, in a sentence that its owner has written, and leads to its page.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from millstream.web.console.condition import WORDS, Condition, Word
from millstream.web.console.facts import CaptureSeen, JobSeen, Node
from millstream.web.console.watch import ViewFigures

Level = Literal["bad", "warn"]
NOTICES_MAX = 12
BROKER = Node("broker", "broker")
SENTENCE_CHARACTERS_MAX = 400
# How a job is whose view may be missing: what is wrong, if it is, the job's own line says.
EXPLAINS_MISSING: tuple[Word, ...] = ("starting", "failed", "stopped", "not run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    level: Level
    node: Node
    text: str
    condition: Condition | None = None


def notices_of(
    captures: Iterable[CaptureSeen],
    jobs: Iterable[JobSeen],
    views: Mapping[str, ViewFigures],
    conditions: Mapping[Node, Condition],
    *,
    broker: Sequence[str] = (),
) -> list[Notice]:
    """The worst first, and of the bad ones the broker's: the others may follow from them."""
    of_broker = [_notice("bad", BROKER, text) for text in broker]
    found = [
        *_of_captures(captures, conditions),
        *_of_jobs(jobs, conditions),
        *_of_views(views, conditions),
    ]
    return [*of_broker, *sorted(found, key=_rank)][:NOTICES_MAX]


def _rank(notice: Notice) -> tuple[bool, int]:
    word = notice.condition.word if notice.condition else "behind"
    return notice.level != "bad", WORDS.index(word)


def _of_captures(
    captures: Iterable[CaptureSeen], conditions: Mapping[Node, Condition]
) -> Iterator[Notice]:
    for one in captures:
        node = Node("capture", one.name)
        found = conditions[node]
        if not (found.word == "stopped" and one.status and one.status.state == "paused"):
            yield from _of_condition(node, found, one.error)
        if one.status is not None:
            yield from (_notice("warn", node, text) for text in one.status.warnings)


def _of_jobs(jobs: Iterable[JobSeen], conditions: Mapping[Node, Condition]) -> Iterator[Notice]:
    for one in jobs:
        error = one.status.progress.error if one.status else None
        yield from _of_condition(one.node, conditions[one.node], error or "")


def _of_condition(node: Node, found: Condition, error: str) -> Iterator[Notice]:
    """Nothing of who is well; else in words, and for a failure in its own."""
    match found.word:
        case "failed":
            yield _notice("bad", node, _with_note(error or "it has failed", found.note), found)
        case "stopped" if found.aside:
            text = "it has told nothing for a while: does its process run?"
            yield _notice("bad", node, _with_note(text, found.note), found)
        case "stopped":
            yield _notice("warn", node, found.note or "`millstream run` starts it", found)
        case "behind":
            yield _notice("warn", node, found.note, found)
        case "not run":
            yield _notice("warn", node, "nobody has run it yet: `millstream run` does", found)


def _with_note(text: str, note: str) -> str:
    """The text is cut if it is long; the note never."""
    if not note:
        return text
    return f"{text[: SENTENCE_CHARACTERS_MAX - len(note) - 3]} ({note})"


def _of_views(
    views: Mapping[str, ViewFigures], conditions: Mapping[Node, Condition]
) -> Iterator[Notice]:
    for name, one in sorted(views.items()):
        if one.problem and not (one.is_missing and _explains(conditions.get(Node("job", name)))):
            yield _notice("warn", Node("view", name), one.problem)


def _explains(job: Condition | None) -> bool:
    """Whether the view of such a job may be missing: the job makes it with its first batch."""
    return job is not None and job.word in EXPLAINS_MISSING


def _notice(level: Level, node: Node, text: str, found: Condition | None = None) -> Notice:
    return Notice(level=level, node=node, text=text[:SENTENCE_CHARACTERS_MAX], condition=found)
