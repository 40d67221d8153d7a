# CreateTopics, versions 2-7.
#   Does:     topics with partitions and configuration, durable when answered; validate only.
#             More than one replica is clamped to one, with a warning.
#   Does not: place replicas; manual assignments only say how many partitions there are.

import logging
from collections import Counter

from millstream.base.errors import MillstreamError
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.security.acls import Operation, ResourceType
from millstream.broker.topic_config import check_topic_config
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

logger = logging.getLogger(__name__)

USE_DEFAULT = -1


@handles(ApiKey.CREATE_TOPICS, versions=range(2, 8))
async def create_topics(request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            await _create(topic, request.validate_only, call)
            if times_named[topic.name] == 1
            else _refuse(topic, ErrorCode.INVALID_REQUEST, "named twice in one request")
            for topic in request.topics
        ]
    )


async def _create(wanted: CreatableTopic, validate_only: bool, call: Call) -> CreatableTopicResult:
    topics = call.topics
    count = len(wanted.assignments) or wanted.num_partitions
    if count == USE_DEFAULT:
        count = call.node.config.default_partitions
    if {one.partition_index for one in wanted.assignments} != set(range(len(wanted.assignments))):
        reason = "the partitions of an assignment must be numbered 0, 1, 2 and so on"
        return _refuse(wanted, ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if wanted.replication_factor == 0 or wanted.replication_factor < USE_DEFAULT:
        reason = f"a replication factor of {wanted.replication_factor} is not possible"
        return _refuse(wanted, ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    try:
        overrides = {
            config.name: check_topic_config(config.name, config.value) for config in wanted.configs
        }
        topics.check_new(wanted.name, count, overrides)
        if wanted.replication_factor > 1:
            logger.warning(
                "topic %s: %d replicas were asked for; one node keeps 1",
                wanted.name,
                wanted.replication_factor,
            )
        answer = CreatableTopicResult(
            name=wanted.name,
            num_partitions=count,
            replication_factor=1,
            configs=[
                CreatableTopicConfigs(name=name, value=value, config_source=1)
                for name, value in overrides.items()
            ],
        )
        if not _may_see_config(wanted.name, call):
            _hide_config(answer)
        if not validate_only:
            answer.topic_id = (await topics.create(wanted.name, count, overrides)).id
    except MillstreamError as error:
        return _refuse(wanted, error_code(error), error_message(error))
    return answer


def _may_see_config(name: str, call: Call) -> bool:
    return call.permit.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)


def _hide_config(answer: CreatableTopicResult) -> None:
    answer.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer.num_partitions = answer.replication_factor = -1
    answer.configs = []


def _refuse(wanted: CreatableTopic, code: int, reason: str) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=wanted.name,
        error_code=code,
        error_message=reason,
        num_partitions=-1,
        replication_factor=-1,
        configs=None,
    )
