"""What of a streams group outlives the broker: facts, each under a key of its own.

As `groups/stored_facts.py` for consumer groups. Here are no bytes: their layout is in
`streams_records.py`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from millstream.broker.streams.streams_member import StreamsProfile, StreamsProgress
from millstream.broker.streams.task import Tasks
from millstream.broker.streams.topology import Topology


class StreamsFactKind(IntEnum):
    """Kafka's numbers of the records."""

    GROUP = 17
    MEMBER = 19
    TARGET = 20
    TARGET_OF_MEMBER = 21
    PROGRESS = 22
    TOPOLOGY = 23


class StreamsFactKey(NamedTuple):
    """`member_id` is empty for what is the group's own."""

    kind: StreamsFactKind
    member_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupFact:
    """The group's epoch, and what it was bumped for."""

    epoch: int
    metadata_hash: int = 0
    validated_epoch: int = -1  # of the topology whose topics were all there; -1: they are not
    standbys: int | None = None  # of each task with state, as last assigned


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsTargetFact:
    epoch: int
    assigned_ms: int = 0


StreamsFact = (
    StreamsGroupFact | StreamsTargetFact | StreamsProfile | StreamsProgress | Tasks | Topology
)
# A value of None removes what the key names.
StreamsFacts = tuple[tuple[StreamsFactKey, StreamsFact | None], ...]

GROUP_KEY = StreamsFactKey(StreamsFactKind.GROUP)
TARGET_KEY = StreamsFactKey(StreamsFactKind.TARGET)
TOPOLOGY_KEY = StreamsFactKey(StreamsFactKind.TOPOLOGY)
MEMBER_KINDS = (
    StreamsFactKind.MEMBER,
    StreamsFactKind.TARGET_OF_MEMBER,
    StreamsFactKind.PROGRESS,
)
