"""The keys that a topic holds from before a load, and that nobody wrote since.

A compacted topic keeps a row until its tombstone comes. Rows that a reload does not find, and rows
that a TRUNCATE took, get no change of their own from the database: their keys are read back
here, from the topic itself, so that the load can delete them.

The keys may be more than fit into memory: they are in a temporary file, which is gone with its
process. Partitions that are added to the topic meanwhile are not looked through for keys that
moved to them: compaction does not, either.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    LogNotReached,
    client_config,
    error_from,
    offset_bounds,
    translated,
)
from millstream.capture.envelope import TRUNCATED_KEY

MESSAGES_MAX: Final = 5_000
POLL_SECONDS: Final = 0.2


class KeysOnDisk:
    """A set of keys, used by one thread at a time."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("CREATE TABLE keys (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def change(self, added: Iterable[bytes], removed: Iterable[bytes]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO keys VALUES (?)", ((key,) for key in added))
        self._db.executemany("DELETE FROM keys WHERE key = ?", ((key,) for key in removed))
        self._db.execute("COMMIT")

    def take(self, count: int) -> list[bytes]:
        found = self._db.execute("SELECT key FROM keys ORDER BY key LIMIT ?", (count,)).fetchall()
        keys = [bytes(key) for (key,) in found]
        self.change((), keys)
        return keys

    def discard(self, key: bytes) -> None:
        self._db.execute("DELETE FROM keys WHERE key = ?", (key,))

    def close(self) -> None:
        self._db.close()


class SweptTopics:
    """`flush` waits until all that the capture wrote is in the log."""

    def __init__(self, client: Client, *, flush: Callable[[], None]) -> None:
        self._client, self._flush = client, flush
        self._lookup: Any = None

    def ends(self, topic: str) -> tuple[int, ...]:
        """With what is not committed. A topic that is not there is empty."""
        self._flush()
        if self._lookup is None:
            self._lookup = _consumer(self._client, isolation="read_uncommitted")
        with translated(self._client, doing=f"ask where {topic} ends"):
            return tuple(
                offset_bounds(self._lookup, TopicPartition(topic, number), self._client).end
                for number in _partitions(self._lookup, topic)
            )

    def keys_left(self, topic: str, ends: Sequence[int]) -> KeysOnDisk:
        with contextlib.closing(_consumer(self._client, isolation="read_committed")) as consumer:
            return _Scan(self._client, consumer, topic, ends).read()

    def close(self) -> None:
        if self._lookup is not None:
            self._lookup.close()


def _consumer(client: Client, *, isolation: str) -> Any:
    return Consumer(
        client_config(client)
        | {
            "group.id": "millstream-captures",  # asked for by the client; nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 8 << 10,
        }
    )


def _partitions(consumer: Any, topic: str) -> list[int]:
    """Asks for all topics: to ask for one by its name may make it."""
    found = consumer.list_topics(timeout=PATIENCE_SECONDS).topics.get(topic)
    return sorted(found.partitions) if found is not None else []


class _Scan:
    """One topic from its start to where it ends now."""

    def __init__(self, client: Client, consumer: Any, topic: str, ends: Sequence[int]) -> None:
        self._client, self._consumer, self._topic = client, consumer, topic
        self._ends = dict(enumerate(ends))
        self._unread = {number for number, end in self._ends.items() if end > 0}
        self._left = KeysOnDisk()

    def read(self) -> KeysOnDisk:
        if self._unread:
            self._consumer.assign([TopicPartition(self._topic, one, 0) for one in self._unread])
        waited_since = time.monotonic()
        while self._unread:
            with translated(self._client, doing=f"read {self._topic}"):
                messages = self._consumer.consume(MESSAGES_MAX, POLL_SECONDS)
            if messages:
                waited_since = time.monotonic()
                self._take(messages)
            elif time.monotonic() - waited_since > PATIENCE_SECONDS:
                raise self._not_reached()
        return self._left

    def _take(self, messages: list[Any]) -> None:
        is_left: dict[bytes, bool] = {}
        for message in messages:
            error = message.error()
            if error is not None:
                self._judge(error, message)
                continue
            key = message.key()
            if key is not None and key != TRUNCATED_KEY:
                is_old = message.offset() < self._ends[message.partition()]
                is_left[key] = is_old and message.value() is not None
        added = [key for key, found in is_left.items() if found]
        self._left.change(added, [key for key, found in is_left.items() if not found])

    def _judge(self, error: KafkaError, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._unread.discard(message.partition())
        elif not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
            doing = f"read {self._topic}"
            raise error_from(error, self._client, doing=doing) from KafkaException(error)

    def _not_reached(self) -> LogNotReached:
        return LogNotReached(
            brokers=str(self._client["bootstrap.servers"]),
            doing=f"read {self._topic}",
            reason="its end was not reached in time",
        )
