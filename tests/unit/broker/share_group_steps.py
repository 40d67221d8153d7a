"""What members and operators of a share group ask, in short words."""

from collections.abc import Iterable, Mapping
from typing import Any

from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.share.share_state import ShareState
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from millstream.broker.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from millstream.broker.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from millstream.broker.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.support.served_node import ServedNode

QUEUE = "workers"


class FakeRecords:
    """The other half of share groups: remembers what it was told."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[TopicIdPartition, ShareState]] = {}

    def group_ids(self) -> Iterable[str]:
        return (*self.stored,)

    def positions(self, group_id: str) -> Mapping[TopicIdPartition, ShareState]:
        return self.stored.get(group_id, {})

    async def set_start(self, group_id: str, offsets: Mapping[TopicIdPartition, int]) -> None:
        own = self.stored.setdefault(group_id, {})
        own |= {part: ShareState(start_offset=offset) for part, offset in offsets.items()}

    async def forget(self, group_id: str, topic_ids: Iterable[bytes] | None) -> None:
        gone = None if topic_ids is None else set(topic_ids)
        own = self.stored.pop(group_id, {})
        kept = {p: s for p, s in own.items() if gone is not None and p.topic_id not in gone}
        if kept:
            self.stored[group_id] = kept


def beat_request(
    member_id: str, epoch: int, topics: list[str] | None = None, *, group: str = QUEUE, **more: Any
) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        subscribed_topic_names=topics,
        **more,
    )


def join_share(served: ServedNode, member_id: str = "ada", *topics: str, group: str = QUEUE) -> int:
    """The epoch of a member that has joined."""
    answer = served.ask(beat_request(member_id, 0, list(topics or ("orders",)), group=group))
    assert answer.error_code == ErrorCode.NONE, answer
    epoch: int = answer.member_epoch
    return epoch


def leave_share(served: ServedNode, member_id: str = "ada", *, group: str = QUEUE) -> None:
    assert served.ask(beat_request(member_id, -1, group=group)).error_code == ErrorCode.NONE


def share_positions(
    served: ServedNode, *, version: int = 1, group: str = QUEUE, **topics: list[int]
) -> dict[tuple[str, int], tuple[int, int]]:
    """(start, lag) by topic and partition, of those named or all."""
    wanted = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=t, partitions=p) for t, p in topics.items()
    ]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted or None)
    (answer,) = served.ask(DescribeShareGroupOffsetsRequest(groups=[asked]), version).groups
    assert answer.error_code == ErrorCode.NONE
    return {
        (topic.topic_name, one.partition_index): (one.start_offset, one.lag)
        for topic in answer.topics
        for one in topic.partitions
    }


def set_start(
    served: ServedNode,
    offset: int,
    *,
    topic: str = "orders",
    partition: int = 0,
    group: str = QUEUE,
) -> Any:
    place = AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
    wanted = AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[place])
    return served.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[wanted]))


def forget_topics(served: ServedNode, *topics: str, group: str = QUEUE) -> Any:
    wanted = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    return served.ask(DeleteShareGroupOffsetsRequest(group_id=group, topics=wanted))
