"""Steps of the tests of share groups: what librdkafka's admin client cannot ask, asked bare."""

from dataclasses import dataclass

from millstream.broker.wire import Message
from millstream.broker.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from millstream.broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.broker.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from millstream.broker.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.support.raw_client import RawClient

GROUP_RESOURCE = 32


@dataclass(frozen=True, slots=True)
class Position:
    start: int
    lag: int


def join_share_group(bootstrap: str, group: str, topic: str, member_id: str = "ada") -> None:
    """A member that joins, and is not heard of again."""
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member_id, member_epoch=0, subscribed_topic_names=[topic]
    )
    with RawClient(bootstrap) as client:
        answer = client.call_coordinator(request, ShareGroupHeartbeatResponse, 1, group=group)
    assert answer.error_code == 0, answer.error_message


def describe_share_group(bootstrap: str, group: str) -> DescribedGroup:
    with RawClient(bootstrap) as client:
        request = ShareGroupDescribeRequest(group_ids=[group])
        return client.call(request, ShareGroupDescribeResponse, 1).groups[0]


def members_of(bootstrap: str, group: str) -> dict[str, set[tuple[str, int]]]:
    """By member id: the partitions that it reads."""
    return {
        member.member_id: {
            (topic.topic_name, number)
            for topic in member.assignment.topic_partitions
            for number in topic.partitions
        }
        for member in describe_share_group(bootstrap, group).members
    }


def positions_of(bootstrap: str, group: str) -> dict[tuple[str, int], Position]:
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
    with RawClient(bootstrap) as client:
        request: Message = DescribeShareGroupOffsetsRequest(groups=[asked])
        (answer,) = client.call(request, DescribeShareGroupOffsetsResponse, 1).groups
    assert answer.error_code == 0, answer.error_message
    return {
        (topic.topic_name, one.partition_index): Position(one.start_offset, one.lag)
        for topic in answer.topics
        for one in topic.partitions
    }


def configure_group(bootstrap: str, group: str, **configs: str) -> None:
    """`share_auto_offset_reset="earliest"`, say."""
    wanted = [AlterableConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()]
    resource = AlterConfigsResource(
        resource_type=GROUP_RESOURCE, resource_name=group, configs=wanted
    )
    with RawClient(bootstrap) as client:
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (answer,) = client.call(request, IncrementalAlterConfigsResponse, 1).responses
    assert answer.error_code == 0, answer.error_message
