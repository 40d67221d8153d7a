"""Writes a view's rows and notes in one Kafka transaction: all of it, or nothing.

One transactional id for a view: who takes it over fences every other process, and finds nothing in
doubt. Within a process all writers of a view share one ledger, so that generations of one run can
be written side by side.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millstream.base.log_clients import PATIENCE_SECONDS, Client, Topics, client_config, unhidden
from millstream.views.stores.topic.clients import ProducerFenced, error_from, translated
from millstream.views.stores.topic.notes import Change, Ends, Rows, TopicNotes
from millstream.views.stores.topic.tail import TopicTail

# A large batch takes long to send. Brokers allow 15 minutes.
TRANSACTION_TIMEOUT_MS = 600_000
COMMIT_ATTEMPTS_MAX = 5
# Another process may look at the view, and take it over for that, while this one writes.
TAKEOVERS_MAX = 5
NOTES_PARTITION = 0
# Topics with such names are ours: of notes, and of generations that are not served.
RESERVED = ("_views.", "_views-")
# Who reads a batch finds every row of it for this long, though it is replaced meanwhile.
REPLACED_ROWS_STAY_MS = 600_000
COMPACTED = {"cleanup.policy": "compact", "min.compaction.lag.ms": str(REPLACED_ROWS_STAY_MS)}
NOTES_CONFIG = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20)}

Delivered = Mapping[str, Ends]
Note = tuple[bytes, bytes | None]
T = TypeVar("T")

_shared: dict[tuple[str, str], "TopicLedger"] = {}
_shared_lock = threading.Lock()


def notes_topic(topic: str) -> str:
    return f"_views.{topic}"


def parked_topic(topic: str, generation: int) -> str:
    """Where the rows of a generation are while it is not served. No other topic has such a name:
    what is left of one that was dropped can be removed."""
    return f"_views-g{generation}.{topic}"


def notes_ends(topics: Topics, topic: str) -> Ends:
    """Where the notes end now. The last offset is a transaction's marker, which nobody reads."""
    ends = topics.committed_ends(notes_topic(topic), [NOTES_PARTITION])
    return {number: max(0, end - 1) for number, end in ends.items()}


class TopicLedger:
    """Of the view in `topic`. What is done with it is done inside `settled`."""

    def __init__(self, client: Client, topic: str) -> None:
        self.client, self.topic = client, topic
        self.topics = Topics(client)
        self.notes = TopicNotes()
        self.users = 0
        self._lock = threading.RLock()
        self._tail: TopicTail | None = None
        self._producer: Any = None

    @property
    def name(self) -> str:
        return notes_topic(self.topic)

    def rows_topic(self, generation: int) -> str:
        return self.topic if generation == self.notes.book.served else self.parked(generation)

    def parked(self, generation: int) -> str:
        return parked_topic(self.topic, generation)

    def settled(self, check: Callable[[TopicNotes], object], act: Callable[[], T]) -> T:
        """Act as the only writer of the view; `check` raises if that must not be."""
        with self._lock:
            for _ in range(TAKEOVERS_MAX):
                try:
                    self._become_writer(check)
                    return act()
                except ProducerFenced as error:
                    fenced = error
            raise fenced

    def take_over(self) -> None:
        """Make the next `settled` fence others, though nobody has fenced this one."""
        with self._lock:
            self._producer = None

    def commit(self, changes: Iterable[Change], notes: Callable[[Delivered], list[Note]]) -> None:
        """`notes` are made when rows are sent, and it is known where they are."""
        producer, self._producer = self._producer, None  # until it is known to be of use
        with self._translated("write"):
            transaction = Transaction(producer, self._error)
            transaction.begin()
            try:
                transaction.send(changes)
                delivered = transaction.delivered()
                made = notes(delivered)
                transaction.send((self.name, key, value) for key, value in made)
                end = transaction.delivered()[self.name]
                transaction.commit()
            except BaseException:
                transaction.abort()
                raise
        self._read_notes(end)
        self._producer = producer

    def rows(self, generation: int) -> Rows:
        """Of a generation, as of its last batch."""
        return self.rows_in(self.rows_topic(generation), self.notes.kept[generation].ends)

    def rows_in(self, topic: str, ends: Ends) -> Rows:
        found: dict[bytes, bytes] = {}
        tail = TopicTail(self.client, topic)
        try:
            for message in tail.read_to(ends):
                fold(found, message)
        finally:
            tail.close()
        return found

    def ends_of(self, topic: str) -> Ends:
        """Where a topic ends now."""
        return self.topics.committed_ends(topic, range(self.topics.partitions()[topic]))

    def close(self) -> None:
        with self._lock:
            self._producer = None
            self._forget_notes()

    def _become_writer(self, check: Callable[[TopicNotes], object]) -> None:
        if self._producer is None:
            self._look()
            check(self.notes)  # before others are fenced for nothing
            holds = f"what is noted of the view in {self.topic}"
            self.topics.ensure(self.name, partitions=1, config=NOTES_CONFIG, holds=holds)
            self._producer = self._opened()
            self._look()
        check(self.notes)

    def _look(self) -> None:
        """Read the notes as they are now."""
        if self.name not in self.topics.partitions():
            self._forget_notes()
            return
        self._read_notes(notes_ends(self.topics, self.topic))

    def _forget_notes(self) -> None:
        self.notes = TopicNotes()
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _read_notes(self, ends: Ends) -> None:
        """Waits until these records can be read: a commit is answered before they can be."""
        if self._tail is None:
            self._tail = TopicTail(self.client, self.name)
        for message in self._tail.read_to(ends):
            self.notes.apply(message.key() or b"", message.value())

    def _opened(self) -> Any:
        producer = Producer(
            client_config(self.client)
            | {
                "transactional.id": self.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
                "compression.type": "lz4",
                "message.max.bytes": 1_000_000_000,  # the broker has its own limit
            }
        )
        with self._translated("open a transaction"):
            # A producer that is not connected yet looks for its coordinator again in 500 ms.
            producer.list_topics(timeout=PATIENCE_SECONDS)
            producer.init_transactions(PATIENCE_SECONDS)
        return producer

    def _translated(self, doing: str) -> Any:
        return translated(self.client, doing=f"{doing} ({self.name})")

    def _error(self, error: KafkaError) -> Exception:
        return error_from(error, self.client, doing=f"write ({self.name})")


class Transaction:
    """One transaction of a producer that is open for them."""

    def __init__(self, producer: Any, error_from: Callable[[KafkaError], Exception]) -> None:
        self._producer, self._error_from = producer, error_from
        self._failed: list[KafkaError] = []
        self._ends: dict[str, dict[int, int]] = {}

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, changes: Iterable[Change]) -> None:
        for topic, key, value in changes:
            while not self._is_queued(topic, key, value):
                with unhidden():
                    self._producer.poll(0.1)

    def delivered(self) -> Delivered:
        """Where records of this transaction end, once all that was sent is there."""
        with unhidden():
            left = self._producer.flush(PATIENCE_SECONDS)
        if left:
            raise self._error_from(KafkaError(KafkaError._TIMED_OUT))
        self._require_no_failure()
        return {topic: dict(ends) for topic, ends in self._ends.items()}

    def commit(self) -> None:
        for attempt in range(COMMIT_ATTEMPTS_MAX):
            try:
                self._producer.commit_transaction(PATIENCE_SECONDS)
                return
            except KafkaException as error:
                # A commit that was not answered is asked again: it is the same commit.
                if not error.args[0].retriable() or attempt == COMMIT_ATTEMPTS_MAX - 1:
                    raise

    def abort(self) -> None:
        """Best effort: what stays open is ended by who takes over, or by the broker in time."""
        try:
            with unhidden():
                self._producer.abort_transaction(PATIENCE_SECONDS)
        except KafkaException:
            self._producer.purge()

    def _is_queued(self, topic: str, key: bytes, value: bytes | None) -> bool:
        self._require_no_failure()
        try:
            self._producer.produce(topic, key=key, value=value, on_delivery=self._on_delivery)
        except BufferError:
            return False
        return True

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
            return
        ends = self._ends.setdefault(str(message.topic()), {})
        ends[int(message.partition() or 0)] = int(message.offset() or 0) + 1

    def _require_no_failure(self) -> None:
        if self._failed:
            raise self._error_from(self._failed[0])


def fold(rows: dict[bytes, bytes], message: Message) -> None:
    """Take a record of a topic of rows in."""
    key, value = message.key() or b"", message.value()
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


def shared_ledger(client: Client, topic: str) -> TopicLedger:
    """The one of this process; give it back with `release`."""
    with _shared_lock:
        place = (str(client["bootstrap.servers"]), topic)
        ledger = _shared.setdefault(place, TopicLedger(client, topic))
        ledger.users += 1
        return ledger


def release(ledger: TopicLedger) -> None:
    with _shared_lock:
        ledger.users -= 1
        if ledger.users == 0:
            del _shared[(str(ledger.client["bootstrap.servers"]), ledger.topic)]
            ledger.close()


@contextmanager
def lent_ledger(client: Client, topic: str) -> Iterator[TopicLedger]:
    ledger = shared_ledger(client, topic)
    try:
        yield ledger
    finally:
        release(ledger)
