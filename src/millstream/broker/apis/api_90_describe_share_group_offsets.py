# DescribeShareGroupOffsets, versions 0-1.
#   Does:     where share groups are: the first offset that is not done, and from version 1 on how
#             many are left (KIP-1226). What a group has not begun is at -1, as is what it does not
#             know, whether there is such a group or not.

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from millstream.base.errors import MillstreamError
from millstream.broker.access.permit import AccessDenied
from millstream.broker.groups.topic_catalog import TopicIdPartition, numbers_by_topic
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.share.share_state import NO_START_OFFSET, ShareState
from millstream.broker.topics import Topic
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

NO_LAG = -1

Positions = Mapping[TopicIdPartition, ShareState]


class WantedTopic(NamedTuple):
    name: str
    partitions: Iterable[int]


@handles(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions=range(2))
def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, call: Call
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[_group(one, call) for one in request.groups])


def _group(
    wanted: DescribeShareGroupOffsetsRequestGroup, call: Call
) -> DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponseGroup(group_id=wanted.group_id)
    try:
        positions = call.groups(wanted.group_id).shares.positions(wanted.group_id)
    except MillstreamError as error:
        answer.error_code, answer.error_message = error_code(error), error_message(error)
        return answer
    if wanted.topics is None:
        topics = [*_all_of(positions, call)]
    else:
        topics = [WantedTopic(one.topic_name, one.partitions) for one in wanted.topics]
    answer.topics = [_topic(one, positions, call) for one in topics]
    return answer


def _all_of(positions: Positions, call: Call) -> Iterator[WantedTopic]:
    numbers = numbers_by_topic(positions)
    for topic in call.topics:
        if topic.id in numbers:
            yield WantedTopic(topic.name, numbers[topic.id])


def _topic(
    wanted: WantedTopic, positions: Positions, call: Call
) -> DescribeShareGroupOffsetsResponseTopic:
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=wanted.name)
    code, message = 0, None
    topic: Topic | None = None
    try:
        topic = call.topics.named(wanted.name)
        answer.topic_id = topic.id
    except AccessDenied as error:
        code, message = int(error_code(error)), error_message(error)
    except MillstreamError:
        pass  # to Kafka it is one that the group does not know
    for number in wanted.partitions:
        one = _position(topic, number, positions)
        one.error_code, one.error_message = code, message
        answer.partitions.append(one)
    return answer


def _position(
    topic: Topic | None, number: int, positions: Positions
) -> DescribeShareGroupOffsetsResponsePartition:
    answer = DescribeShareGroupOffsetsResponsePartition(
        partition_index=number, start_offset=NO_START_OFFSET, lag=NO_LAG
    )
    state = positions.get(TopicIdPartition(topic.id, number)) if topic else None
    if topic is not None and state is not None and state.is_started:
        end_offset = topic.partition(number).log.high_watermark
        answer.start_offset = state.start_offset
        answer.lag = end_offset - state.start_offset - state.complete_count
    return answer
