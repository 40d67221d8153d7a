"""What `millstream groups` asks of share groups, in the words of that command.

A broker that is too old to have share groups has none.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from millstream.broker.wire.messages.share_group_describe import DescribedGroup
from millstream.commands.cluster import RETRY_PAUSE_SECONDS, Group, hidden_group
from millstream.commands.connecting import (
    ANSWER_SECONDS_MAX,
    NoAnswerInTime,
    NotAllowed,
    Partition,
    client_config,
)
from millstream.commands.lag import Member, Place
from millstream.queues.access import access_from
from millstream.queues.connection import BrokerTooOld, Connection
from millstream.queues.group_questions import (
    SHARE,
    at_coordinator,
    check_answer,
    describe,
    offsets_of,
    share_group_names,
)
from millstream.queues.leader_link import RefusedByBroker
from millstream.setting_kinds import Address as BrokerAddress

T = TypeVar("T")

STARTING_UP = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
NOT_ALLOWED = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class ShareGroups:
    """Questions and one change. One call at a time."""

    def __init__(self, brokers: tuple[BrokerAddress, ...]) -> None:
        self._access = access_from(client_config(brokers))

    def names(self) -> list[str]:
        try:
            return sorted(asked(lambda: share_group_names(self._access), doing="list groups"))
        except BrokerTooOld:
            return []

    def find(self, name: str) -> Group | None:
        """None: it is no share group."""
        try:
            group = self._at_coordinator(name, lambda broker: describe(broker, name))
        except BrokerTooOld:
            return None
        return None if group is None else _group_from(group)

    def listed(self, names: Iterable[str]) -> dict[str, Group]:
        """What may be seen of each; without those that have ended since."""
        return seen_groups(self.find, names)

    def places(self, name: str) -> dict[Partition, Place]:
        """Where the group goes on, in the partitions that it has begun."""
        return self._at_coordinator(name, lambda broker: _places(broker, name))

    def move(self, name: str, offsets: Mapping[Partition, int]) -> None:
        self._at_coordinator(name, lambda broker: _move(broker, name, offsets))

    def _at_coordinator(self, name: str, ask: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
        return asked(lambda: at_coordinator(self._access, name, ask), doing=f"ask group {name}")


def seen_groups(find: Callable[[str], Group | None], names: Iterable[str]) -> dict[str, Group]:
    """What `find` may see of each; without those that have ended since."""
    found = {}
    for name in names:
        try:
            found[name] = find(name)
        except NotAllowed:
            found[name] = hidden_group(name)
    return {name: group for name, group in found.items() if group is not None}


def asked(ask: Callable[[], Coroutine[Any, Any, T]], *, doing: str) -> T:
    """A coordinator that starts says so: the same question succeeds soon after."""
    deadline = time.monotonic() + ANSWER_SECONDS_MAX
    while True:
        try:
            return asyncio.run(_within(ANSWER_SECONDS_MAX, ask()))
        except TimeoutError:
            raise NoAnswerInTime(doing=doing) from None
        except RefusedByBroker as error:
            if error.code in NOT_ALLOWED:
                raise NotAllowed(doing=error.doing) from None
            if error.code not in STARTING_UP or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE_SECONDS)


async def _within(seconds: float, asking: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(seconds):
        return await asking


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
    return {
        Partition(topic.topic_name, one.partition_index): Place(one.start_offset, one.lag)
        for topic in await offsets_of(broker, name)
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE and one.start_offset >= 0
    }


async def _move(broker: Connection, name: str, offsets: Mapping[Partition, int]) -> None:
    request = AlterShareGroupOffsetsRequest(group_id=name, topics=[*_topics(offsets)])
    answer = await broker.call(request, AlterShareGroupOffsetsResponse)
    doing = f"reset group {name}"
    check_answer(answer.error_code, answer.error_message, doing=doing)
    for topic in answer.responses:
        for one in topic.partitions:
            check_answer(one.error_code, one.error_message, doing=doing)


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
