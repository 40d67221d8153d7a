"""What happened in a run: operations of clients, as they were asked for and answered.

Pure values. An operation is `ok` when the broker confirmed it, `fail` when it certainly has no
effect, and `info` when nobody knows: a killed process leaves such ones. Each value is written
once in a whole run, so that a value found anywhere leads to the one operation that sent it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

# A topic and a partition of it: "events/0".
Partition: TypeAlias = str


class Kind(StrEnum):
    SEND = "send"
    POLL = "poll"
    INIT = "init"  # of a transactional id: whoever had it before is fenced from here on
    TRANSACTION = "transaction"
    COMMIT_OFFSETS = "commit offsets"
    ASSIGN = "assign"  # also after a seek: `positions` are where reading goes on
    SUBSCRIBE = "subscribe"  # also each rebalance: reading goes on wherever the group is
    CRASH = "crash"
    GROUP_POSITIONS = "group positions"  # asked for when all is over


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Isolation(StrEnum):
    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


class Ending(StrEnum):
    """What a client asked for at the end of its transaction."""

    COMMIT = "commit"
    ABORT = "abort"


class Send(NamedTuple):
    partition: Partition
    value: str
    offset: int | None = None  # as acknowledged; None if it never was


class Read(NamedTuple):
    partition: Partition
    offset: int
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation; `number` is its place in the life of its process.

    `ending` and `ending_ns` are set once a transaction's client has asked for its end: without
    them it can never have been committed. Times are of one clock for all processes.
    """

    process: str
    number: int
    kind: Kind
    invoked_ns: int = 0
    completed_ns: int | None = None
    outcome: Outcome = Outcome.INFO
    sends: tuple[Send, ...] = ()
    polls: tuple[Read, ...] = ()
    isolation: Isolation | None = None
    ending: Ending | None = None
    ending_ns: int | None = None
    group: str | None = None
    positions: Mapping[Partition, int] = field(default_factory=dict)
    is_final: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.process}#{self.number}"

    def __str__(self) -> str:
        times = f"{seconds(self.invoked_ns)} to {seconds(self.completed_ns)}"
        ending = f", asked to {self.ending} at {seconds(self.ending_ns)}" if self.ending else ""
        size = f"{len(self.sends)} sends, {len(self.polls)} reads"
        return f"{self.name}: {self.kind} {self.outcome}, {times}{ending}, {size}"


History: TypeAlias = list[Operation]


def seconds(time_ns: int | None) -> str:
    return "never" if time_ns is None else f"{time_ns / 1e9:.4f} s"
