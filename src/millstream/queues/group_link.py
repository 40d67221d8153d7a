"""The link to a queue's group: joins, beats, and finds the leaders of what it is assigned.

A thin shell around `membership.py`: one task, one connection, to the group's coordinator. Metadata
is asked there, too.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from millstream.base.errors import MillstreamError
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.broker.wire.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from millstream.queues.access import Access, Address
from millstream.queues.acknowledgements import Partition
from millstream.queues.connection import Connection, ConnectionLost, connect, connect_to_any
from millstream.queues.membership import Membership, RefusedByGroup, error_name, may_pass

logger = logging.getLogger(__name__)

GROUP_KEY = 0  # FindCoordinator: a group, of whatever kind
RETRY_SECONDS = 0.2
# The broker's pace (5 s) is for members that have work; one that has none yet asks more often.
UNASSIGNED_BEAT_SECONDS = 0.2
LEAVE_SECONDS_MAX = 5.0

Leaders = Mapping[Address, frozenset[Partition]]
NOT_THIS_COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class GroupLink:
    def __init__(
        self,
        access: Access,
        member: Membership,
        *,
        when_assigned: Callable[[Leaders], None],
        when_failed: Callable[[MillstreamError], None],
    ) -> None:
        self._access, self._member = access, member
        self._when_assigned, self._when_failed = when_assigned, when_failed
        self._leaders: dict[Partition, Address] = {}
        self._wake = asyncio.Event()
        self._is_closing = False
        self._is_reported = False

    def look_again(self) -> None:
        """Somebody has found a partition led by another broker, or by none."""
        self._leaders = {}
        self._wake.set()

    def close(self) -> None:
        self._is_closing = True
        self._wake.set()

    async def run(self) -> None:
        while not self._is_closing:
            try:
                async with await self._find_coordinator() as connection:
                    await self._beat(connection)
            except ConnectionLost as error:
                self._report(error)
                await self._pause(RETRY_SECONDS)
            except MillstreamError as error:
                self._when_failed(error)
                return

    def _report(self, error: ConnectionLost) -> None:
        """Once for each outage."""
        if not self._is_reported:
            logger.warning("queue %s: %s; trying again", self._member.topic, error)
        self._is_reported = True

    async def _find_coordinator(self) -> Connection:
        async with await connect_to_any(self._access) as anyone:
            while True:
                request = FindCoordinatorRequest(
                    key_type=GROUP_KEY, coordinator_keys=[self._member.group]
                )
                [found] = (await anyone.call(request, FindCoordinatorResponse)).coordinators
                if found.error_code == ErrorCode.NONE:
                    return await connect(Address(found.host, found.port), self._access)
                if not may_pass(found.error_code):
                    raise RefusedByGroup(
                        group=self._member.group, code=found.error_code, reason=found.error_message
                    )
                await asyncio.sleep(RETRY_SECONDS)

    async def _beat(self, coordinator: Connection) -> None:
        while not self._is_closing:
            answer = await coordinator.call(self._member.heartbeat(), ShareGroupHeartbeatResponse)
            self._member.take(answer)
            self._is_reported = False
            if answer.error_code in NOT_THIS_COORDINATOR:
                reason = f"its coordinator is not there ({error_name(answer.error_code)})"
                raise ConnectionLost(address=coordinator.address, reason=reason)
            await self._assign(coordinator)
            is_at_work = self._member.is_joined and self._member.assigned
            seconds = answer.heartbeat_interval_ms / 1000 if is_at_work else UNASSIGNED_BEAT_SECONDS
            await self._pause(seconds or UNASSIGNED_BEAT_SECONDS)
        await self._leave(coordinator)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _leave(self, coordinator: Connection) -> None:
        with contextlib.suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                await coordinator.call(self._member.leave(), ShareGroupHeartbeatResponse)

    async def _assign(self, connection: Connection) -> None:
        """Tell who leads what. A partition whose leader is not known is asked for again."""
        assigned = self._member.assigned
        if not assigned <= self._leaders.keys():
            self._leaders = await self._find_leaders(connection, assigned)
        by_leader: dict[Address, set[Partition]] = {}
        for partition in assigned & self._leaders.keys():
            by_leader.setdefault(self._leaders[partition], set()).add(partition)
        self._when_assigned({leader: frozenset(parts) for leader, parts in by_leader.items()})

    async def _find_leaders(
        self, connection: Connection, partitions: frozenset[Partition]
    ) -> dict[Partition, Address]:
        topics = [
            MetadataRequestTopic(topic_id=topic_id, name=None)
            for topic_id in sorted({partition.topic_id for partition in partitions})
        ]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = await connection.call(request, MetadataResponse)
        nodes = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
        return {
            Partition(topic.topic_id, part.partition_index): nodes[part.leader_id]
            for topic in answer.topics
            for part in topic.partitions
            if part.leader_id in nodes
        }
