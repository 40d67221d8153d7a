"""What a consumer group's state says about its offsets (KIP-848): who may commit, read, delete.

A member speaks for its epoch. It may commit with an older one as long as it has owned the
partition since then (KIP-1251): a commit under way while its epoch rises is not lost.
"""

from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.group_messages import NO_MEMBER_ID
from millstream.broker.groups.group_offsets import ExpiryRule, TopicPartition
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.wire.error_codes import ErrorCode


def check_commit(
    group: ConsumerGroup,
    *,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    knows_epochs: bool = True,
    is_transactional: bool = False,
) -> ErrorCode:
    """Without an epoch: a consumer that assigns itself, or an operator; only while EMPTY."""
    if epoch < 0 and group.is_vacant:
        return ErrorCode.NONE
    if is_transactional and epoch < 0 and member_id == NO_MEMBER_ID and instance_id is None:
        return ErrorCode.NONE
    member = group.book.find(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.is_classic:
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.ILLEGAL_GENERATION
    if not knows_epochs and not is_transactional:  # OffsetCommit before version 9
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE if epoch <= member.epoch else ErrorCode.STALE_MEMBER_EPOCH


def check_partition_commit(
    group: ConsumerGroup, where: TopicPartition, *, member_id: str, epoch: int
) -> ErrorCode:
    """One partition of a commit that was let in; a transaction's may have waited since."""
    if epoch < 0:
        return ErrorCode.NONE
    member = group.book.find(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    topic = group.book.catalog.named(where.topic)
    if topic is None or epoch == member.epoch:
        return ErrorCode.NONE
    granted = member.progress.granted_epoch(TopicIdPartition(topic.id, where.partition))
    has_it = granted is not None and granted <= epoch
    return ErrorCode.NONE if has_it else ErrorCode.STALE_MEMBER_EPOCH


def check_fetch(group: ConsumerGroup, *, member_id: str | None, epoch: int) -> ErrorCode:
    """OffsetFetch. Who names no member may always look."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.book.find(member_id or NO_MEMBER_ID)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def check_topic_offset_delete(group: ConsumerGroup, topic: str) -> ErrorCode:
    """OffsetDelete, one topic: not while a member is subscribed to it."""
    if topic in group.book.subscribed_topics:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def expiry_rule(group: ConsumerGroup) -> ExpiryRule:
    return ExpiryRule(kept_topics=group.book.subscribed_topics)
