"""The windows of many keys, and how their changes are told: again, taken back, or once. Pure.

  upsert   a window that changed is told again; one that is no more (sessions that merged), deleted
  retract  what was told is taken back whole, and the new row told
  final    nothing until the window is over: then once

One book is one entry of Spark's state: the windows of all keys that fall into one slot.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from millstream.base.changes import DELETE, INSERT, RETRACT, UPSERT
from millstream.base.errors import Corrupt
from millstream.processing.operators.window_state import (
    NO_WATERMARK,
    Event,
    Result,
    Revision,
    Windows,
)
from millstream.processing.state.plain_pickles import dump_plain, load_plain

Emit: TypeAlias = Literal["upsert", "retract", "final"]
EMITS: tuple[Emit, ...] = ("upsert", "retract", "final")
Key: TypeAlias = tuple[Any, ...]
STATE_VERSION = 2
# Later than all times that Spark knows: in a batch, every window is over.
END_OF_TIME = 1 << 63


class Change(NamedTuple):
    """What happened to the row of one window; a delete has no values."""

    change: str
    key: Key
    result: Result


@dataclass(slots=True)
class WindowBook:
    """Windows by key. `wake_at` is the watermark at which its owner promised to call `close`.

    `grace` is how long after its end a window stays open: as if the watermark came that much later.
    """

    windows: Windows
    emit: Emit
    states: dict[Key, Any] = field(default_factory=dict)
    wake_at: int | None = None
    grace: int = 0

    def add(
        self, events: Mapping[Key, Sequence[Event]], watermark: int = NO_WATERMARK
    ) -> Iterator[Change]:
        for key, of_key in events.items():
            state = self.states.get(key)
            if state is None:
                state = self.windows.empty()
            revisions = self.windows.add(state, of_key, watermark - self.grace)
            if self.windows.next_close(state) is not None:
                self.states[key] = state
            if self.emit != "final":
                yield from changes_of(key, revisions, self.emit)

    def close(self, watermark: int) -> Iterator[Change]:
        """What is over by now goes; with "final", this is when it is told."""
        for key, state in [*self.states.items()]:
            over = self.windows.close(state, watermark - self.grace)
            if self.windows.next_close(state) is None:
                del self.states[key]
            if self.emit == "final":
                yield from (Change(INSERT, key, result) for result in over)

    def next_close(self) -> int | None:
        closes = (self.windows.next_close(state) for state in self.states.values())
        earliest = min((close for close in closes if close is not None), default=None)
        return None if earliest is None else earliest + self.grace

    def to_bytes(self) -> bytes:
        terms = terms_of(self.windows, self.grace)
        return dump_plain((STATE_VERSION, terms, self.wake_at, self.states))


def terms_of(windows: Windows, grace: int = 0) -> str:
    """What a state is of: with other windows or aggregates its numbers mean something else. With
    another grace, windows that are gone would be open again, and empty."""
    terms = (windows.kind, windows.aggregates)
    return repr((*terms, f"grace {grace} us") if grace else terms)


def book_from(kept: bytes, windows: Windows, emit: Emit, grace: int = 0) -> WindowBook:
    version, *content = load_plain(kept)
    if version != STATE_VERSION:
        raise Corrupt(
            f"the windows of this checkpoint have format {version}, known is {STATE_VERSION}: "
            "rebuild the job"
        )
    terms, wake_at, states = content
    if terms != terms_of(windows, grace):
        raise Corrupt(
            f"the windows of this checkpoint are {terms}, and not {terms_of(windows, grace)}: "
            "rebuild the job"
        )
    return WindowBook(windows, emit, states, wake_at, grace)


def changes_of(key: Key, revisions: Iterable[Revision], emit: Emit) -> Iterator[Change]:
    for before, after in revisions:
        if emit == "retract":
            if before is not None:
                yield Change(RETRACT, key, before)
            if after is not None:
                yield Change(INSERT, key, after)
        elif after is not None:
            yield Change(UPSERT, key, after)
        elif before is not None:
            yield Change(DELETE, key, before)


def changes_in_batch(
    windows: Windows, emit: Emit, events: Mapping[Key, Sequence[Event]]
) -> Iterator[Change]:
    """All that is there at once: every window is told once, and is over."""
    book = WindowBook(windows, emit)
    yield from book.add(events)
    yield from book.close(END_OF_TIME)
