# ConsumerGroupDescribe, versions 0-1.
#   Does:     epochs, assignor and members of consumer groups (KIP-848), with what each has and
#             shall have.

from collections.abc import Iterable

from millstream.broker.access.permit import GroupDenied
from millstream.broker.apis.api_15_describe_groups import operations_on_group
from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.consumer_member import ConsumerMember
from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition, numbers_by_topic
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code, error_message
from millstream.broker.wire import ApiKey, ErrorCode
from millstream.broker.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


@handles(ApiKey.CONSUMER_GROUP_DESCRIBE, versions=range(2))
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, call: Call
) -> ConsumerGroupDescribeResponse:
    groups = [_describe(group_id, call) for group_id in request.group_ids]
    for group in groups:
        _hide_topics(group, call)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = operations_on_group(group.group_id, call)
    return ConsumerGroupDescribeResponse(groups=groups)


def _hide_topics(group: DescribedGroup, call: Call) -> None:
    """Who may not know a topic is not told who reads it."""
    names = {
        part.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for part in assignment.topic_partitions
    }
    if not all(call.topics.may_use(name) for name in names):
        group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        group.error_message = "it reads topics that you are not authorized to describe"
        group.members = []


def _describe(group_id: str, call: Call) -> DescribedGroup:
    try:
        groups = call.groups(group_id)
        found, kind = groups.find(group_id), groups.kind_of(group_id)
    except GroupDenied as error:
        return DescribedGroup(
            group_id=group_id, error_code=error_code(error), error_message=error_message(error)
        )
    if found is None or not isinstance(found.members, ConsumerGroup):
        reason = "there is no such group" if kind is None else f"it is a {kind.value} group"
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=reason,
        )
    group, book = found.members, found.members.book
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=book.epoch,
        assignment_epoch=book.target_epoch,
        assignor_name=book.assignor,
        members=[
            _member(member, book.target_partitions(member.member_id), book.catalog)
            for member in book
        ],
    )


def _member(
    member: ConsumerMember, target: Iterable[TopicIdPartition], catalog: TopicCatalog
) -> Member:
    profile = member.profile
    return Member(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=member.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topics),
        subscribed_topic_regex=profile.pattern or None,
        assignment=_assignment(member.progress.assigned, catalog),
        target_assignment=_assignment(target, catalog),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
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
