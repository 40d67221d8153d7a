"""What can be seen of queues from outside: which there are, who works on them, how much waits.

Asks brokers and changes nothing. A queue is a share group whose name begins as queues' do.
"""

from dataclasses import dataclass

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from millstream.broker.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.broker.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from millstream.broker.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from millstream.queues.access import Access, Address
from millstream.queues.connection import Connection, connect, connect_to_any
from millstream.queues.leader_link import RefusedByBroker
from millstream.queues.terms import GROUP_PREFIX

SHARE = "share"
NOT_STARTED = -1  # Kafka's start offset of a partition that nobody has fetched from yet
GROUP_KEY = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits in one partition: not done yet, be it in somebody's hands or in nobody's."""

    partition: int
    start: int | None  # before it all is done; None: no worker has come yet
    waiting: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    id: str
    host: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSeen:
    name: str
    state: str
    workers: tuple[WorkerSeen, ...]
    backlog: tuple[Backlog, ...]

    @property
    def waiting(self) -> int | None:
        """In all partitions that a worker has been at; None if there was none."""
        known = [one.waiting for one in self.backlog if one.waiting is not None]
        return sum(known) if known else None


async def queue_names(access: Access) -> list[str]:
    """Every broker tells of the groups that it coordinates."""
    async with await connect_to_any(access) as anyone:
        answer = await anyone.call(MetadataRequest(topics=[]), MetadataResponse)
    names: set[str] = set()
    for node in answer.brokers:
        async with await connect(Address(node.host, node.port), access) as broker:
            names |= await _queues_at(broker)
    return sorted(names)


async def _queues_at(broker: Connection) -> set[str]:
    answer = await broker.call(ListGroupsRequest(types_filter=[SHARE]), ListGroupsResponse)
    _check(answer.error_code, None, doing="list queues")
    return {
        group.group_id.removeprefix(GROUP_PREFIX)
        for group in answer.groups
        if group.group_id.startswith(GROUP_PREFIX) and group.group_type.lower() == SHARE
    }


async def see_queue(access: Access, name: str) -> QueueSeen | None:
    """None if there is no such queue."""
    group = GROUP_PREFIX + name
    async with await connect_to_any(access) as anyone:
        asked = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[group])
        [found] = (await anyone.call(asked, FindCoordinatorResponse)).coordinators
        _check(found.error_code, found.error_message, doing=f"find queue {name}")
    async with await connect(Address(found.host, found.port), access) as coordinator:
        request = ShareGroupDescribeRequest(group_ids=[group])
        [described] = (await coordinator.call(request, ShareGroupDescribeResponse)).groups
        if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        _check(described.error_code, described.error_message, doing=f"describe queue {name}")
        return QueueSeen(
            name=name,
            state=described.group_state.lower(),
            workers=_workers(described),
            backlog=await _backlog(coordinator, group, name),
        )


def _workers(group: DescribedGroup) -> tuple[WorkerSeen, ...]:
    return tuple(
        WorkerSeen(
            id=member.member_id,
            host=member.client_host.removeprefix("/"),
            partitions=sum(len(one.partitions) for one in member.assignment.topic_partitions),
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    )


async def _backlog(coordinator: Connection, group: str, topic: str) -> tuple[Backlog, ...]:
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    [answer] = (await coordinator.call(request, DescribeShareGroupOffsetsResponse)).groups
    _check(answer.error_code, answer.error_message, doing=f"see what waits in {topic}")
    partitions = [
        part
        for one in answer.topics
        if one.topic_name == topic
        for part in one.partitions
        if part.error_code == ErrorCode.NONE
    ]
    return tuple(
        Backlog(
            partition=part.partition_index,
            start=None if part.start_offset == NOT_STARTED else part.start_offset,
            waiting=None if part.lag < 0 else part.lag,
        )
        for part in sorted(partitions, key=lambda part: part.partition_index)
    )


def _check(code: int, reason: str | None, *, doing: str) -> None:
    if code != ErrorCode.NONE:
        raise RefusedByBroker(doing=doing, code=code, reason=reason)
