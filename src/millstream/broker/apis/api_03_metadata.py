# Metadata, versions 0-13.
#   Does:     this node as the only broker, leader and controller; topics by name or id; creates
#             unknown topics where the client and the settings allow it (auto_creation.py). A
#             partition whose log is read-only after a failed write has nobody in sync; it, and one
#             with damaged records, has an offline replica.

import asyncio
from collections.abc import Sequence

from millstream.base.errors import MillstreamError
from millstream.broker.apis.api_60_describe_cluster import operations_on_cluster
from millstream.broker.auto_creation import AutoCreation
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code
from millstream.broker.security.acls import ResourceType
from millstream.broker.topics import Topic, UnknownTopic
from millstream.broker.wire import ZERO_UUID, ApiKey, ErrorCode
from millstream.broker.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

# So many topics of one request are looked up before others have their turn.
LOOKED_UP_AT_ONCE = 1_000


@handles(ApiKey.METADATA, versions=range(14))
async def metadata(request: MetadataRequest, call: Call) -> MetadataResponse:
    node = call.node
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if wants_all:
        topics = [_describe(topic, call) for topic in call.topics]
    else:
        may_create = request.allow_auto_topic_creation or call.version < 4
        topics = await _find_all(request.topics or (), may_create, call)
    if request.include_topic_authorized_operations:
        for topic in topics:
            _tell_operations(topic, call)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=node.config.node_id, host=call.peer.local_host, port=call.peer.local_port
            )
        ],
        cluster_id=node.directory.cluster_id,
        controller_id=node.config.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations_on_cluster(call)
    return response


def _tell_operations(topic: MetadataResponseTopic, call: Call) -> None:
    if not topic.error_code and topic.name is not None:
        operations = call.permit.operations_on(ResourceType.TOPIC, topic.name)
        topic.topic_authorized_operations = operations


async def _find_all(
    wanted: Sequence[MetadataRequestTopic], may_create: bool, call: Call
) -> list[MetadataResponseTopic]:
    creation = AutoCreation(call) if may_create and call.node.config.auto_create_topics else None
    found = []
    for number, one in enumerate(wanted, start=1):
        found.append(await _find(one, creation, call))
        if number % LOOKED_UP_AT_ONCE == 0:
            await asyncio.sleep(0)
    return found


async def _find(
    wanted: MetadataRequestTopic, creation: AutoCreation | None, call: Call
) -> MetadataResponseTopic:
    topics = call.topics
    try:
        try:
            return _describe(topics.find(wanted.name or "", wanted.topic_id), call)
        except UnknownTopic:
            if creation is None:
                raise
            return _describe(await creation.create(wanted.name or ""), call)
    except MillstreamError as error:
        # Before version 12 the name could not be null.
        name = wanted.name if call.version >= 12 else wanted.name or ""
        return MetadataResponseTopic(
            error_code=error_code(error), name=name, topic_id=wanted.topic_id
        )


def _describe(topic: Topic, call: Call) -> MetadataResponseTopic:
    node_id = call.node.config.node_id
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id or ZERO_UUID,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                partition_index=number,
                leader_id=node_id,
                leader_epoch=partition.log.leader_epoch,
                replica_nodes=[node_id],
                isr_nodes=partition.in_sync(node_id),
                offline_replicas=partition.offline(node_id),
            )
            for number, partition in enumerate(topic.partitions)
        ],
    )
