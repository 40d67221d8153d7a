"""What is captured: tables as they are at a moment, changes of their rows, transactions. Pure.

Rows travel as JSON text from the database's bytes to the record: a source writes each value once,
in its lossless form (docs/formats/capture_values.md), and nobody after it parses it.

A change is known by its transaction's commit position and its place in that transaction. Nothing
less: rows of one COPY share a log position.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from millstream.base.schema import DataType

Op = Literal["c", "u", "d", "r", "t", "m"]

CREATED: Final = "c"
UPDATED: Final = "u"
DELETED: Final = "d"
READ: Final = "r"  # by the initial load
TRUNCATED: Final = "t"
MESSAGE: Final = "m"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedColumn:
    """A column as the database declares it, and the type that its values have in our schemas."""

    name: str
    database_type: str  # "numeric(10,2)", "mood", "integer[]"
    type: DataType
    is_nullable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedTable:
    """One version of a table. Another column, type or key is another version.

    `name` is the database's full one ("public.orders"); `topic` is where its changes go. Without a
    key every record has a null key, and the topic is not compacted.
    """

    name: str
    topic: str
    columns: tuple[CapturedColumn, ...]
    key: tuple[str, ...]
    version: int = 1


class Change(NamedTuple):
    """One change of one row; parts are JSON objects as UTF-8.

    `key`: the key's columns, None for a table without a key. `before`: what the database tells of
    the old row, often nothing. `after`: the new row; None when it is deleted. `unavailable`: the
    columns of `after` whose value the database did not send because it did not change.
    An update that changes the key is two changes: a delete of the old, a create of the new.
    """

    table: CapturedTable
    op: Op
    key: bytes | None
    before: bytes | None
    after: bytes | None
    unavailable: tuple[str, ...] = ()


class PlacedChange(Change):
    """A change that knows where it is itself in the database's log, for those who ask for it."""

    lsn: int


class Message(NamedTuple):
    """What an application wrote into the database's log itself, inside a transaction."""

    prefix: str
    content: bytes


class Transaction(NamedTuple):
    """A committed transaction, whole. `changes` can be iterated once, and may be on disk.

    `commit`: its position in the database's order of commits, as text that names it for ever.
    `resume`: where to go on after it. `reloads`: tables whose rows were rewritten without changes
    being logged; they are to be loaded anew. `facts`: what this kind of database has more to say
    in `source` of its records, as members of a JSON object that follow others: `,"lsn":42`.
    """

    commit: str
    resume: str
    id: str
    at_ms: int
    changes: Iterable[Change | Message]
    reloads: tuple[str, ...] = ()
    facts: bytes = b""
    at_us: int = 0  # `at_ms` in microseconds, where the database tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Nothing more is in the database's log now; all of it up to `resume` was handed over."""

    resume: str
