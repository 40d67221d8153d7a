# ListPartitionReassignments, version 0.
#   Does:     says that nothing is being moved: one node has nowhere to move to. Kafka's
#             TopicCommand asks for it with every --describe.

from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions=range(1))
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse()
