# DescribeCluster, versions 0-2.
#   Does:     this node, which is the whole cluster.

from millstream.broker.handlers import Call, handles
from millstream.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1


@handles(ApiKey.DESCRIBE_CLUSTER, versions=range(3))
def describe_cluster(request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this address is a broker's, not a controller's",
            endpoint_type=BROKERS,
        )
    node_id = call.node.config.node_id
    response = DescribeClusterResponse(
        endpoint_type=BROKERS,
        cluster_id=call.node.directory.cluster_id,
        controller_id=node_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node_id, host=call.peer.local_host, port=call.peer.local_port
            )
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations_on_cluster(call)
    return response


def operations_on_cluster(call: Call) -> int:
    """What the caller may do to the cluster; nothing, for who may not describe it."""
    may_ask = call.permit.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return call.permit.operations_on(ResourceType.CLUSTER) if may_ask else 0
