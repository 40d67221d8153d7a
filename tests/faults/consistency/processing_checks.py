"""Read, process, write: each input of a group is processed by exactly one transaction. Pure.

A processor sends the offsets that it read up to with its transaction. If they move without the
transaction, input is left out; if the transaction commits without them, input is processed twice.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tests.faults.consistency.anomaly import Anomaly, Finding
from tests.faults.consistency.facts import Facts
from tests.faults.consistency.history import (
    History,
    Isolation,
    Kind,
    Operation,
    Outcome,
    Partition,
)

GroupPartition: TypeAlias = tuple[str, Partition]


def unprocessed_inputs(facts: Facts) -> Iterator[Finding]:
    """A group has moved past a record that none of its transactions has processed."""
    ends = group_ends(facts)
    for (group, partition), processed in processed_offsets(facts).items():
        end = max(max(processed) + 1, ends.get((group, partition), 0))
        for offset, value in facts.final[Isolation.COMMITTED][partition].items():
            if offset < end and offset not in processed:
                sentence = f"{group} went past {value} at {partition} offset {offset}"
                yield Finding(Anomaly.UNPROCESSED_INPUT, sentence, _near(processed, offset))


def inputs_processed_twice(facts: Facts) -> Iterator[Finding]:
    for (group, partition), processed in processed_offsets(facts).items():
        for offset, transactions in processed.items():
            if len(transactions) > 1:
                sentence = f"{group} has processed {partition} offset {offset}"
                yield Finding(Anomaly.INPUT_PROCESSED_TWICE, sentence, transactions)


def lost_offsets(facts: Facts) -> Iterator[Finding]:
    """A group is not behind what it was told is committed."""
    ends = group_ends(facts)
    for operation in facts.history:
        if not _has_committed_offsets(facts, operation):
            continue
        for partition, position in operation.positions.items():
            end = ends.get((operation.group or "", partition))
            if end is not None and end < position:
                sentence = f"{operation.group} is at {partition} offset {end}, behind {position}"
                yield Finding(Anomaly.LOST_OFFSETS, sentence, [operation])


def _has_committed_offsets(facts: Facts, operation: Operation) -> bool:
    if operation.kind is Kind.COMMIT_OFFSETS:
        return operation.outcome is Outcome.OK
    return operation.kind is Kind.TRANSACTION and facts.is_committed(operation)


def processed_offsets(facts: Facts) -> Mapping[GroupPartition, Mapping[int, History]]:
    """By group and partition: each offset, with the committed transactions that read it."""
    found: dict[GroupPartition, dict[int, History]] = defaultdict(lambda: defaultdict(list))
    for transaction in facts.transactions:
        if transaction.group is not None and facts.is_committed(transaction):
            for read in transaction.polls:
                found[transaction.group, read.partition][read.offset].append(transaction)
    return found


def group_ends(facts: Facts) -> Mapping[GroupPartition, int]:
    """How far each group was, by its own offsets, when all was over."""
    return {
        (operation.group or "", partition): position
        for operation in facts.history
        if operation.kind is Kind.GROUP_POSITIONS
        for partition, position in operation.positions.items()
    }


def _near(processed: Mapping[int, History], offset: int) -> History:
    """The transaction that processed the next record after `offset`."""
    later = [other for other in processed if other > offset]
    return processed[min(later)] if later else []
