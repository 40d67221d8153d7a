"""Hosts aggregates: takes commands from their topic, has them decided, answers each once.

A host is a member of a consumer group over `<app>.commands`. The commands of a partition are
decided in order by the writer of the same partition of `<app>.events`; events, answers
(`<app>.replies`), dead letters and the group's position are one Kafka transaction. So a host that
is killed has answered a command or not; whoever gets its partitions goes on from there. What is
no command is a dead letter, and never stops the host.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.base.log_clients import Client, Topics, client_config, error_from
from millstream.base.near_names import did_you_mean, there_are
from millstream.eventsourcing.command_topic import Names, SentCommand, decode_command
from millstream.eventsourcing.decision_queue import Along, StoreClosed
from millstream.eventsourcing.event_log import some_messages
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.event_types import EventTypes
from millstream.eventsourcing.own_thread import OwnThread
from millstream.eventsourcing.partition_turn import (
    PASSING,
    Answering,
    GroupPosition,
    PartitionTurn,
)
from millstream.eventsourcing.sealed_commands import SealedBeforeErasure
from millstream.eventsourcing.stored_event import Receipt

logger = logging.getLogger(__name__)

# A host that was killed is missed after this. Kafka allows no less than 6 s unless told to.
SESSION_MS = 6_000
HEARTBEAT_MS = 1_500
POLL_SECONDS = 0.1
COMMANDS_AT_ONCE = 500
# Commands of a host that wait for their transaction.
IN_FLIGHT_MAX = 4_000
# Who gives a partition away finishes what it has begun, but not for ever.
HANDOVER_SECONDS = 5.0

COMMANDS_CONFIG = {"retention.ms": f"{7 * 86_400_000}"}
REPLIES_CONFIG = {"retention.ms": f"{86_400_000}"}
DEAD_CONFIG = {"retention.ms": "-1"}

# A command of a reaction, made anew of its event; None if it is of none that is known here.
AskAgain = Callable[[SentCommand], SentCommand | None]


class Hosted(Protocol):
    """All aggregates of one kind."""

    @property
    def types(self) -> EventTypes: ...

    def submit_sent(self, sent: SentCommand, along: Along) -> "Future[Receipt]":
        """Raises Rejected if there is no such command, or its arguments do not fit."""


class UnknownAggregate(Rejected):
    def __init__(self, *, aggregate: str, known: Mapping[str, object]) -> None:
        hint = did_you_mean(aggregate, known, otherwise="Does its host run an older version?")
        super().__init__(
            f"no aggregate {aggregate!r} is hosted here (there are: {there_are(known)}). {hint}"
        )
        self.aggregate = aggregate


class Misplaced(Rejected):
    def __init__(self, *, stream: str, partition: int, right: int) -> None:
        super().__init__(
            f"the command for {stream} is in partition {partition}, and its events are in {right}: "
            "give the record the stream's name as its key, and Kafka's own partitioner"
        )
        self.stream, self.partition, self.right = stream, partition, right


class PartitionsDiffer(Rejected):
    def __init__(self, *, topic: str, found: int, events: str, wanted: int) -> None:
        super().__init__(
            f"topic {topic} has {found} partitions, and {events} has {wanted}: commands must be "
            "where their events are. Make it anew, with as many"
        )
        self.topic, self.found, self.events, self.wanted = topic, found, events, wanted


def make_topics(client: Client, names: Names, store: EventStore) -> int:
    """Those that are not there yet; how many partitions the replies have."""
    topics, wanted = Topics(client), store.partitions
    found = topics.ensure(names.commands, partitions=wanted, config=COMMANDS_CONFIG)
    if found != wanted:
        raise PartitionsDiffer(topic=names.commands, found=found, events=store.topic, wanted=wanted)
    topics.ensure(names.dead, partitions=1, config=DEAD_CONFIG, is_needed=False)
    return topics.ensure(names.replies, partitions=wanted, config=REPLIES_CONFIG)


class CommandHost(OwnThread):
    """`start` it, `stop` it. Its thread ends for an error that will not pass: `wait` raises it."""

    def __init__(
        self,
        client: Client,
        names: Names,
        store: EventStore,
        aggregates: Mapping[str, Hosted],
        *,
        ask_again: AskAgain | None = None,
        session_ms: int = SESSION_MS,
    ) -> None:
        """`ask_again`: for what an erasure has closed while it waited."""
        self._client, self._names, self._store = client, names, store
        self._aggregates, self._ask_again = aggregates, ask_again
        self._session_ms = session_ms
        self._turns: dict[int, PartitionTurn] = {}
        super().__init__()
        self._consumer: Any = None
        self._group: Any = None
        self._replies = 0

    def start(self) -> None:
        self._replies = make_topics(self._client, self._names, self._store)
        self._group = GroupPosition(self._client, self._names.commands, self._names.commands)
        self._consumer = Consumer(
            client_config(self._client)
            | {
                "group.id": self._names.commands,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": self._session_ms,
                "heartbeat.interval.ms": min(HEARTBEAT_MS, self._session_ms // 4),
                "fetch.wait.max.ms": 500,
            }
        )
        self._consumer.subscribe(
            [self._names.commands],
            on_assign=self._take,
            on_revoke=self._hand_over,
            on_lost=self._lose,
        )
        self._start("command host")

    @property
    def partitions(self) -> list[int]:
        """Those that it has now."""
        return sorted(self._turns)

    # --- of its own thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        finally:
            for turn in self._turns.values():
                turn.finish(HANDOVER_SECONDS)
            self._consumer.close()
            self._group.close()

    def _turn(self) -> None:
        self._group.member = self._consumer.consumer_group_metadata()
        for number, turn in list(self._turns.items()):
            if turn.must_restart():
                self._restart(number, turn)
        if sum(turn.in_flight for turn in self._turns.values()) >= IN_FLIGHT_MAX:
            self._hold()
            return
        for message in some_messages(self._consumer, POLL_SECONDS, COMMANDS_AT_ONCE):
            self._heed(message)

    def _hold(self) -> None:
        """Its membership goes on, though it takes nothing but the first command of a partition
        that comes just now."""
        places = self._consumer.assignment()
        self._consumer.pause(places)
        message = self._consumer.poll(POLL_SECONDS)
        self._consumer.resume(places)
        if message is not None:
            self._heed(message)

    def _heed(self, message: Message) -> None:
        if (error := message.error()) is None:
            self._submit(message)
        else:
            self._check(error)

    def _check(self, error: KafkaError) -> None:
        found = error_from(error, self._client, doing=f"read {self._names.commands}")
        if not isinstance(found, Retryable):
            raise found

    # --- partitions come and go ---------------------------------------------------------------

    def _take(self, _consumer: Any, places: list[TopicPartition]) -> None:
        """From where the group is, which no open transaction can change any more."""
        for place in places:
            self._turns[place.partition] = PartitionTurn(
                self._names, place.partition, self._group, replies=self._replies
            )
        self._consumer.incremental_assign(places)

    def _hand_over(self, _consumer: Any, places: list[TopicPartition]) -> None:
        for place in places:
            turn = self._turns.pop(place.partition, None)
            if turn is not None:
                turn.finish(HANDOVER_SECONDS)
        self._consumer.incremental_unassign(places)

    def _lose(self, _consumer: Any, places: list[TopicPartition]) -> None:
        """Others have them already."""
        for place in places:
            turn = self._turns.pop(place.partition, None)
            if turn is not None:
                turn.lose()
        self._consumer.incremental_unassign(places)

    def _restart(self, number: int, turn: PartitionTurn) -> None:
        """Something of it was not decided, and nothing behind it may be: once more from there."""
        try:
            position = self._group.committed(number)
            self._consumer.seek(TopicPartition(self._names.commands, number, position))
        except KafkaException as error:  # then it is tried again
            self._check(error.args[0])
        except Retryable as error:
            logger.warning("%s", error)
        else:
            turn.restart()

    # --- commands -----------------------------------------------------------------------------

    def _submit(self, message: Message) -> None:
        turn = self._turns.get(message.partition() or 0)
        if turn is None or not turn.is_taking:
            return
        along = turn.answering(message)
        try:
            along.sent = decode_command(message.value())
            turn.require_taken(along.offset)
            hosted = self._understood(along.sent, turn)
            along.is_personal = hosted.types.has_personal
            future = self._asked(hosted, along.sent, along)
        except PASSING as error:
            turn.put_off(along, error)
            return
        except (StoreClosed, Corrupt):  # of ours, not of this record
            raise
        except Exception as error:  # whatever a record brings about, the host goes on
            along.malformed = error
            future = self._store.refuse(turn.partition, error, along)
        turn.submitted(along, future)

    def _asked(self, hosted: Hosted, sent: SentCommand, along: Answering) -> "Future[Receipt]":
        try:
            return hosted.submit_sent(sent, along)
        except SealedBeforeErasure:
            again = None if self._ask_again is None else self._ask_again(sent)
            if again is None:
                raise
            return hosted.submit_sent(again, along)

    def _understood(self, sent: SentCommand, turn: PartitionTurn) -> Hosted:
        """Who decides it. Raises why nobody can."""
        hosted = self._aggregates.get(sent.aggregate)
        if hosted is None:
            raise UnknownAggregate(aggregate=sent.aggregate, known=self._aggregates)
        right = self._store.partition_of(sent.stream)
        if right != turn.partition:
            raise Misplaced(stream=sent.stream, partition=turn.partition, right=right)
        return hosted
