# AlterConfigs, versions 0-2.
#   Does:     replaces all overrides of a topic, a group or this broker.

from millstream.base.errors import MillstreamError
from millstream.broker.config_resources import change
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(ApiKey.ALTER_CONFIGS, versions=range(3))
async def alter_configs(request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    return AlterConfigsResponse(
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
    values = {config.name: config.value or "" for config in resource.configs}
    try:
        await change(
            call,
            resource.resource_type,
            resource.resource_name,
            lambda _: values,
            validate_only=validate_only,
        )
    except MillstreamError as error:
        answer.error_code, answer.error_message = error_code(error), error_message(error)
    return answer
