"""Runs one reaction over all events, none left out: what it asks for goes into the command topic.

Partitions are shared by the members of a consumer group. The position moves when commands are in
their topic: after a crash some come again, with the same ids, and change nothing. No transaction:
one that a killed process leaves open would hold up all who read commands. The position is kept in
`<app>.reactions` too, as a group that nobody used for a week forgets its own. A function that fails
is tried again; then its event is a dead letter, and the reaction goes on. A keyring that is not the
right one ends it: it would bury all.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from millstream.base.dead_letter_headers import (
    GROUP_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TOPIC_HEADER,
)
from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogRefused,
    Topics,
    client_config,
    error_from,
    translated,
)
from millstream.eventsourcing.command_topic import SentCommand, encode_command, reason_of
from millstream.eventsourcing.event_log import some_messages
from millstream.eventsourcing.key_book import BadKeyRecord
from millstream.eventsourcing.key_store import BadKeyFile
from millstream.eventsourcing.own_thread import OwnThread
from millstream.eventsourcing.placement import partition_of, stream_key
from millstream.eventsourcing.reaction import Reaction, cause_of, commands_of
from millstream.eventsourcing.reaction_positions import read_positions, write_position
from millstream.eventsourcing.stored_event import StoredEvent, decode_event
from millstream.eventsourcing.wrapping_keys import KeyringLost, WrongKeyring

logger = logging.getLogger(__name__)

SESSION_MS = 6_000
POLL_SECONDS = 0.2
EVENTS_AT_ONCE = 500
ATTEMPTS_MAX = 3
PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX = 0.1, 5.0
CLOSE_SECONDS = 5.0
LETTER_REASON_MAX = 2_000
PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 0,
    "message.timeout.ms": int(PATIENCE_SECONDS * 1_000),
    "message.max.bytes": 1_040_000,
}
COMPACTED = {"cleanup.policy": "compact"}
KEPT = {"retention.ms": "-1"}

# How a group says that it goes on without this member.
MEMBER_GONE = ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS")
# Not of one event: with such a keyring none can be read.
KEYRING_FAULTS = (BadKeyFile, BadKeyRecord, KeyringLost, WrongKeyring)
Decode = Callable[[StoredEvent], object]


class PartitionsMoved(Retryable):
    def __init__(self, *, reaction: str) -> None:
        super().__init__(f"reaction {reaction}: its partitions went to another member")
        self.reaction = reaction


class Record(NamedTuple):
    """A command as it is written."""

    value: bytes
    key: bytes
    partition: int


class ReactionTopics:
    """Where a reaction reads and writes."""

    def __init__(self, app: str, events: str, commands: str, partitions: int) -> None:
        self.app, self.events, self.commands, self.partitions = app, events, commands, partitions
        self.positions, self.dead = f"{app}.reactions", f"{app}.reactions.dead"

    def make(self, client: Client) -> None:
        topics = Topics(client)
        holds = "the positions of reactions"
        topics.ensure(self.positions, partitions=1, config=COMPACTED, holds=holds)
        topics.ensure(self.dead, partitions=1, config=KEPT, is_needed=False)


class ReactionRunner(OwnThread):
    """`start` it, `stop` it. `decode` makes an event of a record, or raises MillstreamError."""

    def __init__(
        self,
        client: Client,
        topics: ReactionTopics,
        reaction: Reaction,
        decode: Decode,
        *,
        session_ms: int = SESSION_MS,
    ) -> None:
        self._client, self._topics, self.reaction = client, topics, reaction
        self._decode, self._session_ms = decode, session_ms
        self._group = f"{topics.app}.reactions.{reaction.name}"
        super().__init__()
        self._failures = 0
        self._consumer: Any = None
        self._producer: Any = None
        self._lost: KafkaError | None = None

    def start(self) -> None:
        self._topics.make(self._client)
        self._start(f"reaction {self.reaction.name}")

    # --- of its own thread --------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._open()
                while not self._stopping.is_set():
                    self._turn()
            except Retryable as error:
                self._pause(error)
            finally:
                self._close()

    def _open(self) -> None:
        self._producer = Producer(client_config(self._client) | PRODUCER)
        self._consumer = Consumer(
            client_config(self._client)
            | {
                "group.id": self._group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": self._session_ms,
                "heartbeat.interval.ms": self._session_ms // 4,
            }
        )
        self._consumer.subscribe([self._topics.events], on_assign=self._assign)

    def _assign(self, consumer: Any, places: list[TopicPartition]) -> None:
        """From the later one of the two positions: the group's may be forgotten."""
        kept = read_positions(self._client, self._topics.positions, self.reaction.name)
        with self._translated("read its position"):
            found = consumer.committed(places, PATIENCE_SECONDS)
        for place in found:
            offset = max(place.offset, kept.get(place.partition, OFFSET_BEGINNING))
            place.offset = offset if offset >= 0 else OFFSET_BEGINNING
            places[[one.partition for one in places].index(place.partition)] = place
        consumer.assign(places)

    def _turn(self) -> None:
        messages = some_messages(self._consumer, POLL_SECONDS, EVENTS_AT_ONCE)
        for message in messages:
            if (error := message.error()) is not None:
                found = error_from(error, self._client, doing=self._doing("read"))
                if not isinstance(found, Retryable):
                    raise found
        events = [message for message in messages if message.error() is None]
        if events:
            self._react(events)

    def _react(self, messages: list[Message]) -> None:
        """First what is asked for, then how far it is."""
        for message in messages:
            found = self._asked(message)
            if isinstance(found, Exception):
                self._bury(message, found)
            else:
                self._put(found)
        self._flush()
        self._move({one.partition() or 0: (one.offset() or 0) + 1 for one in messages})
        self._failures = 0

    def _asked(self, message: Message) -> list[Record] | Exception:
        """What the reaction to an event is; or why there is none, after some attempts."""
        place = f"{self._topics.events}[{message.partition()}], offset {message.offset()}"
        attempt = 0
        while True:
            try:
                asked = self._reacted(decode_event(message.value() or b"", place=place))
                return [self._record(sent) for sent in asked]
            except Retryable:
                if self._stopping.is_set():
                    raise
            except KEYRING_FAULTS:
                raise
            except Exception as error:  # of the application's own
                attempt += 1
                if attempt >= ATTEMPTS_MAX or isinstance(error, Rejected):
                    logger.error("%s: no reaction %s: %r", place, self.reaction.name, error)
                    return error
            self._stopping.wait(PAUSE_SECONDS_FIRST)

    def _reacted(self, stored: StoredEvent) -> list[SentCommand]:
        if stored.type not in self.reaction.types:
            return []
        event = self._decode(stored)
        if not isinstance(event, self.reaction.kinds):  # of another aggregate, by the same name
            return []
        return commands_of(self.reaction, event, cause_of(stored))

    # --- what is written ----------------------------------------------------------------------

    def _record(self, sent: SentCommand) -> Record:
        partition = partition_of(sent.stream, self._topics.partitions)
        return Record(encode_command(sent), stream_key(sent.stream), partition)

    def _put(self, commands: Iterable[Record]) -> None:
        for record in commands:
            self._produce(self._topics.commands, *record)

    def _move(self, ends: Mapping[int, int]) -> None:
        for partition, offset in ends.items():
            key, value = write_position(self.reaction.name, partition, offset)
            self._produce(self._topics.positions, value, key, 0)
        self._flush()
        places = [TopicPartition(self._topics.events, p, offset) for p, offset in ends.items()]
        try:
            with self._translated("move on"):
                self._consumer.commit(offsets=places, asynchronous=False)
        except LogRefused as error:
            if not any(name in error.reason for name in MEMBER_GONE):
                raise
            raise PartitionsMoved(reaction=self.reaction.name) from None

    def _bury(self, message: Message, error: Exception) -> None:
        said = reason_of(error, is_personal=self.reaction.is_personal)
        reason = f"{type(error).__name__}: {said}"[:LETTER_REASON_MAX]
        headers = [
            (TOPIC_HEADER, self._topics.events.encode()),
            (PARTITION_HEADER, str(message.partition()).encode()),
            (OFFSET_HEADER, str(message.offset()).encode()),
            (GROUP_HEADER, self._group.encode()),
            (MESSAGE_HEADER, reason.encode()),
        ]
        self._produce(self._topics.dead, message.value(), message.key(), 0, headers=headers)

    def _produce(self, topic: str, value: Any, key: Any, partition: int, **more: Any) -> None:
        with self._translated(f"write to {topic}"):
            while True:
                try:
                    self._producer.produce(
                        topic, value, key, partition, on_delivery=self._note, **more
                    )
                    return
                except BufferError:
                    self._producer.poll(0.01)

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._lost = error

    def _flush(self) -> None:
        with self._translated("ask for commands"):
            self._producer.flush(PATIENCE_SECONDS)
        lost, self._lost = self._lost, None
        if lost is not None:
            raise error_from(lost, self._client, doing=self._doing("ask for commands"))

    # --- ends ---------------------------------------------------------------------------------

    def _pause(self, error: MillstreamError) -> None:
        self._failures += 1
        pause = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_FIRST * 2**self._failures)
        logger.warning("reaction %s goes on in %.1f s: %s", self.reaction.name, pause, error)
        self._stopping.wait(pause)

    def _close(self) -> None:
        """What is not told as written comes again."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaException):
                producer.purge()
                producer.flush(CLOSE_SECONDS)
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _doing(self, what: str) -> str:
        return f"{what} (reaction {self.reaction.name})"

    def _translated(self, what: str) -> Any:
        return translated(self._client, doing=self._doing(what))
