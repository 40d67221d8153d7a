"""The link to one leader: fetches jobs from its partitions, and tells it what became of them.

A thin shell around `leader_session.py` and `held_jobs.py`: one task, one connection, one request at
a time. Locks belong to the session, and the session to the connection: when it is lost, so are the
locks, and those who wait for an acknowledgement are told.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError, Rejected, Retryable
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.share_acknowledge import ShareAcknowledgeResponse
from millstream.broker.wire.messages.share_fetch import ShareFetchResponse
from millstream.queues.access import Access, Address
from millstream.queues.acknowledgements import Partition, Place, Settlement
from millstream.queues.connection import Connection, ConnectionLost, connect
from millstream.queues.deliveries import acquired_from
from millstream.queues.handover import Handover
from millstream.queues.leader_session import LeaderSession
from millstream.queues.membership import Membership, error_name, may_pass

logger = logging.getLogger(__name__)

# A fetch that waits keeps back what else is to be said to this leader. While jobs are held, which
# may be acknowledged at any moment, it waits for a moment only.
FETCH_WAIT_MS_MAX = 1_000
FETCH_WAIT_WHILE_HOLDING_MS = 50
RETRY_SECONDS = 0.2
CLOSE_SECONDS_MAX = 5.0

SESSION_IS_GONE = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
LED_ELSEWHERE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class LockLost(Retryable):
    """The job is not this worker's any more; it is delivered again, here or elsewhere."""

    def __init__(self, *, job: str, reason: str) -> None:
        super().__init__(f"job {job}: its lock is lost ({reason}); it is delivered again")
        self.job, self.reason = job, reason


class RefusedByBroker(Rejected):
    def __init__(self, *, doing: str, code: int, reason: str | None) -> None:
        name = error_name(code)
        super().__init__(f"the broker refuses to {doing}: {reason or name} ({name})")
        self.doing, self.code = doing, code


@dataclass(slots=True)
class Pending:
    """Something to be said of a job, and who waits until it was said."""

    settlement: Settlement
    said: "asyncio.Future[None] | None" = None
    is_alone: bool = False  # in a request of its own: one of a larger request was refused


class LeaderLink:
    """`partitions` is what shall be fetched from; whoever changes it calls `wake`."""

    def __init__(
        self,
        address: Address,
        access: Access,
        member: Membership,
        handover: Handover,
        *,
        now_ms: Clock,
        when_led_elsewhere: Callable[[], None],
    ) -> None:
        self.address, self._member = address, member
        self.partitions: frozenset[Partition] = frozenset()
        self._access, self._handover, self._now_ms = access, handover, now_ms
        self._session = LeaderSession(group=member.group, member_id=member.member_id)
        self._pending: dict[Place, Pending] = {}
        self._wake = asyncio.Event()
        self._when_led_elsewhere = when_led_elsewhere
        self._is_closing = False

    @property
    def reaches(self) -> frozenset[Partition]:
        """Partitions of which something may be held by this session."""
        return self._session.partitions

    def wake(self) -> None:
        self._wake.set()

    def settle(self, place: Place, settlement: Settlement) -> "asyncio.Future[None]":
        """Say it with the next request; the future is done when the leader has stored it."""
        said = asyncio.get_running_loop().create_future()
        self._pending[place] = Pending(settlement, said)
        self.wake()
        return said

    async def run(self) -> None:
        """Until it is closed, with a new connection whenever one is lost."""
        while not self._is_closing:
            try:
                await self._until_needed()
                async with await connect(self.address, self._access) as connection:
                    await self._serve(connection)
            except ConnectionLost as error:
                logger.info("%s", error)
                self._lose(error.reason)
                self._when_led_elsewhere()
                await asyncio.sleep(RETRY_SECONDS)
            except MillstreamError as error:
                self._lose(str(error))
                self._handover.fail(error)
                return

    def close(self) -> None:
        """Say what is to be said, give back the rest, and end."""
        self._is_closing = True
        self.wake()

    async def _serve(self, connection: Connection) -> None:
        while True:
            settlements = self._settlements()
            if settlements:
                await self._acknowledge(connection, settlements)
            elif self._is_closing:
                await self._say_goodbye(connection)
                return
            elif self._handover.wanted and self.partitions:
                await self._fetch(connection)
            else:
                await self._sleep()

    async def _until_needed(self) -> None:
        """A broker that leads nothing any more may be gone for good."""
        while not (self.partitions or self._is_closing):
            await self._wake.wait()
            self._wake.clear()

    async def _sleep(self) -> None:
        due_ms = self._handover.held.next_due_ms(self.reaches)
        seconds = None if due_ms is None else max(0, due_ms - self._now_ms()) / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _say_goodbye(self, connection: Connection) -> None:
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await connection.call(self._session.close(), ShareAcknowledgeResponse)
        self._lose("the queue was closed")

    def _lose(self, reason: str) -> None:
        self._handover.lose(self._session.lost())
        for place in [*self._pending]:
            self._fail(place, reason)

    # --- acknowledging ------------------------------------------------------------------------

    def _settlements(self) -> dict[Place, Settlement]:
        """What is to be said now. What the application says comes before what the locks need."""
        due = self._handover.held.due(self.reaches, now_ms=self._now_ms())
        for place in [*self._pending]:
            if not self._handover.held.has(place) and self._pending[place].said is not None:
                self._fail(place, "it ran out")
        for place, pending in self._pending.items():
            if pending.is_alone:
                return {place: pending.settlement}
        return due | {place: pending.settlement for place, pending in self._pending.items()}

    async def _acknowledge(
        self, connection: Connection, settlements: dict[Place, Settlement]
    ) -> None:
        released = [place for place, kind in settlements.items() if kind != Settlement.RENEW]
        self._handover.withdraw(released)
        sent_ms = self._now_ms()
        request = self._session.acknowledge(settlements)
        answer = await connection.call(request, ShareAcknowledgeResponse)
        if answer.error_code != ErrorCode.NONE:
            await self._refused("acknowledge jobs", answer.error_code, answer.error_message)
            return
        self._session.answered()
        codes = {
            Partition(topic.topic_id, part.partition_index): part.error_code
            for topic in answer.responses
            for part in topic.partitions
        }
        for place, kind in settlements.items():
            code = codes.get(place.partition, ErrorCode.NONE)
            if code == ErrorCode.NONE:
                self._said(place, kind, sent_ms, answer.acquisition_lock_timeout_ms)
        refused = {p: k for p, k in settlements.items() if codes.get(p.partition, 0)}
        await self._not_said(refused, codes)

    def _said(self, place: Place, kind: Settlement, sent_ms: int, lock_ms: int) -> None:
        if kind == Settlement.RENEW:
            self._handover.held.renew([place], now_ms=sent_ms, lock_ms=lock_ms)
        else:
            self._handover.held.drop(place)
        # Meanwhile the application may have said something else: that is still to be sent.
        said = self._pending.get(place)
        if said is None or said.settlement != kind:
            return
        pending = self._pending.pop(place)
        if pending.said is not None and not pending.said.done():
            pending.said.set_result(None)

    async def _not_said(
        self, refused: dict[Place, Settlement], codes: dict[Partition, int]
    ) -> None:
        """A leader refuses all of a partition when one lock in it is gone: ask one by one."""
        is_late = False
        for place, kind in refused.items():
            code = codes[place.partition]
            if code in LED_ELSEWHERE:  # the new leader holds no locks
                self._forget(place, error_name(code))
                self._when_led_elsewhere()
            elif len([p for p in refused if p.partition == place.partition]) > 1:
                self._pending.setdefault(place, Pending(kind)).is_alone = True
            elif code == ErrorCode.INVALID_RECORD_STATE or not may_pass(code):
                self._forget(place, error_name(code))
            else:
                is_late = True
        if is_late:
            await asyncio.sleep(RETRY_SECONDS)

    def _forget(self, place: Place, reason: str) -> None:
        self._handover.held.drop(place)
        self._handover.withdraw([place])
        self._fail(place, reason)

    def _fail(self, place: Place, reason: str) -> None:
        pending = self._pending.pop(place, None)
        if pending is not None and pending.said is not None and not pending.said.done():
            job = self._member.job_id(place)
            pending.said.set_exception(LockLost(job=job, reason=reason))

    async def _refused(self, doing: str, code: int, reason: str | None) -> None:
        if code in SESSION_IS_GONE:
            self._lose(error_name(code))
        elif may_pass(code):
            await asyncio.sleep(RETRY_SECONDS)
        else:
            raise RefusedByBroker(doing=doing, code=code, reason=reason)

    # --- fetching -----------------------------------------------------------------------------

    async def _fetch(self, connection: Connection) -> None:
        is_holding = len(self._handover.held) > 0
        wait_ms = self._handover.patience_ms(
            at_most=FETCH_WAIT_WHILE_HOLDING_MS if is_holding else FETCH_WAIT_MS_MAX
        )
        request = self._session.fetch(
            self.partitions, records_max=self._handover.wanted, wait_ms=wait_ms
        )
        answer = await connection.call(request, ShareFetchResponse, wait_ms=wait_ms)
        if answer.error_code != ErrorCode.NONE:
            await self._refused("fetch jobs", answer.error_code, answer.error_message)
            return
        self._session.answered()
        await self._take(answer)

    async def _take(self, answer: ShareFetchResponse) -> None:
        has_problem = False
        lock_ms = answer.acquisition_lock_timeout_ms
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code != ErrorCode.NONE:
                    has_problem = True
                    self._check(data.error_code, data.error_message)
                partition = Partition(topic.topic_id, data.partition_index)
                acquired = acquired_from(partition, data)
                self._pending |= {place: Pending(Settlement.GAP) for place in acquired.gaps}
                deliveries = acquired.deliveries
                self._handover.held.hold(deliveries, now_ms=self._now_ms(), lock_ms=lock_ms)
                self._handover.offer(deliveries)
        if has_problem:
            await asyncio.sleep(RETRY_SECONDS)

    def _check(self, code: int, reason: str | None) -> None:
        if code in LED_ELSEWHERE:
            self._when_led_elsewhere()
        elif not may_pass(code):
            raise RefusedByBroker(doing="fetch jobs", code=code, reason=reason)
