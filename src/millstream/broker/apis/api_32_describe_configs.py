# DescribeConfigs, versions 1-4.
#   Does:     topics (all names, with source and synonyms), groups and this broker.
#   Does not: broker loggers, client metrics.

from collections.abc import Iterable

from millstream.base.errors import MillstreamError
from millstream.broker.config_resources import BROKER, GROUP, TOPIC, ConfigEntry, describe
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@handles(ApiKey.DESCRIBE_CONFIGS, versions=range(1, 5))
def describe_configs(request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(resource, request, call) for resource in request.resources]
    )


def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, call: Call
) -> DescribeConfigsResult:
    answer = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    if resource.resource_type not in (TOPIC, BROKER, GROUP):
        answer.error_code = ErrorCode.INVALID_REQUEST
        answer.error_message = f"configs of resource type {resource.resource_type} are not kept"
        return answer
    try:
        entries = describe(call, resource.resource_type, resource.resource_name)
    except MillstreamError as error:
        answer.error_code, answer.error_message = error_code(error), error_message(error)
        return answer
    answer.configs = list(_rows(entries, resource.configuration_keys, request))
    return answer


def _rows(
    entries: Iterable[ConfigEntry], names: list[str] | None, request: DescribeConfigsRequest
) -> Iterable[DescribeConfigsResourceResult]:
    for entry in entries:
        if not names or entry.name in names:  # an empty list asks for all, as null does
            yield DescribeConfigsResourceResult(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                is_sensitive=entry.is_secret,
                config_source=entry.source,
                synonyms=[
                    DescribeConfigsSynonym(name=name, value=value, source=source)
                    for name, value, source in entry.synonyms
                ]
                if request.include_synonyms
                else [],
                config_type=entry.type,
                documentation=entry.help if request.include_documentation else None,
            )
