"""Records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's layouts.

    key 10  ShareGroupMemberMetadataKey            group, member   -> what it told us
    key 11  ShareGroupMetadataKey                  group           -> epoch, hash of topics
    key 12  ShareGroupTargetAssignmentMetadataKey  group           -> epoch of the target, when
    key 13  ShareGroupTargetAssignmentMemberKey    group, member   -> its target
    key 14  ShareGroupCurrentMemberAssignmentKey   group, member   -> what it was told to read
    key 15  ShareGroupStatePartitionMetadataKey    group           -> partitions that have a state

Keys start with that number, values with their version, which is 0. Partitions that are being
initialized or deleted (key 15) are read, and never written: here both happen in one step.
"""

from collections.abc import Iterable

from millstream.base.errors import Corrupt
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.share.share_group_facts import (
    MEMBER_KINDS,
    SharedTopic,
    SharedTopicsFact,
    ShareFact,
    ShareFactKey,
    ShareFactKind,
    ShareFacts,
    ShareGroupFact,
    ShareTargetFact,
)
from millstream.broker.share.share_member import ShareMemberProfile, ShareMemberProgress
from millstream.broker.wire import ZERO_UUID, MalformedMessage, decode_versioned, encode_versioned
from millstream.broker.wire.message import Message, field

SHARE_KEY_VERSIONS = frozenset(int(kind) for kind in ShareFactKind)
VALUE_VERSION = 0
STABLE_STATE = 1  # Kafka's number; a member of a share group has no other


class ShareGroupKey(Message, versions="11-15"):
    group_id: str = field("string", "0+", default="")


class ShareMemberKey(Message, versions="10-14"):
    group_id: str = field("string", "0+", default="")
    member_id: str = field("string", "0+", default="")


class MemberValue(Message, versions="0", flexible="0+"):
    rack_id: str | None = field("string", "0+", nullable="0+", default=None)
    client_id: str = field("string", "0+", default="")
    client_host: str = field("string", "0+", default="")
    subscribed_topic_names: list[str] = field(["string"], "0+", default_factory=list)


class GroupValue(Message, versions="0", flexible="0+"):
    epoch: int = field("int32", "0+", default=0)
    metadata_hash: int = field("int64", "0+", default=0)


class TargetValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = field("int32", "0+", default=0)
    assignment_timestamp: int = field("int64", "0+", tag=0, default=0)


class TopicPartitions(Message):
    topic_id: bytes = field("uuid", "0+", default=ZERO_UUID)
    partitions: list[int] = field(["int32"], "0+", default_factory=list)


class TargetOfMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartitions] = field([TopicPartitions], "0+", default_factory=list)


class ProgressValue(Message, versions="0", flexible="0+"):
    member_epoch: int = field("int32", "0+", default=0)
    previous_member_epoch: int = field("int32", "0+", default=0)
    state: int = field("int8", "0+", default=0)
    assigned_partitions: list[TopicPartitions] = field(
        [TopicPartitions], "0+", default_factory=list
    )


class NamedTopicPartitions(Message):
    topic_id: bytes = field("uuid", "0+", default=ZERO_UUID)
    topic_name: str = field("string", "0+", default="")
    partitions: list[int] = field(["int32"], "0+", default_factory=list)


class NamedTopic(Message):
    topic_id: bytes = field("uuid", "0+", default=ZERO_UUID)
    topic_name: str = field("string", "0+", default="")


class PartitionsValue(Message, versions="0", flexible="0+"):
    initializing_topics: list[NamedTopicPartitions] = field(
        [NamedTopicPartitions], "0+", default_factory=list
    )
    initialized_topics: list[NamedTopicPartitions] = field(
        [NamedTopicPartitions], "0+", default_factory=list
    )
    deleting_topics: list[NamedTopic] = field([NamedTopic], "0+", default_factory=list)


def share_changes_of(group_id: str, facts: ShareFacts) -> list[tuple[bytes, bytes | None]]:
    return [
        (share_fact_key(group_id, key), None if fact is None else share_fact_value(fact))
        for key, fact in facts
    ]


def share_fact_key(group_id: str, key: ShareFactKey) -> bytes:
    if key.kind in MEMBER_KINDS:
        message = ShareMemberKey(group_id=group_id, member_id=key.member_id)
        return encode_versioned(message, key.kind)
    return encode_versioned(ShareGroupKey(group_id=group_id), key.kind)


def is_share_key(data: bytes) -> bool:
    return int.from_bytes(data[:2], "big") in SHARE_KEY_VERSIONS


def read_share_fact_key(data: bytes) -> tuple[str, ShareFactKey]:
    """Of a key whose number is a `ShareFactKind`."""
    try:
        kind = ShareFactKind(int.from_bytes(data[:2], "big"))
        if kind in MEMBER_KINDS:
            _, member = decode_versioned(ShareMemberKey, data)
            return member.group_id, ShareFactKey(kind, member.member_id)
        _, group = decode_versioned(ShareGroupKey, data)
        return group.group_id, ShareFactKey(kind)
    except (MalformedMessage, ValueError) as error:
        raise Corrupt(f"__consumer_offsets: a share group's key cannot be read: {error}") from error


def share_fact_value(fact: ShareFact) -> bytes:
    return encode_versioned(_message(fact), VALUE_VERSION)


def _message(fact: ShareFact) -> Message:
    match fact:
        case ShareGroupFact():
            return GroupValue(epoch=fact.epoch, metadata_hash=fact.metadata_hash)
        case ShareTargetFact():
            return TargetValue(
                assignment_epoch=fact.epoch, assignment_timestamp=max(0, fact.assigned_ms)
            )
        case SharedTopicsFact():
            return PartitionsValue(initialized_topics=_named_topics(fact))
        case ShareMemberProfile():
            return MemberValue(
                rack_id=fact.rack_id,
                client_id=fact.client_id,
                client_host=fact.client_host,
                subscribed_topic_names=sorted(fact.topics),
            )
        case ShareMemberProgress():
            return ProgressValue(
                member_epoch=fact.epoch,
                previous_member_epoch=fact.previous_epoch,
                state=STABLE_STATE,
                assigned_partitions=_topics(fact.assigned),
            )
        case frozenset():
            return TargetOfMemberValue(topic_partitions=_topics(fact))


def read_share_fact(key: ShareFactKey, data: bytes) -> ShareFact:
    try:
        return _read(key.kind, data)
    except MalformedMessage as error:
        raise Corrupt(f"__consumer_offsets: {key} cannot be read: {error}") from error


def _read(kind: ShareFactKind, data: bytes) -> ShareFact:
    match kind:
        case ShareFactKind.GROUP:
            _, group = decode_versioned(GroupValue, data)
            return ShareGroupFact(epoch=group.epoch, metadata_hash=group.metadata_hash)
        case ShareFactKind.TARGET:
            _, target = decode_versioned(TargetValue, data)
            return ShareTargetFact(
                epoch=target.assignment_epoch, assigned_ms=target.assignment_timestamp
            )
        case ShareFactKind.PARTITIONS:
            _, partitions = decode_versioned(PartitionsValue, data)
            return _shared_topics(partitions)
        case ShareFactKind.MEMBER:
            _, member = decode_versioned(MemberValue, data)
            return _profile(member)
        case ShareFactKind.PROGRESS:
            _, progress = decode_versioned(ProgressValue, data)
            return ShareMemberProgress(
                epoch=progress.member_epoch,
                previous_epoch=progress.previous_member_epoch,
                assigned=_partitions(progress.assigned_partitions),
            )
        case ShareFactKind.TARGET_OF_MEMBER:
            _, own = decode_versioned(TargetOfMemberValue, data)
            return _partitions(own.topic_partitions)


def _profile(value: MemberValue) -> ShareMemberProfile:
    return ShareMemberProfile(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
    )


def _shared_topics(value: PartitionsValue) -> SharedTopicsFact:
    """What Kafka had begun to initialize is not there yet: the group begins it again."""
    return SharedTopicsFact(
        by_id={
            topic.topic_id: SharedTopic(topic.topic_name, frozenset(topic.partitions))
            for topic in value.initialized_topics
        }
    )


def _named_topics(fact: SharedTopicsFact) -> list[NamedTopicPartitions]:
    return [
        NamedTopicPartitions(
            topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions)
        )
        for topic_id, topic in sorted(fact.by_id.items())
    ]


def _topics(partitions: Iterable[TopicIdPartition]) -> list[TopicPartitions]:
    found: dict[bytes, TopicPartitions] = {}
    for part in sorted(partitions):
        topic = found.setdefault(part.topic_id, TopicPartitions(topic_id=part.topic_id))
        topic.partitions.append(part.partition)
    return [*found.values()]


def _partitions(topics: Iterable[TopicPartitions]) -> frozenset[TopicIdPartition]:
    return frozenset(
        TopicIdPartition(topic.topic_id, number) for topic in topics for number in topic.partitions
    )
