# DescribeQuorum, versions 0-2.
#   Does:     names this node as the only voter and the leader, with the end of its metadata log.

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

KAFKA_METADATA_TOPIC = "__cluster_metadata"  # ours has another name; clients ask by Kafka's
LISTENER = "CONTROLLER"


@handles(ApiKey.DESCRIBE_QUORUM, versions=range(3))
def describe_quorum(request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    here = Listener(name=LISTENER, host=call.peer.local_host, port=call.peer.local_port)
    return DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    _of_partition(topic.topic_name, partition, call)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
        nodes=[Node(node_id=call.node.config.node_id, listeners=[here])],
    )


def _of_partition(topic: str, partition: RequestPartitionData, call: Call) -> ResponsePartitionData:
    number = partition.partition_index
    if (topic, number) != (KAFKA_METADATA_TOPIC, 0):
        return ResponsePartitionData(
            partition_index=number,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message=f"only {KAFKA_METADATA_TOPIC}-0 has a quorum",
        )
    log, now_ms = call.node.metadata.partition.log, call.node.now_ms()
    node_id = call.node.config.node_id
    itself = ReplicaState(
        replica_id=node_id,
        log_end_offset=log.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return ResponsePartitionData(
        partition_index=number,
        leader_id=node_id,
        leader_epoch=log.leader_epoch,
        high_watermark=log.high_watermark,
        current_voters=[itself],
    )
