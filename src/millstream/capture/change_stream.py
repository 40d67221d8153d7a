"""Reads the changes of a captured table from its topic: each committed change once, per key in the
order of the database's commits.

    for change in ChangeStream(client, "shop.orders", since=token): ...

Joins no group and commits nothing: where a reader is, it knows itself, by the token of the last
change. Tombstones behind deletes are for compaction, and no changes of their own. Does not know
which topic a table has (`captures.py`).
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Self

from confluent_kafka import Consumer, Message, TopicPartition

from millstream.base.closing import Closing
from millstream.base.errors import Rejected, Retryable
from millstream.base.log_clients import (
    PATIENCE_SECONDS,
    Client,
    client_config,
    error_from,
    offset_bounds,
    translated,
)
from millstream.base.offsets import OffsetRange
from millstream.capture.recorded_change import (
    NOW,
    BadToken,
    NotAnEnvelope,
    RecordedChange,
    change_from,
    offsets_in,
    token_of,
)

CONSUME_RECORDS_MAX = 500
# So that Ctrl-C is heard, and a topic that is made in the meantime found.
WAIT_SECONDS = 0.25
ASYNC_PAUSE_SECONDS = 0.02
OFFSET_IS_GONE = ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")


class NothingCaptured(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(
            f"there is no topic {topic} yet: its capture makes it when it first runs. `millstream "
            "capture list` shows those that there are"
        )
        self.topic = topic


class ChangesGone(Rejected):
    def __init__(self, *, topic: str, token: str | None) -> None:
        super().__init__(
            f"{topic} no longer has what came after {token}, or was made anew: start without a "
            "token, from all rows that there are"
        )
        self.topic, self.token = topic, token


class ChangeStream(Closing):
    """Changes after `since`: a token, None for all that the topic has, "now" for none of them.

    It waits for more for ever; or, without `follow`, ends with what is there now; or ends when
    none came for `timeout_s`. Used by one thread at a time.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        since: str | None = None,
        follow: bool = True,
        timeout_s: float | None = None,
    ) -> None:
        self.topic, self._since, self._client = topic, since, client
        self._follow, self._timeout_s = follow, timeout_s
        self._offsets: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._found: deque[Message] = deque()
        self._is_open = self._has_looked = False
        if since is not None and since != NOW:
            offsets_in(since, topic)
        self._consumer = Consumer(_config(client))

    def __iter__(self) -> Iterator[RecordedChange]:
        return self

    def __next__(self) -> RecordedChange:
        patience_s = self._timeout_s
        until = None if patience_s is None else time.monotonic() + patience_s
        while True:
            left_s = WAIT_SECONDS if until is None else until - time.monotonic()
            change = self.poll(max(0.0, min(WAIT_SECONDS, left_s)))
            if change is not None:
                return change
            if self._has_ended or left_s <= 0:
                raise StopIteration

    async def __anext__(self) -> RecordedChange:
        """Holds no thread while it waits; cancelled, it loses nothing."""
        is_there = self._is_open
        while not is_there:
            is_there = await asyncio.to_thread(self._open)
            await asyncio.sleep(0 if is_there else WAIT_SECONDS)
        while True:
            change = self.poll(0)
            if change is not None:
                return change
            if self._has_ended:
                raise StopAsyncIteration
            await asyncio.sleep(ASYNC_PAUSE_SECONDS)

    def __aiter__(self) -> Self:
        return self

    def poll(self, timeout_s: float) -> RecordedChange | None:
        """The next change, if one is there within this time."""
        if not self._open():
            time.sleep(timeout_s)
            return None
        if not self._found:
            self._found.extend(self._consumer.consume(CONSUME_RECORDS_MAX, timeout_s))
        while self._found:
            change = self._taken(self._found.popleft())
            if change is not None:
                return change
        return None

    @property
    def token(self) -> str | None:
        """Where the next reader goes on; None before anything is known of the topic."""
        return token_of(self.topic, self._offsets) if self._offsets else self._since

    @property
    def has_all(self) -> bool:
        """Whether all came that the topic had when it was opened; it may not have been there."""
        return self._has_looked and self._is_at_ends

    def close(self) -> None:
        self._consumer.close()

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    # --- where it begins, where it ends -------------------------------------------------------

    def _open(self) -> bool:
        """Whether the topic is there; then it is being read."""
        if not self._is_open:
            with translated(self._client, doing=f"read {self.topic}"):
                self._is_open = self._assign()
            self._has_looked = True
            if not self._is_open and not self._follow:
                raise NothingCaptured(topic=self.topic)
        return self._is_open

    def _assign(self) -> bool:
        """Asks for all topics: to ask for one by its name may make it."""
        known = self._consumer.list_topics(timeout=PATIENCE_SECONDS).topics
        if self.topic not in known:
            return False
        bounds = {
            number: offset_bounds(self._consumer, TopicPartition(self.topic, number), self._client)
            for number in known[self.topic].partitions
        }
        self._offsets = self._first_offsets(bounds)
        self._ends = {number: within.end for number, within in bounds.items()}
        self._consumer.assign(
            [TopicPartition(self.topic, *place) for place in self._offsets.items()]
        )
        return True

    def _first_offsets(self, bounds: Mapping[int, OffsetRange]) -> dict[int, int]:
        if self._since == NOW:
            return {number: within.end for number, within in bounds.items()}
        starts = {number: within.start for number, within in bounds.items()}
        given = {} if self._since is None else offsets_in(self._since, self.topic)
        if not given.keys() <= starts.keys():
            raise BadToken(token=str(self._since), topic=self.topic)
        if any(offset > bounds[number].end for number, offset in given.items()):
            raise ChangesGone(topic=self.topic, token=self._since)
        return starts | given

    @property
    def _has_ended(self) -> bool:
        return not self._follow and self._is_at_ends

    @property
    def _is_at_ends(self) -> bool:
        return all(self._offsets[number] >= end for number, end in self._ends.items())

    # --- records ------------------------------------------------------------------------------

    def _taken(self, message: Message) -> RecordedChange | None:
        """The change, if the message is one; and the place behind it."""
        error = message.error()
        if error is not None and error.name() in OFFSET_IS_GONE:
            raise ChangesGone(topic=self.topic, token=self.token)
        if error is not None and error.name() != "_PARTITION_EOF":
            found = error_from(error, self._client, doing=f"read {self.topic}")
            if isinstance(found, Retryable):
                return None
            raise found
        partition, offset = int(message.partition() or 0), int(message.offset() or 0)
        if error is not None:  # the end, behind all that was skipped: markers and aborted data
            self._offsets[partition] = max(self._offsets[partition], offset)
            return None
        self._offsets[partition] = offset + 1
        value = message.value()
        return None if value is None else self._change(message.key(), value, partition, offset)

    def _change(self, key: Any, value: bytes, partition: int, offset: int) -> RecordedChange:
        try:
            return change_from(key, value, token_of(self.topic, self._offsets))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise NotAnEnvelope(
                topic=self.topic, partition=partition, offset=offset, reason=repr(error)
            ) from None


def _config(client: Client) -> dict[str, Any]:
    return client_config(client) | {
        "group.id": "millstream-changes",  # never joined, and never committed to
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 5,
    }
