# OffsetFetch, versions 1-10.
#   Does:     committed offsets of one group (1-7) or several (8+), of named partitions or all, by
#             topic id from version 10 on; what an open transaction may change is not told to who
#             asks for stable offsets (7+).

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.base.errors import MillstreamError
from millstream.broker.access.permit import GroupDenied, TopicDenied
from millstream.broker.groups.group_offsets import CommittedOffset, GroupOffsets, TopicPartition
from millstream.broker.groups.offset_rules import check_fetch
from millstream.broker.handlers import Call, handles
from millstream.broker.kafka_errors import error_code
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
    """`name` is None if no topic has the id; `error` if nothing is told of it."""

    name: str | None
    id: bytes
    partitions: Sequence[int]
    error: ErrorCode = ErrorCode.NONE


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
        wanted = [_named(t.name, t.partition_indexes, call) for t in request.topics]
    try:
        found = _lookup(request.group_id, wanted, call, is_stable)
        return OffsetFetchResponse(topics=[_topic_of_one_group(*one) for one in found])
    except GroupDenied as error:
        return _refuse_one_group(request, error_code(error))


def _refuse_one_group(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """Version 1 has no error at its top: it says so for each partition."""
    topics = request.topics or ()
    wanted = [WantedTopic(t.name, ZERO_UUID, t.partition_indexes, code) for t in topics]
    refused = [
        (topic, [FoundOffset(n, NOTHING, code) for n in topic.partitions]) for topic in wanted
    ]
    return OffsetFetchResponse(
        error_code=code, topics=[_topic_of_one_group(*one) for one in refused]
    )


def _answer_group(
    group: OffsetFetchRequestGroup, call: Call, is_stable: bool
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group_id=group.group_id)
    try:
        known = call.groups(group.group_id).find(group.group_id)
    except GroupDenied as error:
        answer.error_code = error_code(error)
        return answer
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
        return [_named(t.name, t.partition_indexes, call) for t in group.topics]
    return [_with_id(t.topic_id, t.partition_indexes, call) for t in group.topics]


def _named(name: str, partitions: Sequence[int], call: Call) -> WantedTopic:
    try:
        call.topics.check(name)
    except TopicDenied as error:
        return WantedTopic(name, ZERO_UUID, partitions, error_code(error))
    return WantedTopic(name, ZERO_UUID, partitions)


def _with_id(topic_id: bytes, partitions: Sequence[int], call: Call) -> WantedTopic:
    try:
        return WantedTopic(call.topics.with_id(topic_id).name, topic_id, partitions)
    except MillstreamError as error:
        return WantedTopic(None, topic_id, partitions, error_code(error))


def _lookup(
    group_id: str, wanted: Sequence[WantedTopic] | None, call: Call, is_stable: bool
) -> Iterable[Found]:
    """By topic, the committed offset of each wanted partition; of all that have one, if None."""
    group = call.groups(group_id).find(group_id)
    offsets = group.offsets if group else GroupOffsets()
    if wanted is None:
        wanted = list(_all_of(offsets, call))
    for topic in wanted:
        yield topic, [_find(offsets, topic, n, is_stable) for n in topic.partitions]


def _all_of(offsets: GroupOffsets, call: Call) -> Iterable[WantedTopic]:
    numbers: dict[str, list[int]] = {}
    for where, _ in offsets:
        numbers.setdefault(where.topic, []).append(where.partition)
    for name, own in numbers.items():
        if not call.permit.topics.shows(name):
            continue
        is_known = name in call.topics
        if is_known or call.version < HAS_TOPIC_IDS:  # what is gone has no id to be told by
            topic_id = call.topics.named(name).id if is_known else ZERO_UUID
            yield WantedTopic(name, topic_id, own)


def _find(offsets: GroupOffsets, topic: WantedTopic, number: int, is_stable: bool) -> FoundOffset:
    if topic.name is None or topic.error:
        return FoundOffset(number, NOTHING, topic.error)
    where = TopicPartition(topic.name, number)
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
