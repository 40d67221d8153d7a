"""Order within one process: reads and sends go forward and leave nothing out. Pure."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.faults.consistency.anomaly import Anomaly, Finding
from tests.faults.consistency.facts import Facts
from tests.faults.consistency.history import (
    History,
    Isolation,
    Kind,
    Operation,
    Partition,
    Read,
)


@dataclass(slots=True)
class Reader:
    """Where a consumer is. After a rebalance a partition is not `settled` until its first read:
    that one may be anywhere."""

    positions: dict[Partition, int] = field(default_factory=dict)
    settled: set[Partition] = field(default_factory=set)

    def follow(self, operation: Operation) -> None:
        if operation.kind is Kind.ASSIGN:
            self.positions.update(operation.positions)
            self.settled |= operation.positions.keys()
        elif operation.kind is Kind.SUBSCRIBE:
            self.settled.clear()

    def advance(self, read: Read) -> None:
        self.positions[read.partition] = read.offset + 1
        self.settled.add(read.partition)


def poll_order(facts: Facts) -> Iterator[Finding]:
    """Each poll goes on where the last one ended: not before it, not behind a record."""
    offsets = {
        isolation: {partition: sorted(values) for partition, values in partitions.items()}
        for isolation, partitions in facts.final.items()
    }
    for history in facts.by_process.values():
        yield from _reader_order(history, offsets)


def _reader_order(
    history: History, offsets: Mapping[Isolation, Mapping[Partition, list[int]]]
) -> Iterator[Finding]:
    reader = Reader()
    for operation in history:
        reader.follow(operation)
        for read in operation.polls:
            visible = offsets[operation.isolation] if operation.isolation is not None else {}
            yield from _step(reader, operation, read, visible.get(read.partition, []))
            reader.advance(read)


def _step(
    reader: Reader, operation: Operation, read: Read, visible: list[int]
) -> Iterator[Finding]:
    expected = reader.positions.get(read.partition)
    is_settled = read.partition in reader.settled
    where = f"{operation.process} read {read.partition} offset {read.offset}"
    if expected is None:
        return
    if read.offset < expected:
        anomaly = (
            Anomaly.NONMONOTONIC_POLL if is_settled else Anomaly.NONMONOTONIC_POLL_IN_REBALANCE
        )
        yield Finding(anomaly, f"{where} when it was at {expected}", [operation])
    elif skipped := _between(visible, expected, read.offset):
        anomaly = Anomaly.POLL_SKIP if is_settled else Anomaly.POLL_SKIP_IN_REBALANCE
        sentence = f"{where} when it was at {expected}, and left out {skipped}"
        yield Finding(anomaly, sentence, [operation])


def _between(visible: list[int], start: int, end: int) -> list[int]:
    """The visible offsets in [start, end)."""
    return visible[bisect_left(visible, start) : bisect_left(visible, end)]


def send_order(facts: Facts) -> Iterator[Finding]:
    """What a process sends to a partition gets ever larger offsets."""
    for history in facts.by_process.values():
        last: dict[Partition, int] = {}
        for operation in history:
            for send in operation.sends:
                if send.offset is None:
                    continue
                before = last.get(send.partition, -1)
                if send.offset <= before:
                    sentence = f"{send.value} got {send.partition} offset {send.offset}, "
                    sentence += f"though the one before it got {before}"
                    yield Finding(Anomaly.NONMONOTONIC_SEND, sentence, [operation])
                last[send.partition] = send.offset


def sends_skipping(facts: Facts) -> Iterator[Finding]:
    """Between two records of a transaction stands one of somebody else: allowed."""
    for transaction in facts.transactions:
        last: dict[Partition, int] = {}
        for send in transaction.sends:
            before = last.get(send.partition)
            if send.offset is not None:
                if before is not None and send.offset > before + 1:
                    sentence = f"{send.partition} offsets {before} and {send.offset}"
                    yield Finding(Anomaly.SEND_SKIP_IN_TRANSACTION, sentence, [transaction])
                last[send.partition] = send.offset
