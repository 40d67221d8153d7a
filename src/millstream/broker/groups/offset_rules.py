"""Who may commit, read and delete the offsets of a group, whichever kind it is of.

Asked by the APIs of offsets and by the clean-up; the answers are in `classic_offset_rules.py` and
`consumer_offset_rules.py`, which has those of streams groups, too.
"""

from millstream.broker.groups import classic_offset_rules as classic
from millstream.broker.groups import consumer_offset_rules as consumer
from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.conversion import AnyGroup
from millstream.broker.groups.group_offsets import ExpiryRule, TopicPartition
from millstream.broker.wire.error_codes import ErrorCode


def admit_commit(
    group: AnyGroup,
    *,
    member_id: str,
    instance_id: str | None,
    generation: int,
    knows_epochs: bool,
    now_ms: int,
) -> ErrorCode:
    """OffsetCommit. A member of a classic group that may commit is alive."""
    if isinstance(group, ClassicGroup):
        return classic.admit_commit(
            group,
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
            now_ms=now_ms,
        )
    return consumer.check_commit(
        group,
        member_id=member_id,
        instance_id=instance_id,
        epoch=generation,
        knows_epochs=knows_epochs,
    )


def check_commit(
    group: AnyGroup,
    *,
    member_id: str,
    instance_id: str | None,
    generation: int,
    is_transactional: bool = False,
) -> ErrorCode:
    if isinstance(group, ClassicGroup):
        return classic.check_commit(
            group,
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
            is_transactional=is_transactional,
        )
    return consumer.check_commit(
        group,
        member_id=member_id,
        instance_id=instance_id,
        epoch=generation,
        is_transactional=is_transactional,
    )


def check_partition_commit(
    group: AnyGroup, where: TopicPartition, *, member_id: str, generation: int
) -> ErrorCode:
    """One partition of a commit that was let in: a classic member has all of them or none."""
    if isinstance(group, ClassicGroup):
        return ErrorCode.NONE
    return consumer.check_partition_commit(group, where, member_id=member_id, epoch=generation)


def check_fetch(group: AnyGroup, *, member_id: str | None, generation: int) -> ErrorCode:
    if isinstance(group, ClassicGroup):
        return ErrorCode.NONE
    return consumer.check_fetch(group, member_id=member_id, epoch=generation)


def check_offset_delete(group: AnyGroup) -> ErrorCode:
    if isinstance(group, ClassicGroup):
        return classic.check_offset_delete(group)
    return ErrorCode.NONE


def check_topic_offset_delete(group: AnyGroup, topic: str) -> ErrorCode:
    if isinstance(group, ClassicGroup):
        return classic.check_topic_offset_delete(group, topic)
    return consumer.check_topic_offset_delete(group, topic)


def expiry_rule(group: AnyGroup) -> ExpiryRule | None:
    if isinstance(group, ClassicGroup):
        return classic.expiry_rule(group)
    return consumer.expiry_rule(group)
