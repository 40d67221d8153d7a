"""Who acts, and why: what is said once around many commands. Pure.

    with acting(by="ada", why="ticket 4711"):
        bank["alice"].withdraw(30)

It goes with the flow of control: to tasks of asyncio that are started inside, not to threads. What
a call says itself comes first; of two blocks the inner one.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from millstream.base.errors import Rejected

WORDS: Final = ("by", "why", "causation", "correlation")
# A sentence or an id, not a document.
WORD_LENGTH_MAX: Final = 1_000

_said: ContextVar[Mapping[str, str]] = ContextVar("millstream_acting", default={})  # noqa: B039 - never changed


class BadMetadata(Rejected):
    def __init__(self, *, word: str, reason: str) -> None:
        super().__init__(f"{word}=: {reason}")
        self.word, self.reason = word, reason


@contextmanager
def acting(
    *,
    by: str | None = None,
    why: str | None = None,
    causation: str | None = None,
    correlation: str | None = None,
) -> Iterator[None]:
    """Say it for all commands inside. `causation`: the id of what led to them; `correlation`: of
    the whole undertaking."""
    given = {"by": by, "why": why, "causation": causation, "correlation": correlation}
    token = _said.set({**_said.get(), **checked(given)})
    try:
        yield
    finally:
        _said.reset(token)


def said(given: Mapping[str, Any]) -> dict[str, str]:
    """What holds for a command, by the call itself and by what is around it."""
    return {**_said.get(), **checked(given)}


def checked(given: Mapping[str, Any]) -> dict[str, str]:
    found = {word: value for word, value in given.items() if value is not None}
    for word, value in found.items():
        if not isinstance(value, str):
            raise BadMetadata(word=word, reason=f"a text, not a {type(value).__name__}")
        if len(value) > WORD_LENGTH_MAX:
            reason = f"{len(value):,} letters, and it may have {WORD_LENGTH_MAX:,}"
            raise BadMetadata(word=word, reason=reason)
    return found
