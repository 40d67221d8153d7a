# CreatePartitions, versions 0-3.
#   Does:     adds partitions to topics, durable when answered; validate only.
#   Does not: place replicas; assignments are not looked at.

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@handles(ApiKey.CREATE_PARTITIONS, versions=range(4))
async def create_partitions(
    request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[await _grow(wanted, request.validate_only, call) for wanted in request.topics]
    )


async def _grow(
    wanted: CreatePartitionsTopic, validate_only: bool, call: Call
) -> CreatePartitionsTopicResult:
    answer = CreatePartitionsTopicResult(name=wanted.name)
    topics = call.topics
    try:
        topic = topics.named(wanted.name)
        topics.check_growth(topic, wanted.count)
        if not validate_only:
            await topics.add_partitions(topic, wanted.count)
    except MillstreamError as error:
        answer.error_code, answer.error_message = error_code(error), error_message(error)
    return answer
