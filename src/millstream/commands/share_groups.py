"""What `millstream groups` asks of share groups: librdkafka's admin client has no words for them.

Asks with the queues' own client, each question on a connection of its own. A broker that is too
old to have share groups has none.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
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
from millstream.commands.cluster import RETRY_PAUSE_SECONDS, Group
from millstream.commands.connecting import ANSWER_SECONDS_MAX, Partition, client_config
from millstream.commands.lag import Member, Place
from millstream.queues.access import Address, access_from
from millstream.queues.connection import BrokerTooOld, Connection, connect, connect_to_any
from millstream.queues.leader_link import RefusedByBroker
from millstream.settings import Address as BrokerAddress

T = TypeVar("T")

SHARE = "share"  # as ListGroups names this kind
STARTING_UP = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
GROUP_KEY = 0  # FindCoordinator's number of a group


class ShareGroups:
    """Questions and one change. One call at a time."""

    def __init__(self, brokers: tuple[BrokerAddress, ...]) -> None:
        self._access = access_from(client_config(brokers))

    def names(self) -> list[str]:
        try:
            return _asked(self._names)
        except BrokerTooOld:
            return []

    def find(self, name: str) -> Group | None:
        """None: it is no share group."""
        try:
            group = self._at_coordinator(name, lambda broker: _describe(broker, name))
        except BrokerTooOld:
            return None
        return None if group is None else _group_from(group)

    def places(self, name: str) -> dict[Partition, Place]:
        """Where the group goes on, in the partitions that it has begun."""
        return self._at_coordinator(name, lambda broker: _places(broker, name))

    def move(self, name: str, offsets: Mapping[Partition, int]) -> None:
        self._at_coordinator(name, lambda broker: _move(broker, name, offsets))

    async def _names(self) -> list[str]:
        """Every broker tells of the groups that it coordinates."""
        async with await connect_to_any(self._access) as anyone:
            answer = await anyone.call(MetadataRequest(topics=[]), MetadataResponse)
        names: set[str] = set()
        for node in answer.brokers:
            async with await connect(Address(node.host, node.port), self._access) as broker:
                names |= await _names_at(broker)
        return sorted(names)

    def _at_coordinator(self, name: str, ask: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
        async def asked() -> T:
            request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[name])
            async with await connect_to_any(self._access) as anyone:
                [found] = (await anyone.call(request, FindCoordinatorResponse)).coordinators
            _check(found.error_code, found.error_message, doing=f"find group {name}")
            async with await connect(Address(found.host, found.port), self._access) as broker:
                return await ask(broker)

        return _asked(asked)


def _asked(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """A coordinator that starts says so: the same question succeeds soon after."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while True:
        try:
            return asyncio.run(ask())
        except RefusedByBroker as error:
            if error.code not in STARTING_UP or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE_SECONDS)


async def _names_at(broker: Connection) -> set[str]:
    answer = await broker.call(ListGroupsRequest(types_filter=[SHARE]), ListGroupsResponse)
    _check(answer.error_code, None, doing="list groups")
    return {one.group_id for one in answer.groups if one.group_type.lower() == SHARE}


async def _describe(broker: Connection, name: str) -> DescribedGroup | None:
    request = ShareGroupDescribeRequest(group_ids=[name])
    [group] = (await broker.call(request, ShareGroupDescribeResponse)).groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    _check(group.error_code, group.error_message, doing=f"describe group {name}")
    return group


def _group_from(group: DescribedGroup) -> Group:
    members = {
        Member(
            id=member.member_id,
            client_id=member.client_id,
            host=member.client_host.lstrip("/"),
        ): tuple(
            Partition(topic.topic_name, number)
            for topic in member.assignment.topic_partitions
            for number in topic.partitions
        )
        for member in group.members
    }
    return Group(
        id=group.group_id, state=group.group_state.lower(), protocol=SHARE, members=members
    )


async def _places(broker: Connection, name: str) -> dict[Partition, Place]:
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    [answer] = (await broker.call(request, DescribeShareGroupOffsetsResponse)).groups
    _check(answer.error_code, answer.error_message, doing=f"read the offsets of group {name}")
    return {
        Partition(topic.topic_name, one.partition_index): Place(one.start_offset, one.lag)
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE and one.start_offset >= 0
    }


async def _move(broker: Connection, name: str, offsets: Mapping[Partition, int]) -> None:
    request = AlterShareGroupOffsetsRequest(group_id=name, topics=[*_topics(offsets)])
    answer = await broker.call(request, AlterShareGroupOffsetsResponse)
    doing = f"reset group {name}"
    _check(answer.error_code, answer.error_message, doing=doing)
    for topic in answer.responses:
        for one in topic.partitions:
            _check(one.error_code, one.error_message, doing=doing)


def _topics(offsets: Mapping[Partition, int]) -> Iterator[AlterShareGroupOffsetsRequestTopic]:
    for name in sorted({part.topic for part in offsets}):
        own = sorted((part.number, at) for part, at in offsets.items() if part.topic == name)
        yield AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=at)
                for number, at in own
            ],
        )


def _check(code: int, reason: str | None, *, doing: str) -> None:
    if code != ErrorCode.NONE:
        raise RefusedByBroker(doing=doing, code=code, reason=reason)
