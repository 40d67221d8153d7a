"""The records of `__consumer_offsets`, byte for byte as Kafka lays them out."""

import pytest

from millstream.base.errors import Corrupt
from millstream.broker.groups.group_metadata import GroupMetadata, MemberMetadata
from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.groups.group_records import (
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group_value,
    read_key,
    read_offset_value,
)

WHERE = TopicPartition("orders", 7)
# version 1, group, topic, partition
OFFSET_KEY = b"\0\1\0\7readers\0\6orders\0\0\0\7"
# version 2, group
GROUP_KEY = b"\0\2\0\7readers"

COMMITTED = CommittedOffset(offset=258, leader_epoch=3, metadata="here", committed_ms=0x0102)
OFFSET_VALUE = (
    b"\0\3"  # version
    b"\0\0\0\0\0\0\1\2"  # offset
    b"\0\0\0\3"  # leader epoch
    b"\0\4here"  # metadata
    b"\0\0\0\0\0\0\1\2"  # commit timestamp
)
EXPIRING = CommittedOffset(offset=258, metadata="", committed_ms=0x0102, expires_ms=0x0304)
EXPIRING_VALUE = (
    b"\0\1"  # version: the only one with an expiry
    b"\0\0\0\0\0\0\1\2"  # offset
    b"\0\0"  # metadata
    b"\0\0\0\0\0\0\1\2"  # commit timestamp
    b"\0\0\0\0\0\0\3\4"  # expire timestamp
)

ADA = MemberMetadata(
    member_id="ada-1",
    instance_id="desk",
    client_id="ada",
    client_host="/192.0.2.7",
    rebalance_timeout_ms=30_000,
    session_timeout_ms=10_000,
    subscription=b"topics",
    assignment=b"parts",
)
BOB = MemberMetadata(
    member_id="bob-2",
    instance_id=None,
    client_id="",
    client_host="",
    rebalance_timeout_ms=1,
    session_timeout_ms=2,
    subscription=b"",
    assignment=b"",
)
STABLE = GroupMetadata(
    protocol_type="consumer",
    generation=5,
    protocol_name="range",
    leader="ada-1",
    state_timestamp_ms=0x0102,
    members=(ADA, BOB),
)
STABLE_VALUE = (
    b"\0\3"  # version
    b"\0\x08consumer"  # protocol type
    b"\0\0\0\5"  # generation
    b"\0\5range"  # protocol
    b"\0\5ada-1"  # leader
    b"\0\0\0\0\0\0\1\2"  # current state timestamp
    b"\0\0\0\2"  # members
    b"\0\5ada-1"
    b"\0\4desk"
    b"\0\3ada"
    b"\0\x0a/192.0.2.7"  # ids, client
    b"\0\0\x75\x30"
    b"\0\0\x27\x10"  # rebalance and session timeout
    b"\0\0\0\6topics"
    b"\0\0\0\5parts"
    b"\0\5bob-2"
    b"\xff\xff"
    b"\0\0"
    b"\0\0"  # no instance id
    b"\0\0\0\1"
    b"\0\0\0\2"
    b"\0\0\0\0"
    b"\0\0\0\0"
)
EMPTY = GroupMetadata(
    protocol_type="consumer",
    generation=6,
    protocol_name=None,
    leader=None,
    state_timestamp_ms=0x0102,
)
EMPTY_VALUE = (
    b"\0\3"
    b"\0\x08consumer"
    b"\0\0\0\6"
    b"\xff\xff"
    b"\xff\xff"  # no protocol, no leader
    b"\0\0\0\0\0\0\1\2"
    b"\0\0\0\0"
)


def test_the_key_of_an_offset() -> None:
    assert offset_key("readers", WHERE) == OFFSET_KEY
    assert read_key(OFFSET_KEY) == ("readers", WHERE)


def test_the_key_of_an_offset_in_kafkas_older_version() -> None:
    assert read_key(b"\0\0" + OFFSET_KEY[2:]) == ("readers", WHERE)


def test_the_key_of_a_group() -> None:
    assert group_key("readers") == GROUP_KEY
    assert read_key(GROUP_KEY) == ("readers", None)


@pytest.mark.parametrize(
    ("committed", "value"), [(COMMITTED, OFFSET_VALUE), (EXPIRING, EXPIRING_VALUE)]
)
def test_the_value_of_an_offset(committed: CommittedOffset, value: bytes) -> None:
    assert offset_value(committed) == value
    assert read_offset_value(value) == committed


@pytest.mark.parametrize(("metadata", "value"), [(STABLE, STABLE_VALUE), (EMPTY, EMPTY_VALUE)])
def test_the_value_of_a_group(metadata: GroupMetadata, value: bytes) -> None:
    assert group_value(metadata) == value
    assert read_group_value(value) == metadata


def test_a_group_without_a_protocol_type_comes_back_without_one() -> None:
    bare = GroupMetadata(
        protocol_type=None, generation=0, protocol_name=None, leader=None, state_timestamp_ms=1
    )
    assert read_group_value(group_value(bare)) == bare


@pytest.mark.parametrize(
    "key", [b"", b"\0", b"\0\1\0\7read", b"\0\2\0\7r", b"\0\3\0\2x", b"\0\4\0\1x"]
)
def test_a_key_that_cannot_be_read_is_reported(key: bytes) -> None:
    with pytest.raises(Corrupt, match="__consumer_offsets: a key"):
        read_key(key)


def test_a_cut_value_is_reported() -> None:
    for cut in range(len(OFFSET_VALUE)):
        with pytest.raises(Corrupt, match="an offset cannot be read"):
            read_offset_value(OFFSET_VALUE[:cut])
    for cut in range(len(STABLE_VALUE)):
        with pytest.raises(Corrupt, match="a group cannot be read"):
            read_group_value(STABLE_VALUE[:cut])
