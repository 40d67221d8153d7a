# ListConfigResources, versions 0-1.
#   Does:     the topics and the broker, and groups that have configuration of their own.
#   Does not: client metrics, which have none here.

from millstream.broker.config_resources import BROKER, GROUP, TOPIC
from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


@handles(ApiKey.LIST_CONFIG_RESOURCES, versions=range(2))
def list_config_resources(
    request: ListConfigResourcesRequest, call: Call
) -> ListConfigResourcesResponse:
    if call.version == 0:  # asks for client metrics only
        return ListConfigResourcesResponse()
    wanted = set(request.resource_types) or {TOPIC, BROKER, GROUP}
    resources = []
    if TOPIC in wanted:
        resources += [
            ConfigResource(resource_name=topic.name, resource_type=TOPIC) for topic in call.topics
        ]
    if BROKER in wanted:
        node_id = str(call.node.config.node_id)
        resources.append(ConfigResource(resource_name=node_id, resource_type=BROKER))
    if GROUP in wanted:
        resources += [
            ConfigResource(resource_name=group_id, resource_type=GROUP)
            for group_id in call.configured_groups()
        ]
    return ListConfigResourcesResponse(config_resources=resources)
