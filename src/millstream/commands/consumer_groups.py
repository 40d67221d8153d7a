"""What brokers tell of consumer groups, of both protocols, without librdkafka.

For processes that live long: where a coordinator does not answer in time, librdkafka's questions
about groups may end the whole process by an assertion (its issue 4605). Each question is asked on
connections of its own, so that a broker which comes back is found at once.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from millstream.broker.groups.embedded_protocol import read_assignment
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages import consumer_group_describe, describe_groups
from millstream.broker.wire.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from millstream.commands.cluster import Group, hidden_group
from millstream.commands.connecting import NotAllowed, Partition, client_config
from millstream.commands.lag import Member
from millstream.commands.share_groups import NOT_ALLOWED, asked
from millstream.queues.access import Access, Address, access_from
from millstream.queues.connection import BrokerTooOld, Connection, connect
from millstream.queues.group_questions import (
    at_every_broker,
    check_answer,
    coordinators_of,
)
from millstream.setting_kinds import Address as BrokerAddress

T = TypeVar("T")

# Others in the same list are of Kafka Connect, of share groups, of Kafka Streams. A group that
# only commits, and never had a member, has no protocol.
PROTOCOL_TYPES = ("consumer", "")
OTHER_KINDS = ("share", "streams")

# As librdkafka says it, and so `millstream groups`, too.
STATES = {
    "PreparingRebalance": "preparing rebalancing",
    "CompletingRebalance": "completing rebalancing",
    "Assigning": "rebalancing",
    "Reconciling": "rebalancing",
}

Ask = Callable[[Connection, list[str]], Coroutine[Any, Any, dict[str, T]]]


class ConsumerGroups:
    """Questions. May be asked by several threads at once."""

    def __init__(self, brokers: tuple[BrokerAddress, ...]) -> None:
        self._access = access_from(client_config(brokers))

    def names(self) -> list[str]:
        return sorted(asked(lambda: _names(self._access), doing="list groups"))

    def listed(self, names: Iterable[str]) -> dict[str, Group]:
        """What may be seen of each. One that is not there is dead."""
        wanted = list(names)
        return asked(
            lambda: _at_coordinators(self._access, wanted, _describe, denied=hidden_group),
            doing=f"describe group {', '.join(wanted)}",
        )

    def described(self, names: Iterable[str]) -> dict[str, Group]:
        """As `listed`, but all or nothing."""
        found = self.listed(names)
        for name, group in found.items():
            if group.is_hidden:
                raise NotAllowed(doing=f"describe group {name}")
        return found

    def committed(self, names: Iterable[str]) -> dict[str, dict[Partition, int]]:
        wanted = list(names)
        return asked(
            lambda: _at_coordinators(self._access, wanted, _committed),
            doing=f"read the offsets of group {', '.join(wanted)}",
        )


# --- which there are ---------------------------------------------------------------------------


async def _names(access: Access) -> set[str]:
    return set().union(*await at_every_broker(access, _names_at))


async def _names_at(broker: Connection) -> set[str]:
    answer = await broker.call(ListGroupsRequest(), ListGroupsResponse)
    check_answer(answer.error_code, None, doing="list groups")
    return {one.group_id for one in answer.groups if is_of_consumers(one)}


def is_of_consumers(group: ListedGroup) -> bool:
    return group.protocol_type in PROTOCOL_TYPES and group.group_type.lower() not in OTHER_KINDS


# --- at their coordinators ---------------------------------------------------------------------


async def _at_coordinators(
    access: Access,
    names: list[str],
    ask: Ask[T],
    *,
    denied: Callable[[str], T] | None = None,
) -> dict[str, T]:
    """What each group's coordinator answers; each is asked once, for all groups that it has."""
    found: dict[str, T] = {}
    at: dict[Address, list[str]] = {}
    for one in await coordinators_of(access, names) if names else []:
        if denied is not None and one.error_code in NOT_ALLOWED:
            found[one.key] = denied(one.key)
            continue
        check_answer(one.error_code, one.error_message, doing=f"find group {one.key}")
        at.setdefault(Address(one.host, one.port), []).append(one.key)
    for address, own in at.items():
        async with await connect(address, access) as coordinator:
            found |= await ask(coordinator, own)
    return {name: found[name] for name in names if name in found}


async def _describe(coordinator: Connection, names: list[str]) -> dict[str, Group]:
    """Which protocol a group has is not known before: who does not know it as one has the other."""
    found = await _of_new_protocol(coordinator, names)
    rest = [name for name in names if name not in found]
    if rest:
        request = describe_groups.DescribeGroupsRequest(groups=rest)
        answer = await coordinator.call(request, describe_groups.DescribeGroupsResponse)
        found |= {group.group_id: classic_group(group) for group in answer.groups}
    return found


async def _of_new_protocol(coordinator: Connection, names: list[str]) -> dict[str, Group]:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=names)
    response = consumer_group_describe.ConsumerGroupDescribeResponse
    try:
        answer = await coordinator.call(request, response)
    except BrokerTooOld:  # for this protocol, or it is switched off there
        return {}
    not_one = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return {
        group.group_id: consumer_group(group)
        for group in answer.groups
        if group.error_code not in not_one
    }


def consumer_group(group: consumer_group_describe.DescribedGroup) -> Group:
    if group.error_code in NOT_ALLOWED:
        return hidden_group(group.group_id)
    check_answer(group.error_code, group.error_message, doing=f"describe group {group.group_id}")
    members = {
        _member(member): tuple(
            Partition(topic.topic_name, number)
            for topic in member.assignment.topic_partitions
            for number in topic.partitions
        )
        for member in group.members
    }
    return Group(
        id=group.group_id, state=_state(group.group_state), protocol="consumer", members=members
    )


def classic_group(group: describe_groups.DescribedGroup) -> Group:
    if group.error_code in NOT_ALLOWED:
        return hidden_group(group.group_id)
    check_answer(group.error_code, group.error_message, doing=f"describe group {group.group_id}")
    state = _state(group.group_state)
    members = {_member(member): _assigned(member.member_assignment) for member in group.members}
    protocol = "unknown" if state == "dead" else "classic"
    return Group(id=group.group_id, state=state, protocol=protocol, members=members)


def _state(told: str) -> str:
    return STATES.get(told, told.lower())


def _member(
    member: describe_groups.DescribedGroupMember | consumer_group_describe.Member,
) -> Member:
    return Member(
        id=member.member_id, client_id=member.client_id, host=member.client_host.lstrip("/")
    )


def _assigned(assignment: bytes) -> tuple[Partition, ...]:
    """Nothing where members speak among themselves in words of their own."""
    read = read_assignment(assignment)
    return tuple(
        Partition(topic.topic, number)
        for topic in (read.assigned_partitions if read else ())
        for number in topic.partitions
    )


# --- how far they are --------------------------------------------------------------------------


async def _committed(coordinator: Connection, names: list[str]) -> dict[str, dict[Partition, int]]:
    wanted = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    answer = await coordinator.call(OffsetFetchRequest(groups=wanted), OffsetFetchResponse)
    return {group.group_id: committed_of(group) for group in answer.groups}


def committed_of(group: OffsetFetchResponseGroup) -> dict[Partition, int]:
    """Of one that is not there: nothing."""
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    check_answer(group.error_code, None, doing=f"read the offsets of group {group.group_id}")
    return {
        Partition(topic.name, one.partition_index): one.committed_offset
        for topic in group.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE and one.committed_offset >= 0
    }
