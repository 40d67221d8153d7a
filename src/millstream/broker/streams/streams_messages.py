"""What a member says to a streams group (KIP-1071), and what the group answers: one call for all.

Values only, as in `groups/group_messages.py`. A field that is None says: as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from millstream.broker.groups.group_messages import NO_MEMBER_ID
from millstream.broker.streams.task import Tasks
from millstream.broker.streams.topology import Topology
from millstream.broker.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from millstream.broker.streams.internal_topics import NewTopic

NO_ENDPOINT_EPOCH = -1


class StatusCode(IntEnum):
    """Kafka's numbers: clients act on them."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UserEndpoint:
    """Where an instance can be asked for its state; said by the application, not looked at here."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPartitions:
    """The partitions whose state is behind an endpoint: by topic, their numbers."""

    endpoint: UserEndpoint
    active: Mapping[str, list[int]] = field(default_factory=dict)
    standby: Mapping[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """StreamsGroupHeartbeat: joins with epoch 0, leaves with -1."""

    member_id: str = NO_MEMBER_ID
    epoch: int
    endpoint_epoch: int = NO_ENDPOINT_EPOCH
    client_id: str = ""
    client_host: str = ""
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1  # negative: as before
    topology: Topology | None = None
    owned: Tasks | None = None
    process_id: str | None = None
    endpoint: UserEndpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    shuts_down: bool = False  # the whole application shall stop
    # Said by clients to come, and refused as Kafka 4.3 refuses it.
    unsupported: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeatReply:
    """`assigned` and `endpoints` are None where they have not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = NO_MEMBER_ID
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Tasks | None = None
    statuses: tuple[Status, ...] = ()
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    to_create: tuple[NewTopic, ...] = ()
