"""Sends commands over their topic, and hands each answer to who waits for it.

A sender reads one partition of `<app>.replies`, from where it ends when the sender opens, and asks
to be answered there. A command is sent once, however often the broker has to be asked; who does
not know what became of one sends it again with the same id.
"""

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millstream.base.errors import Rejected, Retryable
from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogNotReached,
    Topics,
    client_config,
    error_from,
    translated,
)
from millstream.eventsourcing.command_host import make_topics
from millstream.eventsourcing.command_topic import (
    Names,
    SentCommand,
    decode_answer,
    encode_command,
    told,
)
from millstream.eventsourcing.event_log import some_messages
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.placement import stream_key
from millstream.eventsourcing.staging import WrongVersion
from millstream.eventsourcing.stored_event import Receipt

logger = logging.getLogger(__name__)

# As long as a host that was killed is missed, and its partition opened by another, twice over.
ANSWER_SECONDS = 30.0
PENDING_MAX = 100_000
POLL_SECONDS = 0.2
CLOSE_SECONDS = 10.0
# Errors that are raised again as what they were: who called can act on them.
KNOWN: Mapping[str, type[Rejected]] = {"WrongVersion": WrongVersion}
PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 1,
    "partitioner": "murmur2_random",
    "message.timeout.ms": int(PATIENCE_SECONDS * 1_000),
    "message.max.bytes": 1_040_000,
}
CONSUMER = {
    "group.id": "millstream-replies",  # asked for by the client; nothing is committed
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
}


class NoAnswer(Retryable):
    def __init__(self, *, id: str, stream: str, command: str, seconds: float) -> None:
        super().__init__(
            f"{command} of {stream} was not answered within {seconds:g} s. It may still be: ask "
            f"again with id={id!r}. Is a host running (`millstream run`, or app.host())?"
        )
        self.id, self.stream, self.command, self.seconds = id, stream, command, seconds


class TooManyPending(Retryable):
    def __init__(self, *, limit: int) -> None:
        super().__init__(f"{limit:,} commands wait for an answer: wait for some of them first")
        self.limit = limit


class SenderClosed(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"the sender of commands to {topic} is closed")
        self.topic = topic


class Pending:
    """A command that was sent: `result()` waits for its receipt, and so does `await`."""

    def __init__(self, sent: SentCommand) -> None:
        self.id, self.stream, self.command = sent.id, sent.stream, sent.command
        self.is_given_up = False
        self._future: Future[Receipt] = Future()

    def __repr__(self) -> str:
        return f"<{self.command} of {self.stream}, id {self.id}>"

    @property
    def is_answered(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = ANSWER_SECONDS) -> Receipt:
        """Raises what the aggregate raised; NoAnswer if nobody answers in time."""
        self.is_given_up = False
        try:
            return self._future.result(timeout)
        except (FutureTimeout, CancelledError):
            raise self._unanswered(timeout or 0.0) from None

    def __await__(self) -> Generator[Any, None, Receipt]:
        return self._awaited().__await__()

    async def _awaited(self) -> Receipt:
        waiting = asyncio.shield(asyncio.wrap_future(self._future))
        try:
            return await asyncio.wait_for(waiting, ANSWER_SECONDS)
        except TimeoutError:
            raise self._unanswered(ANSWER_SECONDS) from None

    def _unanswered(self, seconds: float) -> NoAnswer:
        """It may be asked for once more, unless others need its room."""
        self.is_given_up = True
        return NoAnswer(id=self.id, stream=self.stream, command=self.command, seconds=seconds)

    def answer(self, receipt: Receipt) -> None:
        with contextlib.suppress(InvalidStateError):  # answered before: the first answer counts
            self._future.set_result(receipt)

    def fail(self, error: Exception) -> None:
        with contextlib.suppress(InvalidStateError):
            self._future.set_exception(error)


class CommandSender:
    """Thread-safe. Opens its connections with the first command."""

    def __init__(self, client: Client, names: Names, store: EventStore) -> None:
        self._client, self._names, self._store = client, names, store
        self._lock = threading.Lock()
        self._pending: dict[str, list[Pending]] = {}
        self._producer: Any = None
        self._reply = 0
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._is_read = False  # whether a thread reads answers

    def send(self, sent: SentCommand, *, is_answer_wanted: bool = True) -> Pending:
        """Raises if it cannot be a command at all."""
        self._open()
        reply = self._reply if is_answer_wanted else None
        sent = msgspec.structs.replace(sent, reply=reply)
        key, value = stream_key(sent.stream), encode_command(sent)
        pending = Pending(sent)
        if is_answer_wanted:
            self._expect(pending)
        try:
            self._produce(pending, key, value, self._store.partition_of(sent.stream))
        except BaseException:
            self._forget(pending)
            raise
        return pending

    def flush(self) -> None:
        """All that was sent is in the topic."""
        if self._producer is not None:
            with translated(self._client, doing=f"write to {self._names.commands}"):
                self._producer.flush(PATIENCE_SECONDS)

    def close(self) -> None:
        """Who still waits is told so."""
        self._closing.set()
        if self._producer is not None:
            with contextlib.suppress(KafkaException):
                self._producer.flush(CLOSE_SECONDS)
        for thread in self._threads:
            thread.join()
        with self._lock:
            left, self._pending = self._pending, {}
        for pending in (one for many in left.values() for one in many):
            pending.fail(SenderClosed(topic=self._names.commands))

    # --- sending ------------------------------------------------------------------------------

    def _open(self) -> None:
        with self._lock:
            if self._closing.is_set():
                raise SenderClosed(topic=self._names.commands)
            if self._producer is None:
                partitions = make_topics(self._client, self._names, self._store)
                self._reply = random.randrange(partitions)
                self._producer = Producer(client_config(self._client) | PRODUCER)
                self._start(self._serve_producer, "commands")
            if not self._is_read:
                self._start(self._follow, "answers", self._following())
                self._is_read = True

    def _start(self, run: Callable[..., None], name: str, *given: Any) -> None:
        thread = threading.Thread(target=run, args=given, name=name, daemon=True)
        thread.start()
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]

    def _expect(self, pending: Pending) -> None:
        with self._lock:
            if len(self._pending) >= PENDING_MAX:
                self._make_room()
            self._pending.setdefault(pending.id, []).append(pending)

    def _make_room(self) -> None:
        """Forget those whom nobody waits for any more. Raises TooManyPending."""
        for id, waiting in list(self._pending.items()):
            waiting[:] = [one for one in waiting if not one.is_given_up]
            if not waiting:
                del self._pending[id]
        if len(self._pending) >= PENDING_MAX:
            raise TooManyPending(limit=PENDING_MAX)

    def _produce(self, pending: Pending, key: bytes, value: bytes, partition: int) -> None:
        def told_of(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self._forget(pending)
                pending.fail(error_from(error, self._client, doing=self._doing(pending)))

        with translated(self._client, doing=self._doing(pending)):
            while True:
                try:
                    self._producer.produce(
                        self._names.commands, value, key, partition, on_delivery=told_of
                    )
                    return
                except BufferError:
                    time.sleep(0.01)

    def _doing(self, pending: Pending) -> str:
        return f"send {pending.command} of {pending.stream} (id {pending.id})"

    def _serve_producer(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(POLL_SECONDS)

    def _forget(self, pending: Pending) -> None:
        with self._lock:
            waiting = self._pending.get(pending.id, [])
            if pending in waiting:
                waiting.remove(pending)
            if not waiting:
                self._pending.pop(pending.id, None)

    # --- answers ------------------------------------------------------------------------------

    def _following(self) -> Any:
        """From the end on: what is answered later is answered behind it."""
        end = Topics(self._client).committed_ends(self._names.replies, [self._reply])[self._reply]
        consumer = Consumer(client_config(self._client) | CONSUMER)
        consumer.assign([TopicPartition(self._names.replies, self._reply, end)])
        return consumer

    def _follow(self, consumer: Any) -> None:
        try:
            while not self._closing.is_set():
                for message in some_messages(consumer, POLL_SECONDS):
                    self._take(message)
        except Exception as error:
            logger.error("answers to commands are not read before the next is sent: %r", error)
            self._fail_all(error)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        if (error := message.error()) is not None:
            found = error_from(error, self._client, doing=f"read {self._names.replies}")
            if not isinstance(found, LogNotReached):
                raise found
            return
        place = f"{self._names.replies}[{message.partition()}], offset {message.offset()}"
        with self._lock:
            waiting = self._pending.pop((message.key() or b"").decode(errors="replace"), [])
        for pending in waiting:
            self._answer(pending, message.value(), place)

    def _answer(self, pending: Pending, value: bytes | None, place: str) -> None:
        try:
            pending.answer(told(decode_answer(value, place=place), KNOWN))
        except Rejected as error:
            pending.fail(error)

    def _fail_all(self, error: Exception) -> None:
        with self._lock:
            self._is_read = False
            left, self._pending = self._pending, {}
        for pending in (one for many in left.values() for one in many):
            pending.fail(error)
