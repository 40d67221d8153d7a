"""Follows all events of the topic, from any place on: none is skipped, none comes twice.

In a partition events come in the order of `seq`, and a hole in it is an error. A token says where
a subscriber is; it moves on over events that the query leaves out. Between partitions there is no
order. Of one thread, or of one task.
"""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, Message, TopicPartition

from millstream.base.closing import Closing
from millstream.base.collector import collector_paused
from millstream.base.errors import Corrupt, Rejected
from millstream.base.log_clients import client_config
from millstream.eventsourcing.event_log import (
    CONSUMER,
    EventLog,
    end_told,
    is_last,
    some_messages,
)
from millstream.eventsourcing.query import Query
from millstream.eventsourcing.stored_event import StoredEvent, decode_event

# A wait is cut into such pieces, so that a subscription that is closed ends soon.
WAIT_SECONDS = 0.5
FOLLOWING = {
    # An event wakes the fetch that waits for it: nothing is gained by asking more often.
    "fetch.wait.max.ms": 500,
    "queued.max.messages.kbytes": 16 << 10,
}


class Place(NamedTuple):
    """The last event seen, 0 if none was; the offset to go on from; and the number up to which
    those to come are left out, if it is not reached yet."""

    seq: int = 0
    offset: int = 0
    behind: int = 0

    def __str__(self) -> str:
        return f"{self.seq}@{self.offset}" + (f">{self.behind}" if self.behind else "")


@dataclass(frozen=True, slots=True)
class Token:
    """Where a subscriber is in each partition. `str` writes it, `Token.read` reads it."""

    places: Mapping[int, Place] = field(default_factory=dict)

    def __str__(self) -> str:
        return ",".join(f"{number}:{place}" for number, place in sorted(self.places.items()))

    @classmethod
    def read(cls, text: str) -> Self:
        try:
            return cls(dict(_read_place(part) for part in text.split(",") if part))
        except ValueError:
            raise BadToken(text=text) from None


def _read_place(text: str) -> tuple[int, Place]:
    partition, _, rest = text.partition(":")
    seq, _, rest = rest.partition("@")
    offset, _, behind = rest.partition(">")
    return int(partition), Place(int(seq), int(offset), int(behind or 0))


class BadToken(Rejected):
    def __init__(self, *, text: str) -> None:
        super().__init__(f"{text[:100]!r} is no token of a subscription: give one that it told")
        self.text = text


class EventsMissing(Corrupt):
    def __init__(self, *, place: str, after: int, found: int) -> None:
        super().__init__(
            f"{place}: event {found} comes after {after}. Those between were deleted, or the topic "
            "is not the one that the token is of. Start again without a token, and with nothing "
            "that was made of its events"
        )
        self.place, self.after, self.found = place, after, found


class Subscription(Closing):
    """Yields events, also with `async for`. `token` goes on behind the last one that it gave.

    It ends after `timeout` seconds without an event; without `follow`, at what was committed when
    it began.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        after: Token | None = None,
        where: Query | None = None,
        follow: bool = True,
        timeout: float | None = None,
    ) -> None:
        self._log, self._where, self._timeout = log, where, timeout
        self._places = dict((after or Token()).places)
        self._behind = {number: one.behind for number, one in self._places.items() if one.behind}
        self._come: deque[tuple[int, int, StoredEvent]] = deque()
        self._ends = {} if follow else self._committed_ends()
        self._is_following, self._is_closed = follow, False
        self._executor: ThreadPoolExecutor | None = None
        waiting = FOLLOWING if follow else {}
        self._consumer: Any = Consumer(client_config(log.client) | CONSUMER | waiting)
        self._consumer.assign(
            [TopicPartition(log.topic, number, self._at(number).offset) for number in self._all()]
        )

    @property
    def token(self) -> Token:
        places, behind = self._places.items(), self._behind
        return Token({number: one._replace(behind=behind.get(number, 0)) for number, one in places})

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> StoredEvent:
        deadline = self._deadline()
        while (event := self._next_match()) is None:
            wait = self._wait(deadline)
            if wait is None:
                raise StopIteration
            self._fill(wait)
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StoredEvent:
        deadline = self._deadline()
        while (event := self._next_match()) is None:
            wait = self._wait(deadline)
            if wait is None:
                raise StopAsyncIteration
            await asyncio.get_running_loop().run_in_executor(self._thread(), self._fill, wait)
        return event

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._executor is not None:
                self._executor.shutdown()  # a wait that is under way ends first
            self._consumer.close()

    # --- how it goes on -----------------------------------------------------------------------

    def _all(self) -> range:
        return range(self._log.partitions)

    def _at(self, number: int) -> Place:
        return self._places.get(number, Place())

    def _committed_ends(self) -> dict[int, int]:
        ends = {number: self._log.committed(number).end for number in self._all()}
        return {number: end for number, end in ends.items() if end > self._at(number).offset}

    def _deadline(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _wait(self, deadline: float | None) -> float | None:
        """How long to wait for more; None if it has ended."""
        if self._is_closed or (not self._is_following and not self._ends):
            return None
        left = WAIT_SECONDS if deadline is None else deadline - time.monotonic()
        return min(left, WAIT_SECONDS) if left > 0 else None

    def _thread(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="events")
        return self._executor

    def _next_match(self) -> StoredEvent | None:
        while self._come:
            number, offset, event = self._come.popleft()
            self._places[number] = Place(event.seq, offset)
            if self._behind and self._is_left_out(number, event.seq):
                continue
            if self._where is None or self._where.matches(event.type, event.tags):
                return event
        return None

    def _is_left_out(self, number: int, seq: int) -> bool:
        behind = self._behind.get(number, 0)
        if seq >= behind:
            self._behind.pop(number, None)
        return seq <= behind

    def _fill(self, wait: float) -> None:
        if self._is_closed:
            return
        with collector_paused():
            self._take(some_messages(self._consumer, wait))

    def _take(self, messages: Sequence[Message]) -> None:
        seen = {number: place.seq for number, place in self._places.items()}
        for message in messages:
            number, offset = message.partition() or 0, message.offset() or 0
            if message.error() is not None:
                reached = end_told(message, self._log.client, self._log.topic)
            else:
                reached = offset + 1 + is_last(message) if self._ends else offset + 1
                if self._is_wanted(number, offset):
                    self._come.append((number, offset + 1, self._checked(message, seen)))
            if self._ends.get(number, reached + 1) <= reached:
                del self._ends[number]

    def _is_wanted(self, number: int, offset: int) -> bool:
        return self._is_following or offset < self._ends.get(number, 0)

    def _checked(self, message: Message, seen: dict[int, int]) -> StoredEvent:
        number: int = message.partition() or 0
        place = f"{self._log.place(number)}, offset {message.offset()}"
        event = decode_event(message.value() or b"", place=place)
        before = seen.get(number, 0)
        is_first = not before and message.offset() != 0  # those before may be deleted
        if event.seq != before + 1 and not is_first:
            raise EventsMissing(place=place, after=before, found=event.seq)
        seen[number] = event.seq
        return event
