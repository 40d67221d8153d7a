"""PostgreSQL's errors in our words: what only a person can mend, and what passes.

Every call of the driver in this folder is inside of `translated`, or hands its result to `refusal`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg

from millstream.base.errors import MillstreamError
from millstream.capture.source import SourceInterrupted, SourceLost

UNDEFINED_OBJECT: Final = "42704"  # no such slot, no such publication
NOT_IN_STATE: Final = "55000"  # a slot that was given up
IN_USE: Final = "55006"
_LOGIN_CLASS: Final = "28"
_PRIVILEGE: Final = "42501"
_NO_DATABASE: Final = "3D000"


class SlotLost(SourceLost):
    """The server cannot hand over changes any more that were not handed over yet."""

    def __init__(self, *, capture: str, slot: str, position: str, cause: str) -> None:
        super().__init__(
            f"the capture {capture} cannot go on after {position}: {cause}. What changed since is "
            f"not to be had from the log. `millstream capture reload {capture}` makes a new slot "
            f"and loads all tables anew; `millstream capture drop {capture}` ends the capture"
        )
        self.capture, self.slot, self.position, self.cause = capture, slot, position, cause


class SlotBusy(SourceInterrupted):
    def __init__(self, *, capture: str, slot: str, pid: int | None) -> None:
        super().__init__(
            f"the replication slot {slot} of the capture {capture} is in use by the server's "
            f"process {pid}: another run of the capture may still be there. To end it: "
            f"SELECT pg_terminate_backend({pid})"
        )
        self.capture, self.slot, self.pid = capture, slot, pid


class LoginRefused(SourceInterrupted):
    def __init__(self, *, capture: str, message: str) -> None:
        super().__init__(
            f"PostgreSQL refuses the login of the capture {capture}: {message}. Have the "
            "credentials changed? It is tried again; with new ones, start the capture again"
        )


class Refused(SourceLost):
    """A statement that this login may not run, or that makes no sense there."""


def refusal(capture: str, sqlstate: str | None, message: str) -> MillstreamError:
    """What an error of the server means, but for those of slots, which need more to be told."""
    text = " ".join(message.split())
    if sqlstate is None and "authentication failed" in text:
        return LoginRefused(capture=capture, message=text)
    if sqlstate is not None and sqlstate.startswith(_LOGIN_CLASS):
        return LoginRefused(capture=capture, message=text)
    if sqlstate in (_PRIVILEGE, _NO_DATABASE) or (sqlstate or "").startswith("42"):
        return Refused(
            f"PostgreSQL refuses what the capture {capture} asks: {text}. "
            "`millstream capture check` says what is missing"
        )
    return SourceInterrupted(f"the capture {capture} lost PostgreSQL: {text}")


@contextmanager
def translated(capture: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise refusal(capture, error.sqlstate, str(error)) from error
