"""What the state of a consumer group (KIP-848) or a streams group (KIP-1071) says about offsets.

A member speaks for its epoch. It may commit with an older one as long as it has owned the
partition since then (KIP-1251): a commit under way while its epoch rises is not lost.
"""

from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.consumer_member import ConsumerMember
from millstream.broker.groups.group_messages import NO_MEMBER_ID
from millstream.broker.groups.group_offsets import ExpiryRule, TopicPartition
from millstream.broker.streams.streams_group import StreamsGroup
from millstream.broker.wire.error_codes import ErrorCode

GroupWithEpochs = ConsumerGroup | StreamsGroup


def check_commit(
    group: GroupWithEpochs,
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
    if isinstance(member, ConsumerMember) and member.is_classic:
        return ErrorCode.NONE if epoch == member.epoch else ErrorCode.ILLEGAL_GENERATION
    if not knows_epochs and not is_transactional:  # OffsetCommit before version 9
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE if epoch <= member.epoch else ErrorCode.STALE_MEMBER_EPOCH


def check_partition_commit(
    group: GroupWithEpochs, where: TopicPartition, *, member_id: str, epoch: int
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
    has_it = group.book.owns_since(member_id, where, epoch)
    return ErrorCode.NONE if has_it else ErrorCode.STALE_MEMBER_EPOCH


def check_fetch(group: GroupWithEpochs, *, member_id: str | None, epoch: int) -> ErrorCode:
    """OffsetFetch. Who names no member may always look."""
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.book.find(member_id or NO_MEMBER_ID)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if epoch == member.epoch:
        return ErrorCode.NONE
    is_classic = isinstance(member, ConsumerMember) and member.is_classic
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def check_topic_offset_delete(group: GroupWithEpochs, topic: str) -> ErrorCode:
    """OffsetDelete, one topic: not while a member is subscribed to it."""
    if topic in group.book.subscribed_topics:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def expiry_rule(group: GroupWithEpochs) -> ExpiryRule:
    return ExpiryRule(kept_topics=group.book.subscribed_topics)
