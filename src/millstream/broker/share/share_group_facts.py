"""What of a share group outlives the broker: facts, each under a key of its own.

A group names the facts that a call has changed; those together are stored at once or not at all.
Here are no bytes: their layout is in `share_group_records.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.share.share_member import ShareMemberProfile, ShareMemberProgress


class ShareFactKind(IntEnum):
    """Kafka's numbers of the records."""

    MEMBER = 10
    GROUP = 11
    TARGET = 12
    TARGET_OF_MEMBER = 13
    PROGRESS = 14
    PARTITIONS = 15


MEMBER_KINDS = (ShareFactKind.MEMBER, ShareFactKind.TARGET_OF_MEMBER, ShareFactKind.PROGRESS)


class ShareFactKey(NamedTuple):
    """`member_id` is empty for what is the group's own."""

    kind: ShareFactKind
    member_id: str = ""


GROUP_KEY = ShareFactKey(ShareFactKind.GROUP)
TARGET_KEY = ShareFactKey(ShareFactKind.TARGET)
PARTITIONS_KEY = ShareFactKey(ShareFactKind.PARTITIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupFact:
    """The group's epoch, and the hash of the topics that it was bumped for."""

    epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTargetFact:
    epoch: int
    assigned_ms: int


class SharedTopic(NamedTuple):
    """Partitions of one topic that the group has a state of."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTopicsFact:
    by_id: Mapping[bytes, SharedTopic]


ShareFact = (
    ShareGroupFact
    | ShareTargetFact
    | SharedTopicsFact
    | ShareMemberProfile
    | ShareMemberProgress
    | frozenset[TopicIdPartition]
)
# A value of None removes what the key names.
ShareFacts = tuple[tuple[ShareFactKey, ShareFact | None], ...]
