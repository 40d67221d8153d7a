"""A worker: one member of a queue's group, in a thread of its own, for any number of threads.

The shell that joins the links and gives threads a blocking face. In a thread of its own, so that
locks are renewed and heartbeats sent however long the application computes. (A computation that
never lets go of the interpreter's lock stops it, too; then the lock runs out.)
"""

import asyncio
import base64
import concurrent.futures
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from millstream.base.errors import MillstreamError, Rejected
from millstream.queues.access import Access, Address
from millstream.queues.acknowledgements import Settlement
from millstream.queues.deliveries import Delivery
from millstream.queues.group_link import GroupLink, Leaders
from millstream.queues.handover import Handover
from millstream.queues.leader_link import LeaderLink, LockLost
from millstream.queues.membership import Membership

logger = logging.getLogger(__name__)
T = TypeVar("T")

CLOSE_SECONDS_MAX = 15.0
# A worker that has just come has no partitions yet: a moment on Millstream, a second or two on
# Kafka. A first `get` with a short timeout would find nothing in a full queue.
JOIN_SECONDS_MAX = 10.0
ALIVE_CHECK_SECONDS = 1.0


class WorkerBroken(Rejected):
    def __init__(self, *, queue: str, reason: str) -> None:
        super().__init__(f"queue {queue}: the worker broke down ({reason}); open the queue anew")
        self.queue, self.reason = queue, reason


class WorkerClosed(Rejected):
    def __init__(self, *, queue: str) -> None:
        super().__init__(f"queue {queue} was closed; what was held is delivered again")
        self.queue = queue


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Worker:
    """`get`, `settle` and `put_off` may be called from any thread."""

    def __init__(self, access: Access, *, group: str, topic: str, prefetch: int = 0) -> None:
        member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.member = Membership(group=group, topic=topic, member_id=member_id)
        self._access = access
        self._links: dict[Address, LeaderLink] = {}
        self._tasks: dict[Address, asyncio.Task[None]] = {}
        self._handover = Handover(
            prefetch=prefetch, now_ms=monotonic_ms, when_wanted=self._wake_links
        )
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._must_end, self._has_joined = asyncio.Event(), asyncio.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"millstream-queue-{topic}", daemon=True
        )
        self._thread.start()

    # --- for any thread -----------------------------------------------------------------------

    def get(self, timeout_ms: int | None) -> Delivery | None:
        return self._call(self._get(timeout_ms))

    def settle(self, delivery: Delivery, settlement: Settlement) -> None:
        """Returns when the broker has stored it; LockLost if the job was not ours any more."""
        self._call(self._settle(delivery, settlement))

    def put_off(self, delivery: Delivery, delay_ms: int) -> None:
        """Hold it for so long, then release it. Returns at once."""
        self._call(self._put_off(delivery, delay_ms))

    def abandon(self, delivery: Delivery) -> bool:
        """Release it some time soon, if it is held. Never waits: a finalizer calls this."""
        if self._is_closed or delivery not in self._handover.held:
            return False
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._abandon, delivery)
        return True

    def end(self) -> None:
        """Give back what is held, leave the group, end the thread: soon, without waiting."""
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._must_end.set)

    def close(self) -> None:
        """The same, and wait for it."""
        self.end()
        self._thread.join(CLOSE_SECONDS_MAX)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            coroutine.close()
            raise WorkerClosed(queue=self.member.topic)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        while True:
            try:
                return future.result(ALIVE_CHECK_SECONDS)
            except concurrent.futures.CancelledError:
                raise WorkerClosed(queue=self.member.topic) from None
            except TimeoutError:
                if not self._thread.is_alive():  # it ended before it came to this
                    raise WorkerClosed(queue=self.member.topic) from None
            except BaseException:
                future.cancel()  # Ctrl-C while waiting
                raise

    # --- in the loop --------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.run_until_complete(_cancel_others())
            self._loop.close()

    async def _serve(self) -> None:
        group = GroupLink(
            self._access,
            self.member,
            when_assigned=self._assign,
            when_failed=self._fail,
        )
        self._group = group
        beating = self._start(group.run())
        await self._must_end.wait()
        self._has_joined.set()
        self._handover.close()
        for link in self._links.values():
            link.close()
        await asyncio.wait([*self._tasks.values()] or [beating], timeout=CLOSE_SECONDS_MAX / 3)
        group.close()
        await asyncio.wait([beating], timeout=CLOSE_SECONDS_MAX / 3)

    def _assign(self, leaders: Leaders) -> None:
        for address in leaders.keys() - self._links.keys():
            link = LeaderLink(
                address,
                self._access,
                self.member,
                self._handover,
                now_ms=monotonic_ms,
                when_led_elsewhere=self._group.look_again,
            )
            self._links[address] = link
            self._tasks[address] = self._start(link.run())
        if leaders:
            self._has_joined.set()
        for address, link in self._links.items():
            link.partitions = leaders.get(address, frozenset())
            link.wake()

    def _wake_links(self) -> None:
        for link in self._links.values():
            link.wake()

    async def _get(self, timeout_ms: int | None) -> Delivery | None:
        """The time counts from when the worker has joined, or should have."""
        if not self._has_joined.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(JOIN_SECONDS_MAX):
                    await self._has_joined.wait()
            self._has_joined.set()
        return await self._handover.get(timeout_ms)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(coroutine)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """A link ends without an error, or there is one in this program: nobody waits in vain."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("queue %s: a link broke", self.member.topic, exc_info=error)
            self._fail(WorkerBroken(queue=self.member.topic, reason=repr(error)))

    def _fail(self, error: MillstreamError) -> None:
        self._handover.fail(error)
        self._has_joined.set()

    async def _settle(self, delivery: Delivery, settlement: Settlement) -> None:
        await self._link_of(delivery).settle(delivery.place, settlement)

    async def _put_off(self, delivery: Delivery, delay_ms: int) -> None:
        link = self._link_of(delivery)
        self._handover.held.put_off(delivery.place, until_ms=monotonic_ms() + delay_ms)
        link.wake()

    def _abandon(self, delivery: Delivery) -> None:
        with contextlib.suppress(LockLost):
            link = self._link_of(delivery)
            self._handover.held.give_back(delivery.place)
            link.wake()

    def _link_of(self, delivery: Delivery) -> LeaderLink:
        place = delivery.place
        if delivery in self._handover.held:
            for link in self._links.values():
                if place.partition in link.reaches:
                    return link
        job = self.member.job_id(place)
        raise LockLost(job=job, reason="it ran out, or the connection was lost")


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
