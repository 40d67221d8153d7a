# StreamsGroupHeartbeat, version 0.
#   Does:     everything of the streams group protocol (KIP-1071, streams/streams_group.py) that
#             Kafka 4.3 does; a join makes the group. Makes the internal topics that a topology
#             misses, with the member's own rights and within auto_create_partitions_max.
#   Does not: static members, warm-up tasks, offsets of tasks, patterns of source topics (refused
#             with INVALID_REQUEST, as in Kafka 4.3).

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from millstream.base.errors import MillstreamError
from millstream.broker.auto_creation import NO_MORE, complain, has_room
from millstream.broker.groups.outcome import AnyReply
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import clipped, error_message
from millstream.broker.security.named_in_requests import topics_of
from millstream.broker.streams.internal_topics import NewTopic
from millstream.broker.streams.streams_messages import (
    EndpointPartitions,
    StatusCode,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    UserEndpoint,
)
from millstream.broker.streams.task import TaskId, Tasks, numbers_by_subtopology
from millstream.broker.streams.topology_messages import pairs_from, topology_from
from millstream.broker.topic_config import check_topic_config
from millstream.broker.topics import (
    INTERNAL_TOPICS,
    InvalidTopicName,
    TooManyPartitions,
    TopicExists,
    check_topic_name,
)
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages import streams_group_heartbeat as wire


@handles(ApiKey.STREAMS_GROUP_HEARTBEAT, versions=range(1))
def streams_group_heartbeat(
    request: wire.StreamsGroupHeartbeatRequest, call: Call
) -> wire.StreamsGroupHeartbeatResponse | Coroutine[Any, Any, wire.StreamsGroupHeartbeatResponse]:
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_REQUEST, "the group id is empty")
    fault = _fault_of_names(request)
    if fault is not None:
        return _refuse(ErrorCode.STREAMS_INVALID_TOPOLOGY, fault)
    replied: asyncio.Future[AnyReply] = asyncio.get_running_loop().create_future()
    groups = call.groups(request.group_id)
    # The group hears of it at once, in the order of the requests; only the answer may wait.
    groups.streams_heartbeat(request.group_id, _heartbeat(request, call), replied.set_result)
    return _answer(replied, call)


async def _answer(
    replied: "asyncio.Future[AnyReply]", call: Call
) -> wire.StreamsGroupHeartbeatResponse:
    reply = await replied
    assert isinstance(reply, StreamsHeartbeatReply)
    return _response(reply, await _create_all(reply.to_create, call))


def _refuse(error: ErrorCode, message: str) -> wire.StreamsGroupHeartbeatResponse:
    return wire.StreamsGroupHeartbeatResponse(error_code=error, error_message=clipped(message))


def _fault_of_names(request: wire.StreamsGroupHeartbeatRequest) -> str | None:
    names = topics_of(request.topology) if request.topology is not None else frozenset()
    for name in sorted(names):
        if name in INTERNAL_TOPICS:
            return f"{name} is the broker's own topic and cannot be part of a topology"
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            return error_message(error)
    return None


async def _create_all(wanted: Sequence[NewTopic], call: Call) -> list[str]:
    """Why they could not be made, if so: the member is told. Its next heartbeat tries again."""
    limit = call.node.config.auto_create_partitions_max
    needed = sum(one.partitions for one in wanted)
    if wanted and not has_room(call, needed):
        complain(call, NO_MORE)
        return [
            f"they have {needed} partitions, and the broker would have too many "
            f"(auto_create_partitions_max={limit}); create them (millstream topics create), or "
            "raise the limit"
        ]
    failures: list[str] = []
    for one in wanted:
        try:
            await _create(one, call, partitions_max=limit)
        except TopicExists:
            pass  # another member was quicker
        except TooManyPartitions as error:  # others have created topics meanwhile
            return [*failures, error_message(error)]
        except MillstreamError as error:
            failures.append(f"{one.name}: {error_message(error)}")
    return failures


async def _create(wanted: NewTopic, call: Call, *, partitions_max: int) -> None:
    overrides = {name: check_topic_config(name, value) for name, value in wanted.configs.items()}
    await call.topics.create(
        wanted.name, wanted.partitions, overrides, partitions_max=partitions_max
    )


# What the member says.


def _heartbeat(request: wire.StreamsGroupHeartbeatRequest, call: Call) -> StreamsHeartbeat:
    endpoint, tags = request.user_endpoint, request.client_tags
    return StreamsHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        client_id=call.client_id or "",
        client_host=f"/{call.peer.host}",
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=None if request.topology is None else topology_from(request.topology),
        owned=_owned(request),
        process_id=request.process_id,
        endpoint=None if endpoint is None else UserEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=None if tags is None else pairs_from(tags),
        shuts_down=request.shutdown_application,
        unsupported=_unsupported(request),
    )


def _unsupported(request: wire.StreamsGroupHeartbeatRequest) -> str | None:
    parts = request.topology.subtopologies if request.topology is not None else ()
    asked = {
        "static members (an instance id)": request.instance_id is not None,
        "offsets of tasks": request.task_offsets is not None,
        "end offsets of tasks": request.task_end_offsets is not None,
        "warm-up tasks": bool(request.warmup_tasks),
        "patterns of source topics": any(one.source_topic_regex for one in parts),
    }
    wanted = [what for what, is_asked in asked.items() if is_asked]
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if wanted:
        return f"streams groups do not have {', '.join(wanted)} yet"
    if any(one is None for one in tasks) and any(one is not None for one in tasks):
        return "who says one kind of its tasks says all of them"
    return None


def _owned(request: wire.StreamsGroupHeartbeatRequest) -> Tasks | None:
    if request.active_tasks is None or request.standby_tasks is None:
        return None
    return Tasks(active=_tasks(request.active_tasks), standby=_tasks(request.standby_tasks))


def _tasks(found: Iterable[wire.TaskIds]) -> frozenset[TaskId]:
    return frozenset(TaskId(one.subtopology_id, n) for one in found for n in one.partitions)


# What the group answers.


def _response(
    reply: StreamsHeartbeatReply, failures: Sequence[str]
) -> wire.StreamsGroupHeartbeatResponse:
    assigned, endpoints = reply.assigned, reply.endpoints
    return wire.StreamsGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=None if reply.message is None else clipped(reply.message),
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        status=_statuses(reply, failures),
        active_tasks=None if assigned is None else _task_ids(assigned.active),
        standby_tasks=None if assigned is None else _task_ids(assigned.standby),
        warmup_tasks=None if assigned is None else [],
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else [*map(_endpoint, endpoints)],
    )


def _statuses(reply: StreamsHeartbeatReply, failures: Sequence[str]) -> list[wire.Status]:
    found = [wire.Status(status_code=one.code, status_detail=one.detail) for one in reply.statuses]
    for status in found:
        if failures and status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            reasons = "; ".join(failures)
            detail = f"{status.status_detail}; they could not be made: {reasons}"
            status.status_detail = clipped(detail)
    return found


def _task_ids(tasks: Iterable[TaskId]) -> list[wire.TaskIds]:
    return [
        wire.TaskIds(subtopology_id=id_, partitions=numbers)
        for id_, numbers in numbers_by_subtopology(tasks).items()
    ]


def _endpoint(one: EndpointPartitions) -> wire.EndpointToPartitions:
    return wire.EndpointToPartitions(
        user_endpoint=wire.Endpoint(host=one.endpoint.host, port=one.endpoint.port),
        active_partitions=_topic_partitions(one.active),
        standby_partitions=_topic_partitions(one.standby),
    )


def _topic_partitions(partitions: Mapping[str, list[int]]) -> list[wire.TopicPartition]:
    return [
        wire.TopicPartition(topic=name, partitions=numbers) for name, numbers in partitions.items()
    ]
