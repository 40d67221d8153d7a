"""Decisions that wait for the writer of their partition: asked for by many threads, taken by one,
as many at a time as are there."""

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from millstream.base.errors import Rejected
from millstream.eventsourcing.staging import Decided, Wish
from millstream.eventsourcing.stored_event import Receipt
from millstream.eventsourcing.transaction import FencedProducer

# Decisions of one transaction: enough that its fixed cost (some ms) does not count.
GROUP_DECISIONS_MAX = 4_000
# Decisions that may wait: who asks for more is held up.
WAITING_MAX = 20_000
ROOM_SECONDS = 0.001
# A thread that was answered asks again within this, unless it has other things to do. A transaction
# takes some ms.
GATHER_SECONDS = 0.0003


class Along(Protocol):
    """What someone writes into the transaction of a decision, beside its events: a refusal too is
    told that way, and how far the reader has come who asked for it."""

    def is_over(self, term: int) -> bool:
        """Whether it must not be decided here (any more): another has done it. `term` is new each
        time that the partition was opened: then what is committed may be other than it was."""

    def write(self, producer: FencedProducer, outcome: Receipt | BaseException) -> None: ...

    def end(self, producer: FencedProducer) -> None:
        """Called of the last one in a transaction, when all are written."""


class StoreClosed(Rejected):
    def __init__(self, *, topic: str) -> None:
        super().__init__(f"the event store of {topic} is closed: open another")
        self.topic = topic


class Reply:
    """What a Future is, for the one thread that waits: it costs a fifth."""

    __slots__ = ("_answer", "_lock")

    def __init__(self) -> None:
        self._answer: Receipt | BaseException | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def result(self) -> Receipt:
        """Once, and by one thread."""
        self._lock.acquire()
        answer, self._answer = self._answer, None
        if isinstance(answer, Receipt):
            return answer
        assert answer is not None
        raise answer

    def set_running_or_notify_cancel(self) -> bool:
        return True

    def done(self) -> bool:
        return not self._lock.locked()

    def set_result(self, receipt: Receipt) -> None:
        self._answer = receipt
        self._lock.release()

    def set_exception(self, error: BaseException) -> None:
        self._answer = error
        self._lock.release()


@dataclass(slots=True)
class Asked:
    """A wish and who waits for it. `along` writes more into its transaction."""

    wish: Wish
    future: "Future[Receipt] | Reply"
    along: Along | None = None
    outcome: Decided | BaseException | None = None


class DecisionQueue:
    """`topic` is told when it is closed."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._waiting: SimpleQueue[Asked | None] = SimpleQueue()  # None: it is closed
        self._lock = threading.Lock()
        self._is_closed = False
        self._group_size = 0

    def put(self, asked: Asked) -> None:
        """Waits until there is room. Raises StoreClosed."""
        while self._waiting.qsize() >= WAITING_MAX and not self._is_closed:
            time.sleep(ROOM_SECONDS)
        with self._lock:
            if self._is_closed:
                raise StoreClosed(topic=self._topic)
            self._waiting.put(asked)

    def close(self) -> None:
        """What is in it can still be taken."""
        with self._lock:
            self._is_closed = True
            self._waiting.put(None)

    def next_group(self) -> list[Asked]:
        """All that wait, unless they are too many; empty when it is closed."""
        group = self._taken()
        self._group_size = len(group)
        return group

    def _taken(self) -> list[Asked]:
        group: list[Asked] = []
        waiting = self._waiting
        while not group or (len(group) < GROUP_DECISIONS_MAX and not waiting.empty()):
            asked = waiting.get()
            if asked is None:
                waiting.put(None)  # for the next call, when this group is served
                return group
            if not group and self._group_size > 1:
                self._gather()
            if asked.future.set_running_or_notify_cancel():
                group.append(asked)
        return group

    def _gather(self) -> None:
        """Those who were just answered come again one by one: wait while they do. Else the first
        of them has a transaction of its own, and all others wait for that."""
        waiting, before = self._waiting.qsize(), -1
        while before < waiting < self._group_size:
            time.sleep(GATHER_SECONDS)
            before, waiting = waiting, self._waiting.qsize()
