"""Records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's layouts.

    key 3   ConsumerGroupMetadataKey                 group              -> epoch, hash of topics
    key 5   ConsumerGroupMemberMetadataKey           group, member      -> what it told us
    key 6   ConsumerGroupTargetAssignmentMetadataKey group              -> epoch of the target
    key 7   ConsumerGroupTargetAssignmentMemberKey   group, member      -> its target
    key 8   ConsumerGroupCurrentMemberAssignmentKey  group, member      -> how far it has come
    key 16  ConsumerGroupRegularExpressionKey        group, expression  -> the topics it matches

Keys start with that number, values with their version, which is 0. (Key 4 is of Kafka before 4.1.)
"""

from collections.abc import Iterable

from millstream.base.errors import Corrupt
from millstream.broker.groups.consumer_member import (
    ClassicProtocols,
    Holdings,
    MemberProfile,
    MemberProgress,
    MemberState,
)
from millstream.broker.groups.group_messages import GroupProtocol
from millstream.broker.groups.stored_facts import Fact, FactKey, FactKind, GroupFact, TargetFact
from millstream.broker.groups.topic_catalog import TopicIdPartition, numbers_by_topic
from millstream.broker.wire import (
    ZERO_UUID,
    MalformedMessage,
    decode_versioned,
    encode_versioned,
)
from millstream.broker.wire.message import Message, field

VALUE_VERSION = 0
OWN_KINDS = (
    FactKind.CLASSIC_GROUP,
    FactKind.GROUP,
    FactKind.TARGET,
)  # no name in the key


class GroupKey(Message, versions="2-6"):
    group: str = field("string", "0+", default="")


class NamedKey(Message, versions="5-16"):
    """A member of the group, or a regular expression."""

    group: str = field("string", "0+", default="")
    name: str = field("string", "0+", default="")


class GroupValue(Message, versions="0", flexible="0+"):
    epoch: int = field("int32", "0+", default=0)
    metadata_hash: int = field("int64", "0+", tag=0, default=0)


class ClassicProtocol(Message):
    name: str = field("string", "0+", default="")
    metadata: bytes = field("bytes", "0+", default=b"")


class ClassicMemberMetadata(Message):
    session_timeout_ms: int = field("int32", "0+", default=-1)
    supported_protocols: list[ClassicProtocol] = field(
        [ClassicProtocol], "0+", default_factory=list
    )


class MemberValue(Message, versions="0", flexible="0+"):
    instance_id: str | None = field("string", "0+", nullable="0+", default=None)
    rack_id: str | None = field("string", "0+", nullable="0+", default=None)
    client_id: str = field("string", "0+", default="")
    client_host: str = field("string", "0+", default="")
    subscribed_topic_names: list[str] = field(["string"], "0+", default_factory=list)
    subscribed_topic_regex: str | None = field("string", "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = field("int32", "0+", default=-1)
    server_assignor: str | None = field("string", "0+", nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, "0+", nullable="0+", tag=0, default=None
    )


class TargetValue(Message, versions="0", flexible="0+"):
    assignment_epoch: int = field("int32", "0+", default=0)


class TargetTopic(Message):
    topic_id: bytes = field("uuid", "0+", default=ZERO_UUID)
    partitions: list[int] = field(["int32"], "0+", default_factory=list)


class TargetOfMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TargetTopic] = field([TargetTopic], "0+", default_factory=list)


class HeldTopic(Message):
    topic_id: bytes = field("uuid", "0+", default=ZERO_UUID)
    partitions: list[int] = field(["int32"], "0+", default_factory=list)
    assignment_epochs: list[int] | None = field(["int32"], "0+", nullable="0+", tag=0, default=None)


class ProgressValue(Message, versions="0", flexible="0+"):
    member_epoch: int = field("int32", "0+", default=0)
    previous_member_epoch: int = field("int32", "0+", default=0)
    state: int = field("int8", "0+", default=0)
    assigned_partitions: list[HeldTopic] = field([HeldTopic], "0+", default_factory=list)
    partitions_pending_revocation: list[HeldTopic] = field([HeldTopic], "0+", default_factory=list)


class PatternValue(Message, versions="0", flexible="0+"):
    topics: list[str] = field(["string"], "0+", default_factory=list)
    version: int = field("int64", "0+", default=0)
    timestamp: int = field("int64", "0+", default=0)


def fact_key(group_id: str, key: FactKey) -> bytes:
    if key.kind in OWN_KINDS:
        return encode_versioned(GroupKey(group=group_id), key.kind)
    return encode_versioned(NamedKey(group=group_id, name=key.name), key.kind)


def read_fact_key(data: bytes) -> tuple[str, FactKey]:
    """Of a key whose number is a `FactKind`."""
    kind = FactKind(int.from_bytes(data[:2], "big"))
    if kind in OWN_KINDS:
        _, own = decode_versioned(GroupKey, data)
        return own.group, FactKey(kind)
    _, named = decode_versioned(NamedKey, data)
    return named.group, FactKey(kind, named.name)


def fact_value(key: FactKey, fact: Fact, *, now_ms: int) -> bytes:
    return encode_versioned(_message(key, fact, now_ms), VALUE_VERSION)


def _message(key: FactKey, fact: Fact, now_ms: int) -> Message:
    match fact:
        case GroupFact():
            return GroupValue(epoch=fact.epoch, metadata_hash=fact.metadata_hash)
        case TargetFact():
            return TargetValue(assignment_epoch=fact.epoch)
        case MemberProfile():
            return _member_value(fact)
        case MemberProgress():
            return _progress_value(fact)
    if key.kind is FactKind.PATTERN:
        return PatternValue(topics=sorted(str(name) for name in fact), timestamp=now_ms)
    partitions = [part for part in fact if isinstance(part, TopicIdPartition)]
    return TargetOfMemberValue(
        topic_partitions=[
            TargetTopic(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in numbers_by_topic(partitions).items()
        ]
    )


def read_fact(key: FactKey, data: bytes) -> Fact:
    try:
        return _read(key.kind, data)
    except (MalformedMessage, ValueError) as error:
        raise Corrupt(f"__consumer_offsets: {key} cannot be read: {error}") from error


def _read(kind: FactKind, data: bytes) -> Fact:
    match kind:
        case FactKind.CLASSIC_GROUP:
            raise ValueError("a classic group is no fact of a consumer group")
        case FactKind.GROUP:
            _, group = decode_versioned(GroupValue, data)
            return GroupFact(epoch=group.epoch, metadata_hash=group.metadata_hash)
        case FactKind.TARGET:
            _, target = decode_versioned(TargetValue, data)
            return TargetFact(epoch=target.assignment_epoch)
        case FactKind.MEMBER:
            _, member = decode_versioned(MemberValue, data)
            return _profile(member)
        case FactKind.PROGRESS:
            _, progress = decode_versioned(ProgressValue, data)
            return _progress(progress)
        case FactKind.PATTERN:
            _, pattern = decode_versioned(PatternValue, data)
            return frozenset(pattern.topics)
        case FactKind.TARGET_OF_MEMBER:
            _, own = decode_versioned(TargetOfMemberValue, data)
            return frozenset(
                TopicIdPartition(topic.topic_id, number)
                for topic in own.topic_partitions
                for number in topic.partitions
            )


def _member_value(profile: MemberProfile) -> MemberValue:
    classic = profile.classic
    return MemberValue(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topics),
        subscribed_topic_regex=profile.pattern,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in classic.protocols
            ],
        ),
    )


def _profile(value: MemberValue) -> MemberProfile:
    classic = value.classic_member_metadata
    return MemberProfile(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topics=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicProtocols(
            session_timeout_ms=classic.session_timeout_ms,
            protocols=tuple(
                GroupProtocol(protocol.name, protocol.metadata)
                for protocol in classic.supported_protocols
            ),
        ),
    )


def _progress_value(progress: MemberProgress) -> ProgressValue:
    return ProgressValue(
        member_epoch=progress.epoch,
        previous_member_epoch=progress.previous_epoch,
        state=progress.state,
        assigned_partitions=_held_topics(progress.assigned),
        partitions_pending_revocation=_held_topics(progress.revoking),
    )


def _progress(value: ProgressValue) -> MemberProgress:
    return MemberProgress(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_holdings(value.assigned_partitions, value.member_epoch),
        revoking=_holdings(value.partitions_pending_revocation, value.member_epoch),
    )


def _held_topics(held: Holdings) -> list[HeldTopic]:
    return [
        HeldTopic(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=[held[TopicIdPartition(topic_id, number)] for number in numbers],
        )
        for topic_id, numbers in numbers_by_topic(held).items()
    ]


def _holdings(topics: Iterable[HeldTopic], member_epoch: int) -> Holdings:
    """Without epochs of their own (Kafka before 4.3) partitions have the member's."""
    return {
        TopicIdPartition(topic.topic_id, number): epoch
        for topic in topics
        for number, epoch in zip(
            topic.partitions,
            topic.assignment_epochs or [member_epoch] * len(topic.partitions),
            strict=True,
        )
    }
