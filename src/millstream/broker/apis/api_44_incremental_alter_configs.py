# IncrementalAlterConfigs, versions 0-1.
#   Does:     set, delete, append and subtract single overrides of a topic, a group or this broker.

from millstream.base.errors import MillstreamError
from millstream.broker.config_resources import change, inherited_list
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.topic_config import InvalidConfig
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


@handles(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=range(2))
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            await _alter(resource, request.validate_only, call) for resource in request.resources
        ]
    )


async def _alter(
    resource: AlterConfigsResource, validate_only: bool, call: Call
) -> AlterConfigsResourceResponse:
    answer = AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )

    def apply_all(overrides: dict[str, str]) -> dict[str, str]:
        for config in resource.configs:
            _apply(config, overrides, resource.resource_type, call)
        return overrides

    try:
        await change(
            call,
            resource.resource_type,
            resource.resource_name,
            apply_all,
            validate_only=validate_only,
        )
    except MillstreamError as error:
        answer.error_code, answer.error_message = error_code(error), error_message(error)
    return answer


def _apply(
    config: AlterableConfig, overrides: dict[str, str], resource_type: int, call: Call
) -> None:
    name, value = config.name, config.value
    if config.config_operation == DELETE:
        overrides.pop(name, None)
        return
    if value is None:
        raise InvalidConfig(name=name, value=None, reason="a value is required")
    if config.config_operation == SET:
        overrides[name] = value
        return
    if config.config_operation not in (APPEND, SUBTRACT):
        reason = f"unknown operation {config.config_operation}"
        raise InvalidConfig(name=name, value=value, reason=reason)
    if name in overrides:
        present = overrides[name]  # it may be empty
    else:
        present = inherited_list(call.node, resource_type, name)
    words = [word for word in present.split(",") if word]
    if config.config_operation == APPEND:
        overrides[name] = ",".join([*words, *(w for w in value.split(",") if w not in words)])
    else:
        overrides[name] = ",".join(word for word in words if word not in value.split(","))
