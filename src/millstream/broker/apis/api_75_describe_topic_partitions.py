# DescribeTopicPartitions, version 0.
#   Does:     topics with their partitions, sorted by name, in pages with a cursor.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code
from millstream.broker.security.acls import ResourceType
from millstream.broker.topics import Topic
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PAGE_PARTITIONS_MAX = 2_000


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=range(1))
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse:
    names = sorted({topic.name for topic in request.topics} or {t.name for t in call.topics})
    start = request.cursor or Cursor(topic_name="", partition_index=0)
    room = min(max(1, request.response_partition_limit), PAGE_PARTITIONS_MAX)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if name < start.topic_name:
            continue
        first = max(0, start.partition_index) if name == start.topic_name else 0
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        answer = _describe(name, first, room, call)
        response.topics.append(answer)
        room -= len(answer.partitions)
        end = first + len(answer.partitions)
        if name in call.topics and end < len(call.topics.named(name).partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return response


def _describe(
    name: str, first: int, count_max: int, call: Call
) -> DescribeTopicPartitionsResponseTopic:
    try:
        topic: Topic = call.topics.named(name)
    except MillstreamError as error:
        return DescribeTopicPartitionsResponseTopic(error_code=error_code(error), name=name)
    node_id = call.node.config.node_id
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        topic_authorized_operations=call.permit.operations_on(ResourceType.TOPIC, name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=node_id,
                leader_epoch=topic.partitions[number].log.leader_epoch,
                replica_nodes=[node_id],
                isr_nodes=topic.partitions[number].in_sync(node_id),
                offline_replicas=topic.partitions[number].offline(node_id),
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for number in range(first, min(first + count_max, len(topic.partitions)))
        ],
    )
