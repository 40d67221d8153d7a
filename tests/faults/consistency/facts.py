"""What follows from a history before any judgement: who sent what, what became of it, where it is.

Pure. Computed once, used by every check.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import NamedTuple, TypeAlias

from tests.faults.consistency.history import (
    Ending,
    History,
    Isolation,
    Kind,
    Operation,
    Outcome,
    Partition,
    Read,
    Send,
)

Values: TypeAlias = Mapping[Partition, Mapping[int, str]]


class Fate(Enum):
    """What became of the writes of an operation."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Sent(NamedTuple):
    operation: Operation
    send: Send


class Seen(NamedTuple):
    operation: Operation
    read: Read


class Facts:
    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def by_process(self) -> Mapping[str, History]:
        found: dict[str, History] = defaultdict(list)
        for operation in sorted(self.history, key=lambda one: one.number):
            found[operation.process].append(operation)
        return found

    @cached_property
    def sent(self) -> Mapping[str, Sent]:
        """Each value, with the operation that sent it."""
        return {send.value: Sent(one, send) for one in self.history for send in one.sends}

    @cached_property
    def transactions(self) -> History:
        return [one for one in self.history if one.kind is Kind.TRANSACTION]

    def reads(self) -> Iterator[Seen]:
        for operation in self.history:
            for read in operation.polls:
                yield Seen(operation, read)

    @cached_property
    def offsets_read(self) -> Mapping[str, Mapping[int, Seen]]:
        """For each value the offsets at which it was read, with the first to do so."""
        found: dict[str, dict[int, Seen]] = defaultdict(dict)
        for seen in self.reads():
            found[seen.read.value].setdefault(seen.read.offset, seen)
        return found

    @cached_property
    def final(self) -> Mapping[Isolation, Values]:
        """The whole log as it was read when all was over, by isolation."""
        found: dict[Isolation, dict[Partition, dict[int, str]]] = {
            isolation: defaultdict(dict) for isolation in Isolation
        }
        for operation, read in self.reads():
            if operation.is_final and operation.isolation is not None:
                found[operation.isolation][read.partition][read.offset] = read.value
        return found

    @cached_property
    def final_values(self) -> Mapping[Isolation, frozenset[str]]:
        return {
            isolation: frozenset(v for values in partitions.values() for v in values.values())
            for isolation, partitions in self.final.items()
        }

    def fate(self, operation: Operation) -> Fate:
        """What the client may rely on; nothing that was read is looked at."""
        if operation.kind is not Kind.TRANSACTION:
            return Fate.UNKNOWN if operation.outcome is not Outcome.FAIL else Fate.ABORTED
        if operation.ending is not Ending.COMMIT or operation.outcome is Outcome.FAIL:
            return Fate.ABORTED
        return Fate.COMMITTED if operation.outcome is Outcome.OK else Fate.UNKNOWN

    def is_committed(self, transaction: Operation) -> bool:
        """The client knows it, or the log shows it."""
        fate = self.fate(transaction)
        if fate is not Fate.UNKNOWN:
            return fate is Fate.COMMITTED
        shown = self.final_values[Isolation.COMMITTED]
        return any(send.value in shown for send in transaction.sends)
