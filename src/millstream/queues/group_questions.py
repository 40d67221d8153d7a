"""What brokers tell of share groups: which there are, who is in them, how far they are.

Each question on a connection of its own. librdkafka's admin client has no words for it, so the
queues and `millstream groups` ask here.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseTopic,
)
from millstream.broker.wire.messages.find_coordinator import (
    Coordinator,
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

T = TypeVar("T")

SHARE = "share"  # as ListGroups names this kind
GROUP_KEY = 0  # FindCoordinator's number of a group


async def share_group_names(access: Access) -> set[str]:
    return await group_names(access, SHARE)


async def group_names(access: Access, kind: str) -> set[str]:
    """Every broker tells of the groups that it coordinates."""
    return set().union(*await at_every_broker(access, partial(_names_at, kind)))


async def at_every_broker(
    access: Access, ask: Callable[[Connection], Coroutine[Any, Any, T]]
) -> list[T]:
    async with await connect_to_any(access) as anyone:
        brokers = (await anyone.call(MetadataRequest(topics=[]), MetadataResponse)).brokers
    answers = []
    for node in brokers:
        async with await connect(Address(node.host, node.port), access) as broker:
            answers.append(await ask(broker))
    return answers


async def _names_at(kind: str, broker: Connection) -> set[str]:
    answer = await broker.call(ListGroupsRequest(types_filter=[kind]), ListGroupsResponse)
    check_answer(answer.error_code, None, doing="list groups")
    return {one.group_id for one in answer.groups if one.group_type.lower() == kind}


async def at_coordinator(
    access: Access, group_id: str, ask: Callable[[Connection], Coroutine[Any, Any, T]]
) -> T:
    """What the group's coordinator answers to `ask`."""
    [found] = await coordinators_of(access, [group_id])
    check_answer(found.error_code, found.error_message, doing=f"find group {group_id}")
    async with await connect(Address(found.host, found.port), access) as coordinator:
        return await ask(coordinator)


async def coordinators_of(access: Access, group_ids: list[str]) -> list[Coordinator]:
    """One for each group, or why it cannot be told."""
    request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=group_ids)
    async with await connect_to_any(access) as anyone:
        return (await anyone.call(request, FindCoordinatorResponse)).coordinators


async def describe(coordinator: Connection, group_id: str) -> DescribedGroup | None:
    """None if there is no such share group."""
    request = ShareGroupDescribeRequest(group_ids=[group_id])
    [group] = (await coordinator.call(request, ShareGroupDescribeResponse)).groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check_answer(group.error_code, group.error_message, doing=f"describe group {group_id}")
    return group


async def offsets_of(
    coordinator: Connection, group_id: str
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    [answer] = (await coordinator.call(request, DescribeShareGroupOffsetsResponse)).groups
    doing = f"read the offsets of group {group_id}"
    check_answer(answer.error_code, answer.error_message, doing=doing)
    return answer.topics


def check_answer(code: int, reason: str | None, *, doing: str) -> None:
    if code != ErrorCode.NONE:
        raise RefusedByBroker(doing=doing, code=code, reason=reason)
