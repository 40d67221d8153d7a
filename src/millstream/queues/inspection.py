"""What can be seen of queues from outside: which there are, who works on them, how much waits.

Asks brokers and changes nothing. A queue is a share group whose name begins as queues' do.
"""

from dataclasses import dataclass

from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.share_group_describe import DescribedGroup
from millstream.queues.access import Access
from millstream.queues.connection import Connection
from millstream.queues.group_questions import (
    at_coordinator,
    describe,
    offsets_of,
    share_group_names,
)
from millstream.queues.terms import GROUP_PREFIX

NOT_STARTED = -1  # Kafka's start offset of a partition that nobody has fetched from yet


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
    groups = await share_group_names(access)
    return sorted(
        group.removeprefix(GROUP_PREFIX) for group in groups if group.startswith(GROUP_PREFIX)
    )


async def see_queue(access: Access, name: str) -> QueueSeen | None:
    """None if there is no such queue."""

    async def see(coordinator: Connection) -> QueueSeen | None:
        described = await describe(coordinator, GROUP_PREFIX + name)
        if described is None:
            return None
        return QueueSeen(
            name=name,
            state=described.group_state.lower(),
            workers=_workers(described),
            backlog=await _backlog(coordinator, name),
        )

    return await at_coordinator(access, GROUP_PREFIX + name, see)


def _workers(group: DescribedGroup) -> tuple[WorkerSeen, ...]:
    return tuple(
        WorkerSeen(
            id=member.member_id,
            host=member.client_host.removeprefix("/"),
            partitions=sum(len(one.partitions) for one in member.assignment.topic_partitions),
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    )


async def _backlog(coordinator: Connection, queue: str) -> tuple[Backlog, ...]:
    partitions = [
        part
        for topic in await offsets_of(coordinator, GROUP_PREFIX + queue)
        if topic.topic_name == queue
        for part in topic.partitions
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
