"""Transactions: what was aborted or is still open is not read, and each one ends. Pure."""

from collections.abc import Iterator

from tests.faults.consistency.anomaly import Anomaly, Finding
from tests.faults.consistency.facts import Facts, Fate
from tests.faults.consistency.history import Isolation, Kind, Operation, Outcome


def aborted_reads(facts: Facts) -> Iterator[Finding]:
    """G1a: a committed read shows a write that was certainly not committed."""
    for operation, read in facts.reads():
        sent = facts.sent.get(read.value)
        if operation.isolation is not Isolation.COMMITTED or sent is None:
            continue
        if facts.fate(sent.operation) is Fate.ABORTED:
            sentence = f"{read.value} was read at {read.partition} offset {read.offset}"
            yield Finding(Anomaly.ABORTED_READ, sentence, [sent.operation, operation])


def precommitted_reads(facts: Facts) -> Iterator[Finding]:
    """A committed read shows a write before its client has asked to commit."""
    for operation, read in facts.reads():
        sent = facts.sent.get(read.value)
        if operation.isolation is not Isolation.COMMITTED or sent is None:
            continue
        if sent.operation != operation and _ended_before_commit(operation, sent.operation):
            sentence = f"{read.value} was read at {read.partition} offset {read.offset}"
            yield Finding(Anomaly.PRECOMMITTED_READ, sentence, [sent.operation, operation])


def _ended_before_commit(reader: Operation, writer: Operation) -> bool:
    """A poll has ended when it is complete, the polls of a transaction when it asks for its end."""
    is_transaction = reader.kind is Kind.TRANSACTION
    read_ns = reader.ending_ns if is_transaction else reader.completed_ns
    asked_ns = writer.ending_ns
    return read_ns is not None and asked_ns is not None and read_ns < asked_ns


def hanging_transactions(facts: Facts) -> Iterator[Finding]:
    """When every transactional id has begun anew, nothing can be open: all can be read."""
    yield from _open_in_logs(facts)
    for operation in facts.history:
        if operation.kind is Kind.GROUP_POSITIONS and operation.outcome is not Outcome.OK:
            sentence = f"{operation.group} cannot know where it is: {operation.note}"
            yield Finding(Anomaly.HANGING_TRANSACTION, sentence, [operation])


def _open_in_logs(facts: Facts) -> Iterator[Finding]:
    ends: dict[Isolation, dict[str, int]] = {isolation: {} for isolation in Isolation}
    for operation in facts.history:
        if operation.is_final and operation.isolation is not None:
            ends[operation.isolation].update(operation.positions)
    for partition, end in ends[Isolation.UNCOMMITTED].items():
        stable = ends[Isolation.COMMITTED].get(partition, end)
        if stable < end:
            sentence = f"{partition} can be read to {stable}, though its end is {end}"
            yield Finding(Anomaly.HANGING_TRANSACTION, sentence)
