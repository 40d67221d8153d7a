"""Single records: none lost, none twice, none from nowhere, each at one offset. Pure."""

from collections import defaultdict
from collections.abc import Iterator

from tests.faults.consistency.anomaly import Anomaly, Finding
from tests.faults.consistency.facts import Facts, Fate
from tests.faults.consistency.history import Isolation, Kind, Operation, Partition, Send


def lost_writes(facts: Facts) -> Iterator[Finding]:
    """What was promised, or read once, is there when all is over."""
    for operation in facts.history:
        if operation.kind is Kind.SEND:
            yield from _lost_sends(facts, operation)
        elif operation.kind is Kind.TRANSACTION and facts.is_committed(operation):
            yield from _lost_of_transaction(facts, operation)
    yield from _vanished(facts)


def _lost_sends(facts: Facts, operation: Operation) -> Iterator[Finding]:
    found = facts.final_values[Isolation.COMMITTED]
    for send in operation.sends:
        if send.offset is not None and send.value not in found:
            sentence = f"{_of(send)} was acknowledged at offset {send.offset} and cannot be read"
            yield Finding(Anomaly.LOST_WRITE, sentence, [operation])


def _lost_of_transaction(facts: Facts, transaction: Operation) -> Iterator[Finding]:
    """All of a transaction or nothing: also of one whose client never heard the answer."""
    found = facts.final_values[Isolation.COMMITTED]
    missing = [send for send in transaction.sends if send.value not in found]
    if missing:
        is_known = facts.fate(transaction) is Fate.COMMITTED
        why = "its commit was confirmed" if is_known else "others of its records can be read"
        sentence = (
            f"{len(missing)} of {len(transaction.sends)} records of a transaction cannot be read, "
            f"though {why}; the first is {_of(missing[0])}"
        )
        yield Finding(Anomaly.LOST_WRITE, sentence, [transaction])


def _vanished(facts: Facts) -> Iterator[Finding]:
    reported = set()
    for operation, read in facts.reads():
        isolation = operation.isolation
        if isolation is None or read.value in facts.final_values[isolation]:
            continue
        if (isolation, read.value) not in reported:
            reported.add((isolation, read.value))
            sentence = (
                f"{read.value} was read at {read.partition} offset {read.offset} ({isolation}) and "
                "is not there any more"
            )
            yield Finding(Anomaly.LOST_WRITE, sentence, [operation])


def duplicates(facts: Facts) -> Iterator[Finding]:
    for value, places in facts.offsets_read.items():
        if len(places) > 1:
            sentence = f"{value} was read at offsets {sorted(places)}"
            yield Finding(Anomaly.DUPLICATE, sentence, [seen.operation for seen in places.values()])


def unsent_values(facts: Facts) -> Iterator[Finding]:
    for value, places in facts.offsets_read.items():
        if value not in facts.sent:
            operation, read = next(iter(places.values()))
            sentence = f"{value} was read at {read.partition} offset {read.offset}"
            yield Finding(Anomaly.UNSENT_VALUE, sentence, [operation])


def inconsistent_offsets(facts: Facts) -> Iterator[Finding]:
    """One offset holds one value for all who read it, and it is the one acknowledged there."""
    yield from _two_values_at_one_offset(facts)
    for value, sent in facts.sent.items():
        offset, places = sent.send.offset, facts.offsets_read.get(value)
        if offset is not None and places and offset not in places:
            where = sorted(places)
            sentence = f"{_of(sent.send)} was acknowledged at offset {offset} and read at {where}"
            witness = next(iter(places.values())).operation
            yield Finding(Anomaly.INCONSISTENT_OFFSET, sentence, [sent.operation, witness])


def _two_values_at_one_offset(facts: Facts) -> Iterator[Finding]:
    values: dict[tuple[Partition, int], dict[str, Operation]] = defaultdict(dict)
    for operation, read in facts.reads():
        values[read.partition, read.offset].setdefault(read.value, operation)
    for operation, send in facts.sent.values():
        if send.offset is not None:
            values[send.partition, send.offset].setdefault(send.value, operation)
    for (partition, offset), found in values.items():
        if len(found) > 1:
            sentence = f"{partition} offset {offset} holds {' and '.join(found)}"
            yield Finding(Anomaly.INCONSISTENT_OFFSET, sentence, list(found.values()))


def _of(send: Send) -> str:
    return f"{send.value} of {send.partition}"
