# AlterPartitionReassignments, versions 0-1.
#   Does:     agrees to the one assignment there is: this node.
#   Does not: place replicas elsewhere (INVALID_REPLICA_ASSIGNMENT); no move can be cancelled.

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=range(2))
def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    counts = {topic.name: len(topic.partitions) for topic in call.topics}
    node_id = call.node.config.node_id
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _reassigned(partition, counts.get(topic.name, 0), node_id)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _reassigned(
    partition: ReassignablePartition, count: int, node_id: int
) -> ReassignablePartitionResponse:
    code, message = ErrorCode.NONE, None
    if not 0 <= partition.partition_index < count:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
    elif partition.replicas is None:
        code, message = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing is being moved"
    elif partition.replicas != [node_id]:
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        message = f"the only broker is {node_id}: replicas must be [{node_id}]"
    return ReassignablePartitionResponse(
        partition_index=partition.partition_index, error_code=code, error_message=message
    )
