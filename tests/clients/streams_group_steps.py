"""Members of a streams group (KIP-1071), request by request: of clients only Java is one."""

from typing import Any

from millstream.broker.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from tests.clients.steps import eventually
from tests.support.raw_client import RawClient

VERSION = 0
UNSAID: dict[str, Any] = {
    "active_tasks": None,
    "standby_tasks": None,
    "warmup_tasks": None,
    "client_tags": None,
    "task_offsets": None,
    "task_end_offsets": None,
}
NO_TASKS: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}


def asked(client: RawClient, group: str, **said: Any) -> StreamsGroupHeartbeatResponse:
    request = StreamsGroupHeartbeatRequest(group_id=group, **(UNSAID | said))
    return client.call_coordinator(request, StreamsGroupHeartbeatResponse, VERSION, group=group)


def beat(client: RawClient, group: str, **said: Any) -> StreamsGroupHeartbeatResponse:
    answer = asked(client, group, **said)
    assert answer.error_code == 0, answer.error_message
    return answer


def reading(topic: str) -> Topology:
    """Of an application that reads one topic."""
    return Topology(epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])


def join_streams(client: RawClient, group: str, topic: str) -> StreamsGroupHeartbeatResponse:
    """A thread of an application that reads one topic; returns when it has its tasks."""
    told = beat(
        client,
        group,
        member_id="thread",
        topology=reading(topic),
        process_id="process",
        rebalance_timeout_ms=60_000,
        **NO_TASKS,
    )

    def has_tasks() -> bool:
        nonlocal told
        if not told.active_tasks:
            told = beat(client, group, member_id="thread", member_epoch=told.member_epoch)
        return bool(told.active_tasks)

    eventually(has_tasks, what="the member has tasks")
    return told


def leave_streams(client: RawClient, group: str, member_id: str) -> None:
    beat(client, group, member_id=member_id, member_epoch=-1)
