"""One partition of the command topic while this host has it: what is under way, how far it is.

Commands are decided in order: when one was not (nobody answered the writer, another took the
partition), none behind it is, and the host reads on from what is committed. Answers go with the
decisions into the writer's transaction (`Along`).
"""

import logging
import threading
import time
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from millstream.base.dead_letter_headers import (
    GROUP_HEADER,
    MESSAGE_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    TOPIC_HEADER,
)
from millstream.base.errors import Rejected, Retryable
from millstream.base.log_clients import Client, LogNotReached, LogRefused, client_config, translated
from millstream.eventsourcing.command_topic import (
    Answer,
    BadCommandRecord,
    Names,
    SentCommand,
    encode_answer,
    reason_of,
    refusal_of,
)
from millstream.eventsourcing.key_topic import KeysContended
from millstream.eventsourcing.partition_writer import PartitionContended, TakenOver
from millstream.eventsourcing.stored_event import Receipt
from millstream.eventsourcing.transaction import ANY_PARTITION, FencedProducer

logger = logging.getLogger(__name__)

COMMITTED_SECONDS = 10.0
CAREFUL_SECONDS = 120.0
PAUSE_SECONDS_FIRST, PAUSE_SECONDS_MAX = 0.05, 5.0
# With its headers a letter fits where its record did.
LETTER_BYTES_MAX = 1_000_000
LETTER_REASON_MAX = 2_000
# What keeps us from deciding, and passes. Any other error is the command's own, whatever its kind.
PASSING = (LogNotReached, KeysContended, PartitionContended, TakenOver)


class GroupPosition:
    """How far the group is, and as whom its host is a member. Thread-safe.

    With a client of its own: a call of another thread waits for as long as a consumer is read.
    """

    def __init__(self, client: Client, topic: str, group: str) -> None:
        self._client, self._topic = client, topic
        config = {"group.id": group, "isolation.level": "read_committed"}
        self._consumer: Any = Consumer(client_config(client) | config)
        self._lock = threading.Lock()
        self.member: Any = None  # set by the host, as of its last look

    def committed(self, partition: int) -> int:
        """Where the group reads on, when no transaction is open."""
        with (
            self._lock,
            translated(self._client, doing=f"read the position in {self._topic}[{partition}]"),
        ):
            place = TopicPartition(self._topic, partition)
            (found,) = self._consumer.committed([place], COMMITTED_SECONDS)
        return found.offset if found.offset >= 0 else OFFSET_BEGINNING

    def close(self) -> None:
        with self._lock:
            self._consumer.close()


class PartitionTurn:
    """Used by the host's thread and by the writer's."""

    def __init__(self, names: Names, partition: int, group: GroupPosition, *, replies: int) -> None:
        self.names, self.partition, self.replies = names, partition, replies
        self._group = group
        self._lock = threading.Lock()
        self._futures: set[Future[Receipt]] = set()
        self._failure: BaseException | None = None
        self._is_lost = False
        self._failures, self._not_before = 0, 0.0
        self._careful_upto = -1  # up to here one by one: one of them is refused by the broker
        self._refused: dict[int, Rejected] = {}
        self._committed: tuple[int, int] = (-1, -1)  # term, offset

    @property
    def in_flight(self) -> int:
        return len(self._futures)

    # --- of the host's thread -----------------------------------------------------------------

    def answering(self, message: Message) -> "Answering":
        return Answering(self, message)

    @property
    def is_taking(self) -> bool:
        return self._failure is None and not self._is_lost

    def require_taken(self, offset: int) -> None:
        """Raises why the broker does not take what a command came to, if that is known."""
        if (error := self._refused.pop(offset, None)) is not None:
            raise error

    def submitted(self, along: "Answering", future: "Future[Receipt]") -> None:
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(lambda done: self._done(along, done))
        if along.offset <= self._careful_upto:
            wait([future], CAREFUL_SECONDS)

    def put_off(self, along: "Answering", error: BaseException) -> None:
        """It cannot be decided now, nor what is behind it."""
        self._fail(along.offset, error)

    def must_restart(self) -> bool:
        """When all that was under way has ended, and a pause is over."""
        is_due = self._failure is not None and not self._futures and not self._is_lost
        return is_due and time.monotonic() >= self._not_before

    def restart(self) -> None:
        self._failure = None

    def finish(self, seconds: float) -> None:
        """Let what is under way come to its end, then let go."""
        with self._lock:
            left = list(self._futures)
        wait(left, seconds)
        self.lose()

    def lose(self) -> None:
        self._is_lost = True

    def _done(self, along: "Answering", future: "Future[Receipt]") -> None:
        """In the writer's thread, before it decides anything else."""
        error = future.exception()
        if error is not None and error is not along.outcome:
            self._fail(along.offset, error)
        elif error is None or along.outcome is not None:
            self._failures = 0
        with self._lock:
            self._futures.discard(future)

    def _fail(self, offset: int, error: BaseException) -> None:
        if isinstance(error, LogRefused):
            if offset <= self._careful_upto:
                self._refused[offset] = error
            self._careful_upto = max(self._careful_upto, offset)
        if self._failure is None:
            self._failures += 1
            pause = min(PAUSE_SECONDS_MAX, PAUSE_SECONDS_FIRST * 2**self._failures)
            self._not_before = time.monotonic() + pause
            if not isinstance(error, TakenOver) and not self._is_lost:
                place = f"{self.names.commands}[{self.partition}]"
                logger.warning("%s, offset %d is tried again: %s", place, offset, error)
        self._failure = error

    # --- of the writer's thread ---------------------------------------------------------------

    def is_over(self, offset: int, term: int) -> bool:
        if not self.is_taking:
            return True
        if self._committed[0] != term:
            self._committed = term, self._group.committed(self.partition)
        return self._committed[1] > offset

    def move(self, producer: FencedProducer, offset: int) -> None:
        place = TopicPartition(self.names.commands, self.partition, offset)
        producer.move([place], self._group.member)


class Answering:
    """A command and its answer. `sent` is what could be read of it."""

    def __init__(self, turn: PartitionTurn, message: Message) -> None:
        self._turn, self._message = turn, message
        self.offset: int = message.offset() or 0
        self.sent: SentCommand | None = None
        self.is_personal = False
        self.malformed: Exception | None = None
        self.outcome: BaseException | None = None

    def is_over(self, term: int) -> bool:
        return self._turn.is_over(self.offset, term)

    def write(self, producer: FencedProducer, outcome: Receipt | BaseException) -> None:
        if isinstance(outcome, PASSING):
            raise outcome  # nothing is wrong with the command
        names, id, reply = self._turn.names, *self._whom()
        if isinstance(outcome, Receipt):
            answer = Answer(command=id or "", receipt=outcome)
        else:
            self.outcome = outcome
            error = refusal_of(
                outcome,
                is_malformed=self.malformed is not None,
                is_personal=self.is_personal,
            )
            answer = Answer(command=id or "", error=error)
            if not isinstance(outcome, Rejected | Retryable):
                logger.error("a command of %s failed: %r", self._stream(), outcome)
            if self.malformed is not None or reply is None:
                self._bury(producer, outcome)
        if id is not None:
            partition = ANY_PARTITION if reply is None else reply % self._turn.replies
            producer.put(names.replies, id.encode(), encode_answer(answer), partition)

    def end(self, producer: FencedProducer) -> None:
        self._turn.move(producer, self.offset + 1)

    def _whom(self) -> tuple[str | None, int | None]:
        if self.sent is not None:
            return self.sent.id, self.sent.reply
        if isinstance(self.malformed, BadCommandRecord):
            return self.malformed.id, self.malformed.reply
        return None, None

    def _stream(self) -> str:
        return "?" if self.sent is None else self.sent.stream

    def _bury(self, producer: FencedProducer, error: BaseException) -> None:
        """With where it was and why; what nobody waits for must not be lost either."""
        message, names = self._message, self._turn.names
        key, value = message.key(), message.value()
        said = reason_of(error, is_personal=self.is_personal)
        reason = f"{type(error).__name__}: {said}"[:LETTER_REASON_MAX]
        headers = [
            (TOPIC_HEADER, names.commands.encode()),
            (PARTITION_HEADER, str(self._turn.partition).encode()),
            (OFFSET_HEADER, str(self.offset).encode()),
            (GROUP_HEADER, names.commands.encode()),
            (MESSAGE_HEADER, reason.encode()),
        ]
        is_small = len(key or b"") + len(value or b"") <= LETTER_BYTES_MAX
        letter: tuple[Any, Any] = (key, value) if is_small else (None, None)
        producer.put(names.dead, *letter, headers=headers)
