"""Groups: their members, and how far behind they are."""

from collections.abc import Iterator

from millstream.broker.group_coordinator import GroupOfAnyKind
from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.metrics.families.shares import shares_of
from millstream.broker.metrics.family import Readings, gauge
from millstream.broker.node import Node

# Group, topic and partition.
Labels = tuple[str, str, str]


@gauge("millstream_groups", "Groups by their type and state.", "type", "state")
def groups(node: Node) -> Readings:
    counts: dict[tuple[str, str], int] = {}
    for group in node.groups.of_every_kind():
        labels = (group.kind.value, group.state.value)
        counts[labels] = counts.get(labels, 0) + 1
    return counts.items()


@gauge("millstream_group_members", "Members that the group has now.", "group", "type")
def group_members(node: Node) -> Readings:
    for group in node.groups.of_every_kind():
        yield (group.group_id, group.kind.value), _member_count(group)


def _member_count(group: GroupOfAnyKind) -> int:
    return len(group.roster if isinstance(group, ClassicGroup) else group.book)


@gauge(
    "millstream_group_committed_offset",
    "The next offset that the group reads, as it has committed it.",
    "group",
    "topic",
    "partition",
)
def committed_offset(node: Node) -> Readings:
    for labels, committed, _ in _positions(node):
        yield labels, committed


@gauge(
    "millstream_group_lag_records",
    "How many offsets the group is behind the high watermark; of a share group, how many are not "
    "done. A partition that the group has not begun with is not there.",
    "group",
    "topic",
    "partition",
)
def group_lag(node: Node) -> Readings:
    for labels, committed, high_watermark in _positions(node):
        yield labels, max(0, high_watermark - committed)
    for labels, records, partition in shares_of(node):
        done_offset = records.start_offset + records.complete_count
        yield labels, max(0, partition.log.high_watermark - done_offset)


def _positions(node: Node) -> Iterator[tuple[Labels, int, int]]:
    """What each group has committed, and the end of what it could have read."""
    ends = {topic.name: topic.partitions for topic in node.topics}
    for group in node.groups:
        for where, committed in group.offsets:
            partitions = ends.get(where.topic, [])
            if where.partition < len(partitions):
                labels = (group.members.group_id, where.topic, str(where.partition))
                yield labels, committed.offset, partitions[where.partition].log.high_watermark
