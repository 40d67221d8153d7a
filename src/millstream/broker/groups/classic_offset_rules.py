"""What a classic group's state says about its offsets: who may commit, delete, and what expires.

Asked by OffsetCommit, TxnOffsetCommit, OffsetDelete, the clean-up of old offsets, and displays of
a group's lag. The offsets themselves are in `group_offsets.py`.
"""

from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.consumer_subscription import CONSUMER_PROTOCOL_TYPE, topics_of
from millstream.broker.groups.group_messages import NO_MEMBER_ID
from millstream.broker.groups.group_offsets import ExpiryRule
from millstream.broker.groups.group_state import GroupState
from millstream.broker.wire.error_codes import ErrorCode


def admit_commit(
    group: ClassicGroup, *, member_id: str, instance_id: str | None, generation: int, now_ms: int
) -> ErrorCode:
    """OffsetCommit. A member that may commit is alive: its session starts again."""
    error = check_commit(group, member_id=member_id, instance_id=instance_id, generation=generation)
    if error is ErrorCode.NONE and group.state is GroupState.COMPLETING_REBALANCE:
        # It knows the new generation, and not yet whether the partition is still its own.
        return ErrorCode.REBALANCE_IN_PROGRESS
    if error is ErrorCode.NONE and member_id in group.roster:
        group.renew_session(member_id, now_ms=now_ms)
    return error


def check_commit(
    group: ClassicGroup,
    *,
    member_id: str,
    instance_id: str | None,
    generation: int,
    is_transactional: bool = False,
) -> ErrorCode:
    """Without a generation: a consumer that assigns itself, or an operator; only while EMPTY.

    A transaction's commit (TxnOffsetCommit) without any identity is always let in: its producer
    is fenced by its epoch.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation < 0 and member_id == NO_MEMBER_ID and instance_id is None:
        return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
    return group.check_member(member_id, instance_id, generation)


def check_commit_without_group(*, generation: int, knows_group_not_found: bool) -> ErrorCode:
    """For a group that is not there: one that has no members is made by its first commit."""
    if generation < 0:
        return ErrorCode.NONE
    if knows_group_not_found:  # OffsetCommit version 9+
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def check_offset_delete(group: ClassicGroup) -> ErrorCode:
    """OffsetDelete as a whole: what a group of another type still reads cannot be known."""
    if group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    if group.state is not GroupState.EMPTY and not is_consumer:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def check_topic_offset_delete(group: ClassicGroup, topic: str) -> ErrorCode:
    """OffsetDelete, one topic: not while a member is subscribed to it, or may be."""
    topics = subscribed_topics(group)
    is_unknown = topics is None and group.protocol_type == CONSUMER_PROTOCOL_TYPE
    if is_unknown or (topics is not None and topic in topics):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The topics of all consumers in the group, or None where that cannot be known."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.roster:
        subscription = topics_of(member.subscription(group.protocol_name))
        if subscription is None:
            return None
        topics |= subscription
    return frozenset(topics)


def expiry_rule(group: ClassicGroup) -> ExpiryRule | None:
    """None: nothing expires now."""
    if group.state is GroupState.DEAD:
        return None
    if group.protocol_type is None:  # never had members
        return ExpiryRule()
    if group.state is GroupState.EMPTY:
        return ExpiryRule(counted_from_ms=group.state_timestamp_ms)
    topics = subscribed_topics(group)
    if group.state is GroupState.STABLE and topics is not None:
        return ExpiryRule(kept_topics=topics)
    return None
