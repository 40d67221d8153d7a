"""Records of the topic `__consumer_offsets`, in Kafka's layouts.

    key 1  OffsetCommitKey     group, topic, partition     -> OffsetCommitValue, version 3
    key 2  GroupMetadataKey    group                       -> GroupMetadataValue, version 3

Each starts with its version as int16. A null value removes what the key names. Kafka's own
formatters for this topic read them. What is kept of consumer groups (KIP-848) is laid out in
`consumer_records.py`, of streams groups (KIP-1071) in `streams/streams_records.py`.
"""

from typing import cast

from millstream.base.errors import Corrupt
from millstream.broker.groups.consumer_records import fact_key, fact_value, read_fact_key
from millstream.broker.groups.group_metadata import GroupMetadata, MemberMetadata
from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.groups.outcome import AnyFact, AnyFactKey, Outcome
from millstream.broker.groups.stored_facts import Fact, FactKey, FactKind
from millstream.broker.streams.streams_facts import StreamsFact, StreamsFactKey
from millstream.broker.streams.streams_records import (
    STREAMS_KEY_VERSIONS,
    read_streams_fact_key,
    streams_fact_key,
    streams_fact_value,
)
from millstream.broker.wire import MalformedMessage, decode_versioned, encode_versioned
from millstream.broker.wire.message import Message, field

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
FACT_VERSIONS = frozenset(int(kind) for kind in FactKind)
VALUE_VERSION = 3


class OffsetCommitKey(Message, versions="0-1"):
    group: str = field("string", "0+", default="")
    topic: str = field("string", "0+", default="")
    partition: int = field("int32", "0+", default=0)


class OffsetCommitValue(Message, versions="0-3"):
    offset: int = field("int64", "0+", default=0)
    leader_epoch: int = field("int32", "3+", default=-1)
    metadata: str = field("string", "0+", default="")
    commit_timestamp: int = field("int64", "0+", default=0)
    expire_timestamp: int = field("int64", "1-1", default=-1)


class GroupMetadataKey(Message, versions="2"):
    group: str = field("string", "0+", default="")


class GroupMetadataMember(Message):
    member_id: str = field("string", "0+", default="")
    group_instance_id: str | None = field("string", "3+", nullable="3+", default=None)
    client_id: str = field("string", "0+", default="")
    client_host: str = field("string", "0+", default="")
    rebalance_timeout: int = field("int32", "1+", default=0)
    session_timeout: int = field("int32", "0+", default=0)
    subscription: bytes = field("bytes", "0+", default=b"")
    assignment: bytes = field("bytes", "0+", default=b"")


class GroupMetadataValue(Message, versions="0-3"):
    protocol_type: str = field("string", "0+", default="")
    generation: int = field("int32", "0+", default=0)
    protocol: str | None = field("string", "0+", nullable="0+", default=None)
    leader: str | None = field("string", "0+", nullable="0+", default=None)
    current_state_timestamp: int = field("int64", "2+", default=-1)
    members: list[GroupMetadataMember] = field([GroupMetadataMember], "0+", default_factory=list)


def offset_key(group_id: str, where: TopicPartition) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=where.topic, partition=where.partition)
    return encode_versioned(key, OFFSET_KEY_VERSION)


def offset_value(committed: CommittedOffset) -> bytes:
    expires_ms = committed.expires_ms
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.committed_ms,
        expire_timestamp=-1 if expires_ms is None else expires_ms,
    )
    # Only version 1 has room for a client's own retention; it has none for the leader epoch.
    return encode_versioned(value, VALUE_VERSION if expires_ms is None else 1)


def group_key(group_id: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group_id), GROUP_KEY_VERSION)


def group_value(metadata: GroupMetadata) -> bytes:
    value = GroupMetadataValue(
        protocol_type=metadata.protocol_type or "",
        generation=metadata.generation,
        protocol=metadata.protocol_name,
        leader=metadata.leader,
        current_state_timestamp=metadata.state_timestamp_ms,
        members=[
            GroupMetadataMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in metadata.members
        ],
    )
    return encode_versioned(value, VALUE_VERSION)


def changes_of(group_id: str, outcome: Outcome, *, now_ms: int) -> list[tuple[bytes, bytes | None]]:
    """What an outcome stores. A consumer group that became a classic one is removed before it."""
    changes: list[tuple[bytes, bytes | None]] = [
        (any_fact_key(group_id, key), None if fact is None else _value(key, fact, now_ms))
        for key, fact in outcome.facts
    ]
    if outcome.metadata is not None:
        changes.append((group_key(group_id), group_value(outcome.metadata)))
    return changes


def any_fact_key(group_id: str, key: AnyFactKey) -> bytes:
    if isinstance(key, StreamsFactKey):
        return streams_fact_key(group_id, key)
    return fact_key(group_id, key)


def _value(key: AnyFactKey, fact: AnyFact, now_ms: int) -> bytes:
    if isinstance(key, FactKey):
        return fact_value(key, cast(Fact, fact), now_ms=now_ms)
    return streams_fact_value(cast(StreamsFact, fact))


def read_key(data: bytes) -> tuple[str, TopicPartition | FactKey | StreamsFactKey | None]:
    """The group a key belongs to, and the partition or the fact that it is about, if any."""
    version = int.from_bytes(data[:2], "big")
    try:
        if version in (0, OFFSET_KEY_VERSION):
            _, offset = decode_versioned(OffsetCommitKey, data)
            return offset.group, TopicPartition(offset.topic, offset.partition)
        if version == GROUP_KEY_VERSION:
            _, group = decode_versioned(GroupMetadataKey, data)
            return group.group, None
        if version in FACT_VERSIONS:
            return read_fact_key(data)
        if version in STREAMS_KEY_VERSIONS:
            return read_streams_fact_key(data)
    except MalformedMessage as error:
        raise Corrupt(f"__consumer_offsets: a key cannot be read: {error}") from error
    raise Corrupt(
        f"__consumer_offsets: a key of version {version}, known are 0 to 3, 5 to 8, 10 to 17 "
        "and 19 to 23"
    )


def read_offset_value(data: bytes) -> CommittedOffset:
    try:
        _, value = decode_versioned(OffsetCommitValue, data)
    except MalformedMessage as error:
        raise Corrupt(f"__consumer_offsets: an offset cannot be read: {error}") from error
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        committed_ms=value.commit_timestamp,
        expires_ms=None if value.expire_timestamp < 0 else value.expire_timestamp,
    )


def read_group_value(data: bytes) -> GroupMetadata:
    try:
        _, value = decode_versioned(GroupMetadataValue, data)
    except MalformedMessage as error:
        raise Corrupt(f"__consumer_offsets: a group cannot be read: {error}") from error
    return GroupMetadata(
        protocol_type=value.protocol_type or None,
        generation=value.generation,
        protocol_name=value.protocol,
        leader=value.leader,
        state_timestamp_ms=value.current_state_timestamp,
        members=tuple(
            MemberMetadata(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout,
                session_timeout_ms=member.session_timeout,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in value.members
        ),
    )
