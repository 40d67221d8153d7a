"""What every database offers to a capture. One contract suite holds for all of them.

A source is used by one thread, except its `loader`, which has connections of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from millstream.base.errors import Rejected, Retryable
from millstream.capture.change import CapturedTable, Quiet, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a database lacks, and the statement that mends it."""

    what: str
    mend: str
    is_fatal: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far behind the database a capture is. None: the database does not tell."""

    bytes: int | None
    retained_bytes: int | None  # of its log, that the database keeps for this capture
    retained_bytes_max: int | None = None  # beyond which the database gives the capture up


class Chunk(Protocol):
    """Rows of one table between two keys, as one snapshot of the database saw them.

    `rows`: (key, after) as in `Change`. `closes_at`: once the stream has passed this position, it
    has handed over every transaction that the snapshot could have seen.
    """

    @property
    def table(self) -> CapturedTable: ...

    @property
    def rows(self) -> Sequence[tuple[bytes, bytes]]: ...

    @property
    def last_key(self) -> str | None:
        """Where the next chunk begins, to be kept; None: this was the last one."""
        ...

    @property
    def closes_at(self) -> str: ...

    def sees(self, transaction: Transaction) -> bool:
        """Did the snapshot see what this transaction did?"""
        ...


class Loader(Protocol):
    """Reads the rows that are there; thread-safe, several chunks at a time."""

    def rows_estimate(self, table: CapturedTable) -> int: ...

    def ranges(self, table: CapturedTable, count: int) -> list[tuple[str | None, str | None]]:
        """Up to `count` parts of the table, (after, until), to be read side by side."""
        ...

    def read(
        self, table: CapturedTable, after: str | None, until: str | None, rows_max: int
    ) -> Chunk: ...

    def close(self) -> None: ...


@runtime_checkable
class Settles(Protocol):
    """A loader of a database that must come to rest in some way before its rows can be read.

    Both wait until it has, or until `is_over` says that nobody wants to know any more.
    """

    def settle(self, is_over: Callable[[], bool]) -> None:
        """Until new snapshots see every transaction that is in the log now. With a synchronous
        standby that is slow or away, commits are in the log and wait there to be seen."""
        ...

    def settle_table(self, table: CapturedTable, is_over: Callable[[], bool]) -> None:
        """Until no transaction is left that wrote to this table before it was captured: neither
        would the stream bring its changes, nor would a snapshot see them."""
        ...


@runtime_checkable
class TellsPosition(Protocol):
    """A source that can say where its database is without reading a table: all may be gone."""

    def position_now(self) -> str:
        """What was committed before is at this position, or before it."""
        ...


class Source(Protocol):
    kind: str  # "postgresql", "mariadb", "sqlite"
    # `stream` waits this long for more before it says `Quiet` again: 1.0 at first. The runner sets
    # it to some milliseconds while rows are loaded, so that chunks need not wait, and back.
    quiet_seconds: float

    @property
    def database(self) -> str: ...

    def check(self) -> list[Finding]:
        """What is missing before this database can be captured; changes nothing."""
        ...

    def prepare(self) -> str:
        """Make what capturing needs there (publication, slot, triggers); the position to start at.

        Only for a capture that has no position yet. A second call after a crash in the first one
        goes on with what is there.
        """
        ...

    def tables(self) -> list[CapturedTable]:
        """The tables to be captured, as they are now."""
        ...

    def stream(self, after: str) -> Iterator[Transaction | Quiet]:
        """Transactions in the order of their commits, the first one after this position.

        It ends never; it raises `SourceLost` when only a person can mend it, `SourceInterrupted`
        when a new stream from the last position will do. `Quiet` comes whenever nothing more is
        there now, and at least every second, so that the caller can do other things.
        """
        ...

    def is_past(self, position: str, other: str) -> bool:
        """Whether `position` is `other`, or after it."""
        ...

    def confirm(self, position: str) -> None:
        """All up to here is safe in the log: the database may forget it."""
        ...

    def add_tables(self, names: Sequence[str]) -> None:
        """Capture these too, from now on."""
        ...

    def lag(self, position: str) -> Lag: ...

    def loader(self) -> Loader: ...

    def drop(self) -> None:
        """Take away what `prepare` made."""
        ...

    def close(self) -> None: ...


class SourceLost(Rejected):
    """Changes are lost or cannot be had: a person must decide. Says which command is next."""


class SourceInterrupted(Retryable):
    """The connection or the server is gone for now."""


class CannotCapture(Rejected):
    """The database lacks something: the message says what, and what mends it."""


def require_fit(capture: str, findings: Sequence[Finding], *, cannot: str) -> None:
    if fatal := [found for found in findings if found.is_fatal]:
        why = "; ".join(f"{found.what}: {found.mend}" for found in fatal)
        raise CannotCapture(f"the capture {capture} cannot {cannot}: {why}")
