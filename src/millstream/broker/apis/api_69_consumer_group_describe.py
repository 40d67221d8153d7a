# ConsumerGroupDescribe, versions 0-1.
#   Does:     epochs, assignor and members of consumer groups (KIP-848), with what each has and
#             shall have.
#   Does not: authorised operations (always "unknown").

from collections.abc import Iterable

from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.consumer_member import ConsumerMember
from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition
from millstream.broker.handlers import Call, handles
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
    return ConsumerGroupDescribeResponse(
        groups=[_describe(group_id, call) for group_id in request.group_ids]
    )


def _describe(group_id: str, call: Call) -> DescribedGroup:
    found = call.node.groups.find(group_id)
    if found is None or not isinstance(found.members, ConsumerGroup):
        is_classic = found is not None
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message="it is a classic group" if is_classic else "there is no such group",
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
    numbers: dict[bytes, list[int]] = {}
    for part in sorted(partitions):
        numbers.setdefault(part.topic_id, []).append(part.partition)
    known = ((catalog.with_id(topic_id), own) for topic_id, own in numbers.items())
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.id, topic_name=topic.name, partitions=own)
            for topic, own in known
            if topic is not None
        ]
    )
