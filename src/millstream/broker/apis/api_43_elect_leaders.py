# ElectLeaders, versions 0-2.
#   Does:     says of each partition that its leader is elected already: this node leads them all.

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


@handles(
    ApiKey.ELECT_LEADERS,
    versions=range(3),
    refuse=lambda request, code: _refused(request, code),
)
def elect_leaders(request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    if request.topic_partitions is None:  # all of them, and nothing is to be said of any
        return ElectLeadersResponse()
    counts = {topic.name: len(topic.partitions) for topic in call.topics}
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=wanted.topic,
                partition_result=[
                    _of_partition(wanted.topic, number, counts.get(wanted.topic))
                    for number in wanted.partitions
                ],
            )
            for wanted in request.topic_partitions
        ]
    )


def _of_partition(topic: str, number: int, count: int | None) -> PartitionResult:
    if count is None:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}"
    elif not 0 <= number < count:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has {count} partitions"
    else:
        code, message = ErrorCode.ELECTION_NOT_NEEDED, "this node leads it, as the only one"
    return PartitionResult(partition_id=number, error_code=code, error_message=message)


def _refused(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Version 0 has no error of its own: there each partition has it."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=wanted.topic,
                partition_result=[
                    PartitionResult(partition_id=number, error_code=code)
                    for number in wanted.partitions
                ],
            )
            for wanted in request.topic_partitions or []
        ],
    )
