"""What of a consumer group outlives the broker: facts, each under a key of its own.

A group names the facts that a call has changed; those together are stored at once or not at all.
Here are no bytes: their layout is in `consumer_records.py`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from millstream.broker.groups.consumer_member import MemberProfile, MemberProgress
from millstream.broker.groups.topic_catalog import TopicIdPartition


class FactKind(IntEnum):
    """Kafka's numbers of the records."""

    CLASSIC_GROUP = 2  # only to remove it: the group goes on as a consumer group
    GROUP = 3
    MEMBER = 5
    TARGET = 6
    TARGET_OF_MEMBER = 7
    PROGRESS = 8
    PATTERN = 16


class FactKey(NamedTuple):
    """`name` is a member id or a pattern; empty for what is the group's own."""

    kind: FactKind
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFact:
    """The group's epoch, and the hash of the topics that it was bumped for."""

    epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFact:
    epoch: int


Fact = (
    GroupFact
    | TargetFact
    | MemberProfile
    | MemberProgress
    | frozenset[TopicIdPartition]
    | frozenset[str]
)
# A value of None removes what the key names.
Facts = tuple[tuple[FactKey, Fact | None], ...]
