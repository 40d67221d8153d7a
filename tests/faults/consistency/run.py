"""One run: topics, clients, faults; then, all healed, everything is read once more.

The last phase gives each transactional id to a new producer, so that no transaction is open, and
reads every partition from its start with both isolations.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.faults.consistency.broker_under_test import BrokerUnderTest
from tests.faults.consistency.client import MEMBERS, NEWER_MEMBERS, PROCESSORS
from tests.faults.consistency.clients import CAST, Clients
from tests.faults.consistency.history import (
    Ending,
    History,
    Isolation,
    Kind,
    Operation,
    Outcome,
    Read,
)
from tests.faults.consistency.nemesis import Nemesis, faults_of
from tests.faults.consistency.patience import PATIENT
from tests.faults.consistency.places import PARTITIONS, all_partitions, name_of, topic_partitions

FINAL_SECONDS_MAX = 20.0


@dataclass(frozen=True, slots=True)
class Run:
    history: History
    faults: Counter[str]
    fenced: int
    complaints: Sequence[str]  # of clients that ended with an error which no fault explains

    @property
    def deeds(self) -> Counter[str]:
        """How much was really done: a run that did nothing proves nothing."""
        done = self.faults + Counter(fenced=self.fenced)
        for operation in self.history:
            done.update(_deeds(operation))
        return done


def _deeds(operation: Operation) -> Iterator[str]:
    if operation.kind is Kind.SEND:
        yield from ("acknowledged" for send in operation.sends if send.offset is not None)
    elif operation.kind is Kind.TRANSACTION and operation.outcome is Outcome.OK:
        yield "processed" if operation.group else "committed"
    elif operation.kind is Kind.TRANSACTION and operation.ending is Ending.ABORT:
        yield "aborted"
    if operation.outcome is Outcome.INFO:
        yield "unknown"
    if not operation.is_final:
        yield from ("read" for _ in operation.polls)


def run(
    broker: BrokerUnderTest,
    directory: Path,
    *,
    seed: int,
    seconds: float,
    faults: Sequence[str] | None = None,
) -> Run:
    """Without `faults` all that the broker can bear."""
    directory.mkdir()
    create_topics(broker.bootstrap, broker.topic_config)
    clients = Clients(broker.bootstrap, directory, seed)
    nemesis = Nemesis(broker, clients, Random(seed), faults or faults_of(broker))
    try:
        for part in CAST:
            clients.start(part)
        clients.wait_until_at_work()
        nemesis.rage(seconds)
        clients.end()
    finally:
        clients.kill_all()
    history = [*clients.history(), *last_phase(broker.bootstrap)]
    return Run(history, nemesis.done, clients.fenced, tuple(clients.complaints()))


def create_topics(bootstrap: str, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic(name, count, 1, config=dict(config)) for name, count in PARTITIONS.items()]
    for created in admin.create_topics(topics).values():
        created.result(FINAL_SECONDS_MAX)


def last_phase(bootstrap: str) -> History:
    for part in CAST:
        if part.is_transactional:
            end_open_transaction(bootstrap, part.name)
    return [
        *(read_everything(bootstrap, isolation) for isolation in Isolation),
        *(group_positions(bootstrap, one) for one in (PROCESSORS, MEMBERS, NEWER_MEMBERS)),
    ]


def end_open_transaction(bootstrap: str, transactional_id: str) -> None:
    config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    Producer({**PATIENT, **config}).init_transactions(FINAL_SECONDS_MAX)


def read_everything(bootstrap: str, isolation: Isolation) -> Operation:
    """Every partition from its start to its end, and where that is."""
    started_ns = time.monotonic_ns()
    reads, ends = _read_to_the_end(bootstrap, isolation)
    return Operation(
        process=f"final {isolation}",
        number=1,
        kind=Kind.POLL,
        invoked_ns=started_ns,
        completed_ns=time.monotonic_ns(),
        outcome=Outcome.OK,
        polls=tuple(reads),
        isolation=isolation,
        positions=ends,
        is_final=True,
    )


def _read_to_the_end(bootstrap: str, isolation: Isolation) -> tuple[list[Read], dict[str, int]]:
    names = all_partitions(*PARTITIONS)
    reads: list[Read] = []
    ends: dict[str, int] = {}
    consumer = Consumer(
        {
            **PATIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "final",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign(topic_partitions(dict.fromkeys(names, 0)))
    deadline = time.monotonic() + FINAL_SECONDS_MAX
    while len(ends) < len(names):
        assert time.monotonic() < deadline, f"{isolation}: no end of {set(names) - ends.keys()}"
        for message in consumer.consume(1_000, timeout=0.2):
            name, offset, error = _place(message)
            if error is None:
                reads.append(Read(name, offset, (message.value() or b"").decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[name] = offset
            else:
                raise KafkaException(error)
    consumer.close()
    return reads, ends


def _place(message: Message) -> tuple[str, int, KafkaError | None]:
    offset = message.offset()
    return f"{message.topic()}/{message.partition()}", offset or 0, message.error()


def group_positions(bootstrap: str, group: str) -> Operation:
    """How far the group is, as its next member would be told."""
    config = {"bootstrap.servers": bootstrap, "group.id": group}
    consumer = Consumer({**PATIENT, **config, "isolation.level": Isolation.COMMITTED})
    places = topic_partitions(dict.fromkeys(all_partitions(*PARTITIONS), 0))
    try:
        committed = consumer.committed(places, FINAL_SECONDS_MAX)
    except KafkaException as error:  # while a transaction is open, there is no answer
        committed, outcome, note = [], Outcome.INFO, str(error)
    else:
        outcome, note = Outcome.OK, ""
    finally:
        consumer.close()
    return Operation(
        process="final",
        number=1,
        kind=Kind.GROUP_POSITIONS,
        outcome=outcome,
        note=note,
        group=group,
        positions={name_of(one): one.offset for one in committed if one.offset >= 0},
    )
