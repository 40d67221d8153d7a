"""The assignor `range`: of each topic every subscriber gets a range, and keeps what it can.

Topics that have the same subscribers and as many partitions are cut alike, so that records with
the same key in two of them meet in one member (co-partitioning).
"""

from collections.abc import Mapping, Sequence

from millstream.broker.groups.assignment import Assignee, Assignment
from millstream.broker.groups.topic_catalog import CataloguedTopic, TopicCatalog, TopicIdPartition

Cut = Mapping[str, list[int]]  # partition numbers by member id


def assign_ranges(assignees: Sequence[Assignee], catalog: TopicCatalog) -> Assignment:
    ranked = sorted(assignees, key=lambda one: one.rank)
    given: dict[str, set[TopicIdPartition]] = {one.member_id: set() for one in ranked}
    cuts: dict[tuple[tuple[str, ...], int], Cut] = {}
    for topic in _oldest_first(ranked, catalog):
        subscribers = [one for one in ranked if topic.id in one.topic_ids]
        alike = tuple(one.member_id for one in subscribers), topic.partition_count
        if alike not in cuts:
            cuts[alike] = _cut(topic, subscribers)
        for member_id, numbers in cuts[alike].items():
            given[member_id] |= {TopicIdPartition(topic.id, number) for number in numbers}
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _oldest_first(assignees: Sequence[Assignee], catalog: TopicCatalog) -> list[CataloguedTopic]:
    """Topics that are read already say how those that are new, and like them, are cut."""
    subscribed = frozenset[bytes]().union(*(one.topic_ids for one in assignees))
    held = {part.topic_id for one in assignees for part in one.held}
    topics = [topic for topic in catalog if topic.id in subscribed]
    return sorted(topics, key=lambda topic: (topic.id not in held, topic.name))


def _cut(topic: CataloguedTopic, subscribers: Sequence[Assignee]) -> Cut:
    """Each keeps up to its quota of what it held, lowest first; ranges of the rest fill it up."""
    quota, extras = divmod(topic.partition_count, len(subscribers))
    kept: dict[str, list[int]] = {}
    quotas: dict[str, int] = {}
    for one in subscribers:
        held = _numbers_of(topic, one)
        has_extra = extras > 0 and len(held) > quota
        extras -= has_extra
        quotas[one.member_id] = quota + has_extra
        kept[one.member_id] = held[: quota + has_extra]
    for one in subscribers:
        if extras > 0 and quotas[one.member_id] == quota:
            quotas[one.member_id] += 1
            extras -= 1
    taken = {number for numbers in kept.values() for number in numbers}
    free = iter([number for number in range(topic.partition_count) if number not in taken])
    return {
        member_id: numbers + [next(free) for _ in range(quotas[member_id] - len(numbers))]
        for member_id, numbers in kept.items()
    }


def _numbers_of(topic: CataloguedTopic, assignee: Assignee) -> list[int]:
    return sorted(
        part.partition
        for part in assignee.held
        if part.topic_id == topic.id and part.partition < topic.partition_count
    )
