# OffsetFetch, versions 1-9.
#   Does:     committed offsets of one group (1-7) or several (8+), of named partitions or all.
#   Does not: topic ids (version 10); wait for open transactions.

from collections.abc import Iterable, Sequence

from millstream.broker.groups.group_offsets import CommittedOffset, GroupOffsets, TopicPartition
from millstream.broker.handlers import Call, handles
from millstream.broker.wire import ApiKey
from millstream.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

NOTHING = CommittedOffset(offset=-1, committed_ms=-1)
Wanted = Sequence[tuple[str, Sequence[int]]]


@handles(ApiKey.OFFSET_FETCH, versions=range(1, 10))
def offset_fetch(request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    if call.version < 8:
        wanted = (
            None
            if request.topics is None
            else [(topic.name, topic.partition_indexes) for topic in request.topics]
        )
        return OffsetFetchResponse(topics=_one_group(request.group_id, wanted, call))
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=_topics_of(
                    group.group_id,
                    None
                    if group.topics is None
                    else [(topic.name, topic.partition_indexes) for topic in group.topics],
                    call,
                ),
            )
            for group in request.groups
        ]
    )


def _one_group(group_id: str, wanted: Wanted | None, call: Call) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                )
                for number, committed in found
            ],
        )
        for name, found in _lookup(group_id, wanted, call)
    ]


def _topics_of(group_id: str, wanted: Wanted | None, call: Call) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                )
                for number, committed in found
            ],
        )
        for name, found in _lookup(group_id, wanted, call)
    ]


def _lookup(
    group_id: str, wanted: Wanted | None, call: Call
) -> Iterable[tuple[str, list[tuple[int, CommittedOffset]]]]:
    """By topic, the committed offset of each wanted partition; of all that have one, if None."""
    group = call.node.groups.find(group_id)
    offsets = group.offsets if group else GroupOffsets()
    if wanted is None:
        all_of_it: dict[str, list[tuple[int, CommittedOffset]]] = {}
        for where, committed in offsets:
            all_of_it.setdefault(where.topic, []).append((where.partition, committed))
        return all_of_it.items()
    return [
        (name, [(n, offsets.fetch(TopicPartition(name, n)) or NOTHING) for n in numbers])
        for name, numbers in wanted
    ]
