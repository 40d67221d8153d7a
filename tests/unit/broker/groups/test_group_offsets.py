import pytest

from millstream.broker.groups.group_offsets import (
    OFFSET_METADATA_LENGTH_MAX,
    CommittedOffset,
    ExpiryRule,
    GroupOffsets,
    TopicPartition,
)
from millstream.broker.wire.error_codes import ErrorCode

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 3)
RETENTION_MS = 1_000


def committed(offset: int, *, at_ms: int = 0, expires_ms: int | None = None) -> CommittedOffset:
    return CommittedOffset(offset=offset, committed_ms=at_ms, expires_ms=expires_ms)


@pytest.fixture
def offsets() -> GroupOffsets:
    offsets = GroupOffsets()
    offsets.commit(ORDERS, committed(7, at_ms=100))
    offsets.commit(CLICKS, committed(9, at_ms=200))
    return offsets


def test_the_last_commit_is_fetched(offsets: GroupOffsets) -> None:
    offsets.commit(ORDERS, committed(5))  # backwards is allowed: a replay
    assert offsets.fetch(ORDERS) == committed(5)
    assert offsets.fetch(TopicPartition("orders", 1)) is None


def test_all_are_listed_by_topic_and_partition(offsets: GroupOffsets) -> None:
    assert [where for where, _ in offsets] == [CLICKS, ORDERS]
    assert len(offsets) == 2


def test_what_is_deleted_is_gone_and_may_be_deleted_again(offsets: GroupOffsets) -> None:
    offsets.delete(ORDERS)
    offsets.delete(ORDERS)
    assert offsets.fetch(ORDERS) is None


def test_metadata_has_a_limit() -> None:
    offsets = GroupOffsets()
    longest = CommittedOffset(offset=1, committed_ms=0, metadata="x" * OFFSET_METADATA_LENGTH_MAX)
    too_long = CommittedOffset(offset=1, committed_ms=0, metadata=longest.metadata + "x")
    assert offsets.check(longest) is ErrorCode.NONE
    assert offsets.check(too_long) is ErrorCode.OFFSET_METADATA_TOO_LARGE


class TestExpiry:
    def expired(
        self, offsets: GroupOffsets, rule: ExpiryRule | None, now_ms: int
    ) -> list[TopicPartition]:
        return offsets.expired(rule, now_ms=now_ms, retention_ms=RETENTION_MS)

    def test_each_offset_counts_from_its_commit(self, offsets: GroupOffsets) -> None:
        assert self.expired(offsets, ExpiryRule(), 1_099) == []
        assert self.expired(offsets, ExpiryRule(), 1_100) == [ORDERS]
        assert self.expired(offsets, ExpiryRule(), 1_200) == [CLICKS, ORDERS]

    def test_none_counts_from_before_the_group_became_empty(self, offsets: GroupOffsets) -> None:
        rule = ExpiryRule(counted_from_ms=5_000)
        assert self.expired(offsets, rule, 5_999) == []
        assert self.expired(offsets, rule, 6_000) == [CLICKS, ORDERS]

    def test_what_was_set_after_the_group_became_empty_counts_from_then(
        self, offsets: GroupOffsets
    ) -> None:
        offsets.commit(ORDERS, committed(0, at_ms=5_500))
        assert self.expired(offsets, ExpiryRule(counted_from_ms=5_000), 6_000) == [CLICKS]

    def test_subscribed_topics_are_kept(self, offsets: GroupOffsets) -> None:
        rule = ExpiryRule(kept_topics=frozenset({"orders"}))
        assert self.expired(offsets, rule, 9_999) == [CLICKS]

    def test_a_clients_own_retention_goes_before_the_groups(self) -> None:
        offsets = GroupOffsets()
        offsets.commit(ORDERS, committed(7, expires_ms=50))
        offsets.commit(CLICKS, committed(7, expires_ms=50_000))
        assert self.expired(offsets, ExpiryRule(), 49) == []
        assert self.expired(offsets, ExpiryRule(), 50) == [ORDERS]
        assert self.expired(offsets, ExpiryRule(), 49_999) == [ORDERS]

    def test_without_a_rule_nothing_expires(self, offsets: GroupOffsets) -> None:
        assert self.expired(offsets, None, 10**12) == []
