# OffsetFetch, versions 1-10.
#   Does:     committed offsets of one group (1-7) or several (8+), of named partitions or all, by
#             topic id from version 10 on; what an open transaction may change is not told to who
#             asks for stable offsets (7+).

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.base.errors import MillstreamError
from millstream.broker.groups.group_offsets import CommittedOffset, GroupOffsets, TopicPartition
from millstream.broker.groups.offset_rules import check_fetch
from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ZERO_UUID, ApiKey, ErrorCode
from millstream.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

HAS_TOPIC_IDS = 10
NOTHING = CommittedOffset(offset=-1, committed_ms=-1)


class WantedTopic(NamedTuple):
    """`name` is None if no topic has the id."""

    name: str | None
    id: bytes
    partitions: Sequence[int]


class FoundOffset(NamedTuple):
    partition: int
    committed: CommittedOffset
    error: ErrorCode = ErrorCode.NONE


Found = tuple[WantedTopic, list[FoundOffset]]


@handles(ApiKey.OFFSET_FETCH, versions=range(1, 11))
def offset_fetch(request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    is_stable = request.require_stable
    if call.version >= 8:
        return OffsetFetchResponse(
            groups=[_answer_group(group, call, is_stable) for group in request.groups]
        )
    wanted = None
    if request.topics is not None:
        wanted = [WantedTopic(t.name, ZERO_UUID, t.partition_indexes) for t in request.topics]
    found = _lookup(request.group_id, wanted, call, is_stable)
    return OffsetFetchResponse(topics=[_topic_of_one_group(*one) for one in found])


def _answer_group(
    group: OffsetFetchRequestGroup, call: Call, is_stable: bool
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=group.group_id)
    known = call.node.groups.find(group.group_id)
    if known is not None:
        answer.error_code = check_fetch(
            known.members, member_id=group.member_id, generation=group.member_epoch
        )
    if answer.error_code == ErrorCode.NONE:
        found = _lookup(group.group_id, _wanted(group, call), call, is_stable)
        answer.topics = [_topic(*one) for one in found]
    return answer


def _wanted(group: OffsetFetchRequestGroup, call: Call) -> list[WantedTopic] | None:
    if group.topics is None:
        return None
    if call.version < HAS_TOPIC_IDS:
        return [WantedTopic(t.name, ZERO_UUID, t.partition_indexes) for t in group.topics]
    return [
        WantedTopic(_name_of(t.topic_id, call), t.topic_id, t.partition_indexes)
        for t in group.topics
    ]


def _name_of(topic_id: bytes, call: Call) -> str | None:
    try:
        return call.node.topics.with_id(topic_id).name
    except MillstreamError:
        return None


def _lookup(
    group_id: str, wanted: Sequence[WantedTopic] | None, call: Call, is_stable: bool
) -> Iterable[Found]:
    """By topic, the committed offset of each wanted partition; of all that have one, if None."""
    group = call.node.groups.find(group_id)
    offsets = group.offsets if group else GroupOffsets()
    if wanted is None:
        wanted = list(_all_of(offsets, call))
    for topic in wanted:
        yield topic, [_find(offsets, topic.name, n, is_stable) for n in topic.partitions]


def _all_of(offsets: GroupOffsets, call: Call) -> Iterable[WantedTopic]:
    numbers: dict[str, list[int]] = {}
    for where, _ in offsets:
        numbers.setdefault(where.topic, []).append(where.partition)
    for name, own in numbers.items():
        is_known = name in call.node.topics
        if is_known or call.version < HAS_TOPIC_IDS:  # what is gone has no id to be told by
            topic_id = call.node.topics.named(name).id if is_known else ZERO_UUID
            yield WantedTopic(name, topic_id, own)


def _find(offsets: GroupOffsets, name: str | None, number: int, is_stable: bool) -> FoundOffset:
    if name is None:
        return FoundOffset(number, NOTHING, ErrorCode.UNKNOWN_TOPIC_ID)
    where = TopicPartition(name, number)
    if is_stable and offsets.is_held(where):
        return FoundOffset(number, NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return FoundOffset(number, offsets.fetch(where) or NOTHING)


def _topic_of_one_group(
    topic: WantedTopic, found: Iterable[FoundOffset]
) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name or "",
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=one.partition,
                committed_offset=one.committed.offset,
                committed_leader_epoch=one.committed.leader_epoch,
                metadata=one.committed.metadata,
                error_code=one.error,
            )
            for one in found
        ],
    )


def _topic(topic: WantedTopic, found: Iterable[FoundOffset]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.id,
        name=topic.name or "",
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=one.partition,
                committed_offset=one.committed.offset,
                committed_leader_epoch=one.committed.leader_epoch,
                metadata=one.committed.metadata,
                error_code=one.error,
            )
            for one in found
        ],
    )
