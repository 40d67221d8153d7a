"""The state of the one broker node, as handlers see it: it only ties the parts together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from secrets import randbelow
from typing import TYPE_CHECKING

from millstream.base.clock import Clock
from millstream.broker.access.access_control import AccessControl
from millstream.broker.access.admission import Admission
from millstream.broker.access.client_quotas import ClientQuotas
from millstream.broker.access.complaints import Complaints
from millstream.broker.access.logins import Logins
from millstream.broker.compactor import Compactor
from millstream.broker.config import BrokerConfig
from millstream.broker.durable_state import DurableState
from millstream.broker.fetch_sessions import FetchSessions
from millstream.broker.group_commit import GroupCommit
from millstream.broker.metrics.counts import BrokerCounts
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.request_memory import RequestMemory
from millstream.broker.topics import Topics
from millstream.broker.wire import Message
from millstream.log.log_directory import LogDirectory

if TYPE_CHECKING:
    from millstream.broker.connection import Connection
    from millstream.broker.group_coordinator import GroupCoordinator
    from millstream.broker.handlers import Later
    from millstream.broker.sharing.share_partitions import SharePartitions
    from millstream.broker.transaction_coordinator import TransactionCoordinator


@dataclass(slots=True, kw_only=True)
class Node:
    """Owned by the loop."""

    config: BrokerConfig
    directory: LogDirectory
    commit: GroupCommit
    metadata: DurableState
    access: AccessControl
    complaints: Complaints
    admission: Admission
    logins: Logins
    quotas: ClientQuotas
    topics: Topics
    compactor: Compactor
    groups: GroupCoordinator
    share_partitions: SharePartitions
    producer_ids: ProducerIds
    transactions: TransactionCoordinator
    request_memory: RequestMemory
    # For reads that must wait for the device.
    read_threads: ThreadPoolExecutor
    now_ms: Clock
    api_versions: Callable[..., Message]
    # Their ids are drawn at random, so that nobody goes on with another's by chance.
    fetch_sessions: FetchSessions = field(
        default_factory=lambda: FetchSessions(partial(randbelow, 1 << 31))
    )
    metrics: BrokerCounts = field(default_factory=BrokerCounts)
    connections: set[Connection] = field(default_factory=set)
    # Requests that are finished whatever becomes of the connection they came by.
    work: set[asyncio.Task[Message | Later]] = field(default_factory=set)

    def admit(self, connection: Connection) -> None:
        self.metrics.connections_accepted += 1
        self.connections.add(connection)

    def dismiss(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.share_partitions.disconnect(id(connection.peer))
