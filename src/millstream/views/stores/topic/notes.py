"""What a view in a topic keeps beside its rows, as records of a topic of its own. Pure.

    key             value
    view            who writes the view, which generations there are, which one is served
    generation/<n>  key, columns and last batch of a generation, and where its rows end

Rows of a generation, as of its last batch, are the records below `ends` in its topic: the view's
own for the one that is served, `_views-g<n>.<topic>` for another.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.base.errors import Corrupt
from millstream.views.view_book import (
    GenerationState,
    ViewBook,
    book_from,
    state_from,
    to_json,
)

VIEW = b"view"
GENERATION = b"generation/"
Ends = Mapping[int, int]  # by partition, the offset after the last record
Rows = Mapping[bytes, bytes]
Change = tuple[str, bytes, bytes | None]  # topic, key, and the row; None is a tombstone


class BadNote(Corrupt):
    def __init__(self, *, key: bytes, problem: str) -> None:
        super().__init__(
            f"the note {key!r} of a view cannot be read ({problem}): something else has written "
            "it. Drop the view, and rebuild it under another name"
        )
        self.key, self.problem = key, problem


@dataclass(frozen=True, slots=True)
class KeptGeneration:
    state: GenerationState
    ends: Ends = field(default_factory=dict)

    def extended(self, ends: Ends) -> "KeptGeneration":
        return replace(self, ends={**self.ends, **ends})


@dataclass
class TopicNotes:
    """The notes as of the last record that was applied."""

    book: ViewBook = field(default_factory=ViewBook)
    kept: dict[int, KeptGeneration] = field(default_factory=dict)

    def apply(self, key: bytes, value: bytes | None) -> None:
        try:
            self._apply(key, value)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadNote(key=key, problem=f"{type(error).__name__}: {error}") from None

    def _apply(self, key: bytes, value: bytes | None) -> None:
        if key == VIEW:
            self.book = ViewBook() if value is None else book_from(json.loads(value))
            return
        number = int(key.removeprefix(GENERATION))
        if value is None:
            self.kept.pop(number, None)
        else:
            self.kept[number] = _kept_from(json.loads(value))


def note_of_book(book: ViewBook) -> tuple[bytes, bytes]:
    return VIEW, to_json(book.facts()).encode()


def note_of(number: int, kept: KeptGeneration | None) -> tuple[bytes, bytes | None]:
    """None removes it."""
    key = GENERATION + str(number).encode()
    if kept is None:
        return key, None
    return key, to_json({**kept.state.facts(), "ends": kept.ends}).encode()


def _kept_from(facts: Mapping[str, Any]) -> KeptGeneration:
    ends = {int(number): int(end) for number, end in facts["ends"].items()}
    return KeptGeneration(state_from(facts), ends)


def difference(topic: str, there: Rows, wanted: Rows) -> Iterable[Change]:
    """What makes the rows of a topic into those that are wanted."""
    for key in there.keys() - wanted.keys():
        yield topic, key, None
    for key, row in wanted.items():
        if there.get(key) != row:
            yield topic, key, row
