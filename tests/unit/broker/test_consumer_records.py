"""The records of consumer groups in `__consumer_offsets`, byte for byte as Kafka lays them out."""

import pytest

from millstream.base.errors import Corrupt
from millstream.broker.groups.consumer_member import (
    ClassicProtocols,
    MemberProfile,
    MemberProgress,
    MemberState,
)
from millstream.broker.groups.consumer_records import fact_key, fact_value, read_fact
from millstream.broker.groups.group_messages import GroupProtocol
from millstream.broker.groups.group_records import read_key
from millstream.broker.groups.stored_facts import Fact, FactKey, FactKind, GroupFact, TargetFact
from millstream.broker.groups.topic_catalog import TopicIdPartition

ID = bytes(range(16))
PROFILE = MemberProfile(
    instance_id="desk",
    client_id="ada",
    client_host="/h",
    rebalance_timeout_ms=30_000,
    topics=frozenset({"b", "a"}),
    assignor="range",
)
CLASSIC = MemberProfile(
    pattern="x.*",
    classic=ClassicProtocols(session_timeout_ms=10_000, protocols=(GroupProtocol("r", b"m"),)),
)
PROGRESS = MemberProgress(
    epoch=5,
    previous_epoch=4,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned={TopicIdPartition(ID, 1): 5, TopicIdPartition(ID, 0): 3},
    revoking={TopicIdPartition(ID, 2): 4},
)

# Strings of keys have an int16 length, those of values an unsigned varint of length + 1.
RECORDS: list[tuple[FactKey, Fact, bytes, bytes]] = [
    (
        FactKey(FactKind.GROUP),
        GroupFact(epoch=7, metadata_hash=258),
        b"\0\3\0\7readers",
        b"\0\0" + b"\0\0\0\7" + b"\1\0\x08" + b"\0\0\0\0\0\0\1\2",  # the hash is tag 0
    ),
    (
        FactKey(FactKind.MEMBER, "ada-1"),
        PROFILE,
        b"\0\5\0\7readers\0\5ada-1",
        b"\0\0"
        b"\5desk\0\4ada\3/h"  # instance, no rack, client
        b"\3\2a\2b\0"  # topics, no pattern
        b"\0\0\x75\x30"  # rebalance timeout
        b"\6range\0",
    ),
    (
        FactKey(FactKind.MEMBER, "old"),
        CLASSIC,
        b"\0\5\0\7readers\0\3old",
        b"\0\0\0\0\1\1\1\4x.*\xff\xff\xff\xff\0"
        b"\1\0\x0c"  # tag 0: the marker of a struct that is there, then the classic protocols
        b"\1\0\0\x27\x10\2\2r\2m\0\0",
    ),
    (FactKey(FactKind.TARGET), TargetFact(epoch=7), b"\0\6\0\7readers", b"\0\0\0\0\0\7\0"),
    (
        FactKey(FactKind.TARGET_OF_MEMBER, "ada-1"),
        frozenset({TopicIdPartition(ID, 1), TopicIdPartition(ID, 0)}),
        b"\0\7\0\7readers\0\5ada-1",
        b"\0\0\2" + ID + b"\3\0\0\0\0\0\0\0\1" + b"\0\0",
    ),
    (
        FactKey(FactKind.PROGRESS, "ada-1"),
        PROGRESS,
        b"\0\x08\0\7readers\0\5ada-1",
        b"\0\0\0\0\0\5\0\0\0\4\2"  # epochs, state
        b"\2" + ID + b"\3\0\0\0\0\0\0\0\1"
        b"\1\0\x09\3\0\0\0\3\0\0\0\5"  # tag 0: since which epoch (KIP-1251)
        b"\2" + ID + b"\2\0\0\0\2"
        b"\1\0\5\2\0\0\0\4\0",
    ),
    (
        FactKey(FactKind.PATTERN, "x.*"),
        frozenset({"xa", "xb"}),
        b"\0\x10\0\7readers\0\3x.*",
        b"\0\0\3\3xa\3xb" + bytes(8) + b"\0\0\0\0\0\0\1\2\0",
    ),
]
IDS = [f"{key.kind.name}-{key.name}" for key, *_ in RECORDS]


@pytest.mark.parametrize(("key", "fact", "key_bytes", "value_bytes"), RECORDS, ids=IDS)
def test_each_record_has_kafkas_layout(
    key: FactKey, fact: Fact, key_bytes: bytes, value_bytes: bytes
) -> None:
    assert fact_key("readers", key) == key_bytes
    assert fact_value(key, fact, now_ms=258) == value_bytes
    assert read_key(key_bytes) == ("readers", key)
    assert read_fact(key, value_bytes) == fact


def test_partitions_without_epochs_of_their_own_have_the_members() -> None:
    """As Kafka wrote them before 4.3."""
    value = b"\0\0\0\0\0\5\0\0\0\4\1\2" + ID + b"\2\0\0\0\1\0\1\0"
    progress = read_fact(FactKey(FactKind.PROGRESS, "a"), value)
    assert isinstance(progress, MemberProgress)
    assert progress.assigned == {TopicIdPartition(ID, 1): 5}


@pytest.mark.parametrize(("key", "fact", "key_bytes", "value_bytes"), RECORDS, ids=IDS)
def test_a_record_that_is_cut_off_is_corrupt(
    key: FactKey, fact: Fact, key_bytes: bytes, value_bytes: bytes
) -> None:
    with pytest.raises(Corrupt):
        read_fact(key, value_bytes[:-1])
