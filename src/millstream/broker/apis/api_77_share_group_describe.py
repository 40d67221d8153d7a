# ShareGroupDescribe, version 1.
#   Does:     epochs, assignor and members of share groups (KIP-932), with what each reads.

from collections.abc import Iterable

from millstream.base.errors import MillstreamError
from millstream.broker.apis.api_15_describe_groups import operations_on_group
from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition, numbers_by_topic
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.share.share_group import ShareGroup
from millstream.broker.share.share_member import ShareMember
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

ASSIGNOR = "simple"  # there is no other


@handles(ApiKey.SHARE_GROUP_DESCRIBE, versions=range(1, 2))
def share_group_describe(
    request: ShareGroupDescribeRequest, call: Call
) -> ShareGroupDescribeResponse:
    groups = [_describe(group_id, call) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in groups:
            group.authorized_operations = operations_on_group(group.group_id, call)
    return ShareGroupDescribeResponse(groups=groups)


def _describe(group_id: str, call: Call) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = call.groups(group_id).shares.named(group_id)
        _check_topics(group, call)
    except MillstreamError as error:
        return DescribedGroup(
            group_id=group_id, error_code=error_code(error), error_message=error_message(error)
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.book.epoch,
        assignment_epoch=group.book.target_epoch,
        assignor_name=ASSIGNOR,
        members=[_member(member, group.book.catalog) for member in group.book],
    )


def _check_topics(group: ShareGroup, call: Call) -> None:
    """Whoever may not see all that the group reads is told nothing of it, as in Kafka."""
    for name in sorted(group.book.topics):
        call.topics.check(name)


def _member(member: ShareMember, catalog: TopicCatalog) -> Member:
    profile = member.profile
    return Member(
        member_id=member.member_id,
        rack_id=profile.rack_id,
        member_epoch=member.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topics),
        assignment=_assignment(member.progress.assigned, catalog),
    )


def _assignment(partitions: Iterable[TopicIdPartition], catalog: TopicCatalog) -> Assignment:
    """Of topics that exist still."""
    found = numbers_by_topic(partitions).items()
    known = ((catalog.with_id(topic_id), numbers) for topic_id, numbers in found)
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.id, topic_name=topic.name, partitions=numbers)
            for topic, numbers in known
            if topic is not None
        ]
    )
