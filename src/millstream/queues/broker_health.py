"""What the brokers of a cluster cannot do at present: full disks, partitions that take no records.

Asked with two requests that every Kafka broker answers: DescribeLogDirs for the disks, Metadata for
partitions that nobody keeps in sync. A user that may not see the disks gets no word of them.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millstream.base.disk import FULL_BYTES
from millstream.base.errors import MillstreamError
from millstream.base.near_names import some_of
from millstream.base.quantity import format_whole_size
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from millstream.broker.wire.messages.metadata import MetadataRequest, MetadataResponse
from millstream.queues.access import Access, Address
from millstream.queues.connection import ConnectionLost, connect, connect_to_any

LOOK_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSeen:
    """`usable_bytes` is 0 while the broker refuses writes for lack of space."""

    broker: str
    path: str
    usable_bytes: int
    total_bytes: int

    @property
    def is_full(self) -> bool:
        return self.usable_bytes < FULL_BYTES

    def __str__(self) -> str:
        free, total = format_whole_size(self.usable_bytes), format_whole_size(self.total_bytes)
        return f"{self.path} of the broker at {self.broker}: {free} of {total} free"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHealth:
    """Partitions by topic. `read_only` ones take no records; of `damaged` ones some are lost.

    `without_room`: topics with a partition whose leader has no room on any of its disks, with one
    of these disks. Of a broker where only some disks are full nobody says which partitions they
    have, so it counts as one that takes records.
    """

    disks: tuple[DiskSeen, ...] = ()
    without_room: Mapping[str, DiskSeen] = field(default_factory=dict)
    read_only: tuple[tuple[str, int], ...] = ()
    damaged: tuple[tuple[str, int], ...] = ()

    @property
    def full(self) -> tuple[DiskSeen, ...]:
        return tuple(disk for disk in self.disks if disk.is_full)

    def troubles(self) -> list[str]:
        """A sentence for each, with what to do next."""
        lines = [
            f"the broker's disk is full: {disk}. Producers wait, readers are served: free some "
            "space (delete topics or records, or other files); writing continues by itself"
            for disk in self.full
        ]
        if self.read_only:
            lines.append(
                f"{names_of(self.read_only)}: takes no records since a write failed; check the "
                "disk, then restart the broker"
            )
        if self.damaged:
            lines.append(
                f"{names_of(self.damaged)}: some records are damaged and not served; restore its "
                "files from a copy, and check the disk"
            )
        return lines

    def refusal_of(self, topics: set[str]) -> str:
        """Why records for these topics are not taken now; empty if they are."""
        full = [self.without_room[name] for name in sorted(topics & self.without_room.keys())]
        if full:
            return f"the broker refuses records, as its disk is full ({full[0]})"
        stuck = [part for part in self.read_only if part[0] in topics]
        if stuck:
            return f"the broker refuses records, as {names_of(tuple(stuck))} is read-only"
        return ""


def broker_health(access: Access, *, seconds_max: float = 5.0) -> BrokerHealth:
    """Ask all brokers now; raises what a connection does that cannot be asked."""
    try:
        return asyncio.run(_asked(access, seconds_max))
    except TimeoutError:
        reason = f"no answer within {seconds_max:g} s"
        raise ConnectionLost(address=access.brokers[0], reason=reason) from None


def health_if_told(access: Access) -> BrokerHealth:
    """The same; nothing is known of brokers that do not answer."""
    try:
        return broker_health(access)
    except MillstreamError:
        return BrokerHealth()


class FollowedHealth:
    """Called as often as one likes: the brokers are asked every few seconds. For one thread."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._known, self._due = BrokerHealth(), 0.0

    def __call__(self) -> BrokerHealth:
        if time.monotonic() >= self._due:
            self._known = health_if_told(self._access)
            self._due = time.monotonic() + LOOK_SECONDS
        return self._known


async def _asked(access: Access, seconds_max: float) -> BrokerHealth:
    async with asyncio.timeout(seconds_max):
        async with await connect_to_any(access) as anyone:
            metadata = await anyone.call(MetadataRequest(topics=None), MetadataResponse)
        disks: dict[int, list[DiskSeen]] = {}
        for node in metadata.brokers:
            address = Address(node.host, node.port)
            async with await connect(address, access) as broker:
                request = DescribeLogDirsRequest(topics=[])
                answer = await broker.call(request, DescribeLogDirsResponse)
                disks[node.node_id] = _disks(address, answer)
    return BrokerHealth(
        disks=tuple(disk for of_node in disks.values() for disk in of_node),
        without_room=topics_without_room(metadata, disks),
        **_partitions(metadata),
    )


def topics_without_room(
    metadata: MetadataResponse, disks: Mapping[int, Sequence[DiskSeen]]
) -> dict[str, DiskSeen]:
    full = {
        node: of_node[0]
        for node, of_node in disks.items()
        if of_node and all(disk.is_full for disk in of_node)
    }
    return {
        topic.name or "": full[part.leader_id]
        for topic in metadata.topics
        for part in topic.partitions
        if part.leader_id in full
    }


def _disks(address: Address, answer: DescribeLogDirsResponse) -> list[DiskSeen]:
    return [
        DiskSeen(
            broker=str(address),
            path=one.log_dir,
            usable_bytes=one.usable_bytes,
            total_bytes=one.total_bytes,
        )
        for one in answer.results
        if one.error_code == ErrorCode.NONE and one.total_bytes >= 0
    ]


def _partitions(metadata: MetadataResponse) -> dict[str, tuple[tuple[str, int], ...]]:
    """A leader that is offline, as it says itself: Apache Kafka has other words for its own."""
    found = [
        (topic.name or "", part)
        for topic in metadata.topics
        for part in topic.partitions
        if part.leader_id in part.offline_replicas
    ]
    return {
        "read_only": tuple((name, p.partition_index) for name, p in found if not p.isr_nodes),
        "damaged": tuple((name, p.partition_index) for name, p in found if p.isr_nodes),
    }


def names_of(partitions: tuple[tuple[str, int], ...]) -> str:
    return some_of([f"{topic}-{number}" for topic, number in partitions])
