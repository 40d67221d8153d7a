"""What `millstream groups` asks of streams groups (KIP-1071), in the words of that command.

Their offsets are those of any group. A broker that is too old to have streams groups has none.
"""

from collections.abc import Iterable, Mapping

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TaskIds,
)
from millstream.commands.cluster import Group, GroupTasks
from millstream.commands.connecting import Partition, client_config
from millstream.commands.lag import Member
from millstream.commands.share_groups import asked, seen_groups
from millstream.queues.access import access_from
from millstream.queues.connection import BrokerTooOld, Connection
from millstream.queues.group_questions import at_coordinator, check_answer, group_names
from millstream.setting_kinds import Address as BrokerAddress

STREAMS = "streams"  # as ListGroups names this kind


class StreamsGroups:
    """Questions. One call at a time."""

    def __init__(self, brokers: tuple[BrokerAddress, ...]) -> None:
        self._access = access_from(client_config(brokers))

    def names(self) -> list[str]:
        try:
            return sorted(asked(lambda: group_names(self._access, STREAMS), doing="list groups"))
        except BrokerTooOld:
            return []

    def find(self, name: str) -> Group | None:
        """None: it is no streams group."""
        try:
            group = asked(
                lambda: at_coordinator(self._access, name, lambda one: _describe(one, name)),
                doing=f"ask group {name}",
            )
        except BrokerTooOld:
            return None
        return None if group is None else _group_from(group)

    def listed(self, names: Iterable[str]) -> dict[str, Group]:
        """What may be seen of each; without those that have ended since."""
        return seen_groups(self.find, names)


async def _describe(coordinator: Connection, name: str) -> DescribedGroup | None:
    request = StreamsGroupDescribeRequest(group_ids=[name])
    [group] = (await coordinator.call(request, StreamsGroupDescribeResponse)).groups
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    check_answer(group.error_code, group.error_message, doing=f"describe group {name}")
    return group


def _group_from(group: DescribedGroup) -> Group:
    read = _topics_read(group)
    members = {
        Member(
            id=one.member_id, client_id=one.client_id, host=one.client_host.lstrip("/")
        ): one.assignment
        for one in group.members
    }
    return Group(
        id=group.group_id,
        state=group.group_state.lower(),
        protocol=STREAMS,
        members={member: _partitions(own, read) for member, own in members.items()},
        tasks={
            member: GroupTasks(_names(own.active_tasks), _names(own.standby_tasks))
            for member, own in members.items()
        },
    )


def _topics_read(group: DescribedGroup) -> Mapping[str, list[str]]:
    """By subtopology, what its tasks read."""
    parts = (group.topology.subtopologies or []) if group.topology is not None else []
    return {
        one.subtopology_id: [
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        ]
        for one in parts
    }


def _partitions(own: Assignment, read: Mapping[str, list[str]]) -> tuple[Partition, ...]:
    """Topics of one subtopology may differ in their partitions: some of these may not be there."""
    return tuple(
        Partition(topic, number)
        for task in own.active_tasks
        for topic in read.get(task.subtopology_id, ())
        for number in task.partitions
    )


def _names(tasks: Iterable[TaskIds]) -> tuple[str, ...]:
    """As Kafka Streams writes them: 0_1 is partition 1 of subtopology 0."""
    return tuple(f"{one.subtopology_id}_{number}" for one in tasks for number in one.partitions)
