"""One client process of the workload: it works until it is told to stop, and writes down all of it.

    python -m tests.faults.consistency.client ROLE NAME --bootstrap ... --history FILE --seed N

    producer            idempotent; bursts of records to all partitions of `events`
    transactor          transactions that read all partitions and write to several; some are aborted
    newer transactor    transactions that write, by the newer flow (KIP-890)
    processor           member of a group; copies `events` to `copies`, offsets and copies in one
                        transaction; some are aborted
    reader              reads both topics, from assigned positions, now and then from others
    member              member of a group; reads both topics and commits how far it came
    newer member        the same by the newer protocol of groups (KIP-848)

A transactional process that is fenced ends. Another one with its name takes its place; values
carry the incarnation as well, so that each is written once in a whole run.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaException

from tests.faults.consistency.history import Ending, Isolation, Kind, Outcome, Read, Send
from tests.faults.consistency.history_file import HistoryFile
from tests.faults.consistency.newer_flow import NewerProducer, Refused
from tests.faults.consistency.patience import CALL_SECONDS_MAX, until_done
from tests.faults.consistency.places import (
    COPIES,
    EVENTS,
    PARTITIONS,
    all_partitions,
    first_positions,
    next_positions,
    topic_partitions,
)
from tests.faults.consistency.reading import CLASSIC, NEWER, Reading
from tests.faults.consistency.writing import ABORTED_SHARE, Fenced, Transactions, Writer

PROCESSORS, MEMBERS, NEWER_MEMBERS = "processors", "members", "newer members"
FENCED_EXIT_CODE = 3

REASSIGNED_SHARE = 0.02
TRANSACTION_TIMEOUT_MS = 20_000


class Stop:
    """Set by SIGTERM, or when the parent is gone."""

    def __init__(self) -> None:
        self._is_set = False
        self._parent = os.getppid()
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, *_: object) -> None:
        self._is_set = True

    def __bool__(self) -> bool:
        return self._is_set or os.getppid() != self._parent


# --- the roles --------------------------------------------------------------------------------


class Client:
    def __init__(self, options: argparse.Namespace) -> None:
        self.bootstrap: str = options.bootstrap
        self.name: str = options.name
        self.value_prefix = f"{options.name}.{options.incarnation}"
        self.isolation = Isolation(options.isolation)
        self.random = Random(options.seed)
        self.history = HistoryFile(options.history)
        self.stop = Stop()

    def rest(self) -> None:
        time.sleep(self.random.uniform(0, 0.04))

    def some_sends(self, writer: Writer, count_max: int) -> list[Send]:
        count = self.random.randint(1, count_max)
        return [
            writer.new_send(EVENTS, self.random.randrange(PARTITIONS[EVENTS])) for _ in range(count)
        ]


def produce(client: Client) -> None:
    writer = Writer(client.bootstrap, client.value_prefix)
    while not client.stop:
        sends = client.some_sends(writer, 8)
        number = client.history.invoke(Kind.SEND, sends=sends)
        writer.produce(sends)
        is_done = writer.flush()
        outcome = Outcome.OK if is_done else Outcome.INFO
        client.history.complete(number, outcome, sends=writer.acknowledged(sends))
        if not is_done:
            raise Fenced
        client.rest()


def transactional_writer(client: Client) -> Writer:
    """Whoever had this name before is fenced from here on."""
    writer = Writer(
        client.bootstrap,
        client.value_prefix,
        **{"transactional.id": client.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS},
    )
    try:
        until_done(lambda: writer.producer.init_transactions(CALL_SECONDS_MAX))
    except KafkaException as error:
        raise Fenced from error
    client.history.note(Kind.INIT)
    return writer


def transact(client: Client) -> None:
    reading = Reading(client.bootstrap, client.history, Isolation.COMMITTED, client.name)
    reading.assign(dict.fromkeys(all_partitions(EVENTS), 0))
    writer = transactional_writer(client)
    transactions = Transactions(writer, client.history, client.random)
    while not client.stop:
        polls: list[Read] = []
        transactions.begin()
        try:
            for _ in range(client.random.randint(1, 3)):
                polls += reading.take(client.random.randint(1, 60), 0.02)
                transactions.produce(client.some_sends(writer, 4), polls=polls)
                client.rest()
        except KafkaException as error:
            transactions.fail(error)
        else:
            transactions.end()
    reading.consumer.close()


def transact_newer(client: Client) -> None:
    producer = NewerProducer(client.bootstrap, client.name, timeout_ms=TRANSACTION_TIMEOUT_MS)
    client.history.note(Kind.INIT)
    values = (f"{client.value_prefix}/{number}" for number in count(1))
    while not client.stop:
        _transact_newer(client, producer, values)


def _transact_newer(client: Client, producer: NewerProducer, values: Iterator[str]) -> None:
    number = client.history.invoke(Kind.TRANSACTION)
    sends: list[Send] = []
    is_commit = client.random.random() >= ABORTED_SHARE
    try:
        for _ in range(client.random.randint(1, 3)):
            partition = client.random.choice(all_partitions(EVENTS))
            new = [Send(partition, next(values)) for _ in range(client.random.randint(1, 4))]
            client.history.progress(number, sends=sends + new)
            sends += producer.send(new)
            client.rest()
        client.history.ending(number, Ending.COMMIT if is_commit else Ending.ABORT)
        producer.end(is_commit=is_commit)
    except Refused as error:
        client.history.complete(number, Outcome.INFO, note=str(error))
        raise Fenced from error
    client.history.complete(number, Outcome.OK if is_commit else Outcome.FAIL, sends=sends)


def process(client: Client) -> None:
    reading = Reading(
        client.bootstrap, client.history, Isolation.COMMITTED, PROCESSORS,
        **CLASSIC, **{"auto.offset.reset": "earliest"},
    )  # fmt: skip
    reading.subscribe([EVENTS])
    try:
        writer = transactional_writer(client)
        transactions = Transactions(writer, client.history, client.random)
        while not client.stop:
            polls = reading.take(40, 0.2)
            if polls and not _process(client, reading, writer, transactions, polls):
                _go_back(reading, first_positions(polls))
    finally:
        reading.consumer.close()  # the others of the group need not wait for its session's end


def _go_back(reading: Reading, positions: Mapping[str, int]) -> None:
    """To where the group is: nothing of what was read counts."""
    until_done(lambda: reading.seek(reading.committed(positions)))


def _process(
    client: Client,
    reading: Reading,
    writer: Writer,
    transactions: Transactions,
    polls: Sequence[Read],
) -> bool:
    positions = next_positions(polls)
    copies = [writer.new_send(COPIES, len(read.value) % PARTITIONS[COPIES]) for read in polls]
    transactions.begin(group=PROCESSORS, polls=polls, positions=positions)
    try:
        transactions.produce(copies)
        client.rest()
        offsets, member = topic_partitions(positions), reading.consumer.consumer_group_metadata()
        until_done(
            lambda: writer.producer.send_offsets_to_transaction(offsets, member, CALL_SECONDS_MAX)
        )
        client.rest()
    except KafkaException as error:
        transactions.fail(error)
    return transactions.end()


def read(client: Client) -> None:
    reading = Reading(
        client.bootstrap, client.history, client.isolation, client.name,
        **{"auto.offset.reset": "error"},
    )  # fmt: skip
    everywhere = dict.fromkeys(all_partitions(EVENTS, COPIES), 0)
    positions = dict(everywhere)
    reading.assign(everywhere)
    while not client.stop:
        if client.random.random() < REASSIGNED_SHARE:
            positions = {name: client.random.randint(at // 2, at) for name, at in positions.items()}
            reading.assign(positions)
        positions.update(next_positions(_poll(client, reading)))
    reading.consumer.close()


def be_member(client: Client) -> None:
    _be_member(client, MEMBERS, CLASSIC)


def be_newer_member(client: Client) -> None:
    _be_member(client, NEWER_MEMBERS, NEWER)


def _be_member(client: Client, group: str, protocol: Mapping[str, Any]) -> None:
    reading = Reading(
        client.bootstrap, client.history, client.isolation, group,
        **protocol, **{"auto.offset.reset": "earliest"},
    )  # fmt: skip
    reading.subscribe([EVENTS, COPIES])
    while not client.stop:
        reads = _poll(client, reading)
        if reads:
            _commit_offsets(client, reading, group, next_positions(reads))
    reading.consumer.close()


def _poll(client: Client, reading: Reading) -> list[Read]:
    number = client.history.invoke(Kind.POLL, isolation=reading.isolation)
    reads = reading.take(500, 0.2)
    client.history.complete(number, Outcome.OK, polls=reads)
    return reads


def _commit_offsets(
    client: Client, reading: Reading, group: str, positions: Mapping[str, int]
) -> None:
    number = client.history.invoke(Kind.COMMIT_OFFSETS, group=group, positions=dict(positions))
    try:
        answers = reading.consumer.commit(offsets=topic_partitions(positions), asynchronous=False)
    except KafkaException as error:
        client.history.complete(number, Outcome.INFO, note=str(error))
        return
    is_ok = all(answer.error is None for answer in answers or ())
    client.history.complete(number, Outcome.OK if is_ok else Outcome.INFO)


ROLES: Mapping[str, Callable[[Client], None]] = {
    "producer": produce,
    "transactor": transact,
    "newer transactor": transact_newer,
    "processor": process,
    "reader": read,
    "member": be_member,
    "newer member": be_newer_member,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("name")
    parser.add_argument("--incarnation", type=int, required=True)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--isolation", default=Isolation.COMMITTED)
    options = parser.parse_args()
    try:
        ROLES[options.role](Client(options))
    except (Fenced, Refused, SystemError):  # the last from callbacks, after a fatal error
        return FENCED_EXIT_CODE
    return 0


if __name__ == "__main__":
    sys.exit(main())
