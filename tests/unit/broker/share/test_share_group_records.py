"""The records of share groups in `__consumer_offsets`, byte for byte as Kafka lays them out."""

import pytest

from millstream.base.errors import Corrupt
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.share.share_group_facts import (
    GROUP_KEY,
    PARTITIONS_KEY,
    TARGET_KEY,
    SharedTopic,
    SharedTopicsFact,
    ShareFact,
    ShareFactKey,
    ShareFactKind,
    ShareGroupFact,
    ShareTargetFact,
)
from millstream.broker.share.share_group_records import (
    read_share_fact,
    read_share_fact_key,
    share_fact_key,
    share_fact_value,
)
from millstream.broker.share.share_member import ShareMemberProfile, ShareMemberProgress

ID = bytes(range(16))
PARTS = frozenset({TopicIdPartition(ID, 0), TopicIdPartition(ID, 2)})
PARTS_BYTES = b"\2" + ID + b"\3\0\0\0\0\0\0\0\2\0"
MEMBER = ShareFactKey(ShareFactKind.MEMBER, "ada")
TARGET_OF_ADA = ShareFactKey(ShareFactKind.TARGET_OF_MEMBER, "ada")
PROGRESS = ShareFactKey(ShareFactKind.PROGRESS, "ada")

RECORDS: list[tuple[ShareFactKey, ShareFact, bytes, bytes]] = [
    (
        MEMBER,
        ShareMemberProfile(client_id="c", client_host="/h", topics=frozenset({"b", "a"})),
        b"\0\x0a\0\1g\0\3ada",
        b"\0\0" b"\0" b"\2c" b"\3/h" b"\3\2a\2b" b"\0",
    ),
    (
        GROUP_KEY,
        ShareGroupFact(epoch=3, metadata_hash=-1),
        b"\0\x0b\0\1g",
        b"\0\0" b"\0\0\0\3" b"\xff\xff\xff\xff\xff\xff\xff\xff" b"\0",
    ),
    (
        TARGET_KEY,
        ShareTargetFact(epoch=3, assigned_ms=256),
        b"\0\x0c\0\1g",
        b"\0\0" b"\0\0\0\3" b"\1\0\x08\0\0\0\0\0\0\1\0",
    ),
    (TARGET_OF_ADA, PARTS, b"\0\x0d\0\1g\0\3ada", b"\0\0" + PARTS_BYTES + b"\0"),
    (
        PROGRESS,
        ShareMemberProgress(epoch=3, previous_epoch=2, assigned=PARTS),
        b"\0\x0e\0\1g\0\3ada",
        b"\0\0" b"\0\0\0\3" b"\0\0\0\2" b"\1" + PARTS_BYTES + b"\0",
    ),
    (
        PARTITIONS_KEY,
        SharedTopicsFact(by_id={ID: SharedTopic("t", frozenset({1}))}),
        b"\0\x0f\0\1g",
        b"\0\0" b"\1" b"\2" + ID + b"\2t" b"\2\0\0\0\1" b"\0" b"\1" b"\0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "fact", "key_bytes", "value_bytes"), RECORDS, ids=[one[0].kind.name for one in RECORDS]
)
def test_a_fact_is_laid_out_as_kafka_does_and_read_back(
    key: ShareFactKey, fact: ShareFact, key_bytes: bytes, value_bytes: bytes
) -> None:
    assert share_fact_key("g", key) == key_bytes
    assert share_fact_value(fact) == value_bytes
    assert read_share_fact_key(key_bytes) == ("g", key)
    assert read_share_fact(key, value_bytes) == fact


@pytest.mark.parametrize("key", [b"", b"\0\x09\0\1g", b"\0\x0a\0\1g"])
def test_a_key_that_cannot_be_one_is_corrupt(key: bytes) -> None:
    with pytest.raises(Corrupt):
        read_share_fact_key(key)


@pytest.mark.parametrize("key", [one[0] for one in RECORDS])
def test_a_value_that_is_cut_short_is_corrupt(key: ShareFactKey) -> None:
    with pytest.raises(Corrupt):
        read_share_fact(key, b"\0\0\1")
