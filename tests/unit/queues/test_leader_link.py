"""The link to a leader, with one of our own in place of the connection: no socket, no sleep."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest

from millstream.base.errors import MillstreamError
from millstream.base.record import Record
from millstream.broker.wire import ErrorCode, Message
from millstream.broker.wire.messages import share_acknowledge as acknowledge
from millstream.broker.wire.messages import share_fetch as fetch
from millstream.log.record_batch import encode_batch
from millstream.queues import leader_link
from millstream.queues.access import Access, Address
from millstream.queues.acknowledgements import Partition, Place, Settlement
from millstream.queues.connection import ConnectionLost
from millstream.queues.deliveries import Delivery
from millstream.queues.handover import Handover
from millstream.queues.leader_link import LeaderLink, LockLost, RefusedByBroker
from millstream.queues.membership import Membership

T = TypeVar("T")
JOBS = Partition(b"j" * 16, 0)
ADDRESS = Address("leader", 9092)
LOCK_MS = 30_000


class Leader:
    """Has jobs at all offsets from 0 on, and hands out those in `acquired`, one span a fetch."""

    def __init__(self) -> None:
        self.acquired: list[tuple[int, int]] = []
        self.gone: set[int] = set()  # locks that it does not know any more
        self.said: list[dict[int, int]] = []  # offset to type, request by request
        self.error_code = ErrorCode.NONE
        self.is_connected = True

    async def call(self, request: Message, answer: object, *, wait_ms: int = 0) -> Message:
        await asyncio.sleep(0)
        if not self.is_connected:
            raise ConnectionLost(address=ADDRESS, reason="cut")
        if isinstance(request, fetch.ShareFetchRequest):
            return self._fetch()
        assert isinstance(request, acknowledge.ShareAcknowledgeRequest)
        return self._acknowledge(request)

    def _fetch(self) -> fetch.ShareFetchResponse:
        if self.error_code:
            return fetch.ShareFetchResponse(error_code=self.error_code)
        if not self.acquired:
            return fetch.ShareFetchResponse(acquisition_lock_timeout_ms=LOCK_MS)
        first, last = self.acquired.pop(0)
        span = fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1)
        records = bytes(encode_batch([Record(value=b"job", timestamp_ms=1)], base_offset=first))
        data = fetch.PartitionData(records=records, acquired_records=[span])
        topic = fetch.ShareFetchableTopicResponse(topic_id=JOBS.topic_id, partitions=[data])
        return fetch.ShareFetchResponse(acquisition_lock_timeout_ms=LOCK_MS, responses=[topic])

    def _acknowledge(
        self, request: acknowledge.ShareAcknowledgeRequest
    ) -> acknowledge.ShareAcknowledgeResponse:
        said = {
            offset: batch.acknowledge_types[0]
            for topic in request.topics
            for part in topic.partitions
            for batch in part.acknowledgement_batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        self.said.append(said)
        code = ErrorCode.INVALID_RECORD_STATE if self.gone & said.keys() else ErrorCode.NONE
        part = acknowledge.PartitionData(error_code=code)
        topic = acknowledge.ShareAcknowledgeTopicResponse(topic_id=JOBS.topic_id, partitions=[part])
        return acknowledge.ShareAcknowledgeResponse(
            error_code=self.error_code, acquisition_lock_timeout_ms=LOCK_MS, responses=[topic]
        )

    async def __aenter__(self) -> "Leader":
        return self

    async def __aexit__(self, *error: object) -> None:
        return None


class Scene:
    """A link at work with its leader, and a clock that is set by hand."""

    def __init__(self, leader: Leader) -> None:
        self.leader, self.now_ms = leader, 0
        self.looked_again = 0
        self.handover = Handover(
            prefetch=0, now_ms=lambda: self.now_ms, when_wanted=lambda: self.link.wake()
        )
        self.link = LeaderLink(
            ADDRESS,
            Access(brokers=(ADDRESS,)),
            Membership(group="queue.jobs", topic="jobs", member_id="m"),
            self.handover,
            now_ms=lambda: self.now_ms,
            when_led_elsewhere=self._look_again,
        )
        self.link.partitions = frozenset([JOBS])

    def _look_again(self) -> None:
        self.looked_again += 1

    async def take(self, offset: int) -> Delivery:
        self.leader.acquired.append((offset, offset))
        delivery = await self.handover.get(None)
        assert delivery is not None
        return delivery


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)


async def settled(*steps: "asyncio.Future[None]") -> list[BaseException | None]:
    return await asyncio.gather(*steps, return_exceptions=True)


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    one = Leader()

    async def connect(address: Address, access: Access) -> Leader:
        return one

    monkeypatch.setattr(leader_link, "connect", connect)
    monkeypatch.setattr(leader_link, "RETRY_SECONDS", 0)
    return one


def play(leader: Leader, scene: Callable[[Scene], Coroutine[Any, Any, T]]) -> T:
    """Run the link beside the scene, for at most ten seconds."""

    async def both() -> T:
        stage = Scene(leader)
        running = asyncio.create_task(stage.link.run())
        try:
            async with asyncio.timeout(10):
                return await scene(stage)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    return asyncio.run(both())


def test_a_job_is_fetched_when_somebody_waits_and_accepted_when_it_is_said(leader: Leader) -> None:
    async def scene(stage: Scene) -> None:
        job = await stage.take(7)
        await stage.link.settle(job.place, Settlement.ACCEPT)
        assert leader.said == [{7: 1}]
        assert job not in stage.handover.held

    play(leader, scene)


def test_of_two_jobs_one_lost_lock_does_not_undo_the_other(leader: Leader) -> None:
    """The leader refuses the whole partition; then they are said one by one."""

    async def scene(stage: Scene) -> None:
        jobs = [await stage.take(7), await stage.take(8)]
        leader.gone = {8}
        futures = [stage.link.settle(job.place, Settlement.ACCEPT) for job in jobs]
        first, second = await settled(*futures)
        assert first is None
        assert isinstance(second, LockLost)
        assert leader.said == [{7: 1, 8: 1}, {7: 1}, {8: 1}]

    play(leader, scene)


def test_a_lock_is_renewed_when_it_is_due(leader: Leader) -> None:
    async def scene(stage: Scene) -> None:
        job = await stage.take(7)
        stage.now_ms = LOCK_MS // 3
        stage.link.wake()
        await until(lambda: stage.handover.held.next_due_ms([JOBS]) == 2 * LOCK_MS // 3)
        assert leader.said == [{7: Settlement.RENEW}]
        await stage.link.settle(job.place, Settlement.ACCEPT)

    play(leader, scene)


def test_a_renewal_that_is_refused_loses_that_lock_alone(leader: Leader) -> None:
    async def scene(stage: Scene) -> None:
        lost, kept = await stage.take(7), await stage.take(8)
        leader.gone = {7}
        stage.now_ms = LOCK_MS // 3
        stage.link.wake()
        await until(lambda: lost not in stage.handover.held)
        assert kept in stage.handover.held
        await stage.link.settle(kept.place, Settlement.ACCEPT)

    play(leader, scene)


def test_an_offset_without_a_job_is_said_to_be_a_gap(leader: Leader) -> None:
    async def scene(stage: Scene) -> None:
        leader.acquired.append((5, 6))  # the record is at 5; at 6 is none
        await stage.handover.get(None)
        stage.link.wake()
        await until(lambda: bool(leader.said))
        assert leader.said == [{6: Settlement.GAP}]

    play(leader, scene)


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_lost_session_loses_its_locks_and_says_so(leader: Leader, is_connected: bool) -> None:
    async def scene(stage: Scene) -> None:
        job = await stage.take(7)
        leader.is_connected = is_connected
        leader.error_code = ErrorCode.SHARE_SESSION_NOT_FOUND
        [lost] = await settled(stage.link.settle(job.place, Settlement.ACCEPT))
        assert isinstance(lost, LockLost)
        assert job not in stage.handover.held

    play(leader, scene)


def test_after_a_lost_connection_jobs_come_again(leader: Leader) -> None:
    async def scene(stage: Scene) -> None:
        await stage.take(7)
        leader.is_connected = False
        waiting = asyncio.create_task(stage.handover.get(None))
        await until(lambda: stage.looked_again > 0)
        assert not stage.handover.held.has(Place(JOBS, 7))
        leader.is_connected = True
        leader.acquired.append((7, 7))
        again = await waiting
        assert again is not None
        assert again.place.offset == 7

    play(leader, scene)


def test_a_refusal_that_does_not_pass_is_told_to_those_who_wait(leader: Leader) -> None:
    async def scene(stage: Scene) -> None:
        leader.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        with pytest.raises(RefusedByBroker, match="GROUP_AUTHORIZATION_FAILED") as refused:
            await stage.handover.get(None)
        assert isinstance(refused.value, MillstreamError)

    play(leader, scene)
