"""PostgreSQL's errors in our words: what only a person can mend, and what passes.

Every call of the driver in this folder is inside of `translated`, or hands its result to `refusal`.
"""

from collections.abc import Iterator, Sequence
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
_NO_TABLE: Final = "42P01"


class SlotLost(SourceLost):
    """The server cannot hand over changes any more that were not handed over yet."""

    def __init__(self, *, capture: str, slot: str, position: str, cause: str) -> None:
        super().__init__(
            f"the capture {capture} cannot go on after {position}: {cause}. What changed since is "
            f"not to be had from the log. `millstream capture reload {capture}` makes a new slot "
            f"and loads all tables anew; `millstream capture drop {capture}` ends the capture"
        )
        self.capture, self.slot, self.position, self.cause = capture, slot, position, cause


class TableNotPublished(SourceLost):
    """It was dropped and made again, or somebody changed the publication."""

    def __init__(self, *, capture: str, tables: Sequence[str], publication: str) -> None:
        super().__init__(
            f"the publication {publication} of the capture {capture} does not tell all changes of "
            f"{', '.join(tables)} any more: dropped and made again, or taken out of it? What "
            f"changed meanwhile is not in the log. `millstream capture reload {capture}` makes the "
            f"publication anew, and loads all tables; `millstream capture drop {capture}` ends the "
            "capture"
        )
        self.capture, self.tables, self.publication = capture, tables, publication


class TableNotCaptured(SourceLost):
    """Its name is not what the capture was told: most likely a table was renamed."""

    def __init__(self, *, capture: str, table: str) -> None:
        super().__init__(
            f"the log tells changes of {table}, which the capture {capture} does not have: was a "
            f"table renamed? `millstream capture add {capture} --table {table}` captures it by "
            "this name, and nothing is lost; or rename it back, and then "
            f"`millstream capture reload {capture}`"
        )
        self.capture, self.table = capture, table


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
            f"PostgreSQL refuses the login of the capture {capture}: {message}. Is the "
            "password right, or have the credentials changed? A capture that runs tries again; "
            "with new ones, start it again"
        )


class TableGone(SourceInterrupted):
    """Dropped while it was read. The next run does not ask for it, and deletes its rows."""

    def __init__(self, *, capture: str, message: str) -> None:
        super().__init__(f"a table of the capture {capture} was dropped: {message}")


class Refused(SourceLost):
    """A statement that this login may not run, or that makes no sense there."""


def refusal(capture: str, sqlstate: str | None, message: str) -> MillstreamError:
    """What an error of the server means, but for those of slots, which need more to be told."""
    text = " ".join(message.split())
    if sqlstate is None and "authentication failed" in text:
        return LoginRefused(capture=capture, message=text)
    if sqlstate is not None and sqlstate.startswith(_LOGIN_CLASS):
        return LoginRefused(capture=capture, message=text)
    if sqlstate == _NO_TABLE:
        return TableGone(capture=capture, message=text)
    if sqlstate in (_PRIVILEGE, _NO_DATABASE) or (sqlstate or "").startswith("42"):
        return Refused(
            f"PostgreSQL refuses what the capture {capture} asks: {text}. "
            "`millstream capture check` says what is missing"
        )
    return SourceInterrupted(f"the capture {capture} does not reach PostgreSQL: {text}")


@contextmanager
def translated(capture: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise refusal(capture, error.sqlstate, str(error)) from error
