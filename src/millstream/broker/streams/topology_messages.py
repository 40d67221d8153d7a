"""A topology from a message: heartbeats and records have it in structs of the same fields.

Each has structs of its own, as one may change without the other; what they mean is said once.
"""

from collections.abc import Iterable
from typing import Any

from millstream.broker.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)

Pairs = tuple[tuple[str, str], ...]


def topology_from(message: Any) -> Topology:
    return Topology(
        epoch=message.epoch, subtopologies=tuple(map(_subtopology, message.subtopologies))
    )


def pairs_from(messages: Iterable[Any]) -> Pairs:
    return tuple((one.key, one.value) for one in messages)


def _subtopology(message: Any) -> Subtopology:
    return Subtopology(
        id=message.subtopology_id,
        source_topics=tuple(message.source_topics),
        source_patterns=tuple(message.source_topic_regex),
        changelog_topics=tuple(map(_internal_topic, message.state_changelog_topics)),
        repartition_sink_topics=tuple(message.repartition_sink_topics),
        repartition_source_topics=tuple(map(_internal_topic, message.repartition_source_topics)),
        copartition_groups=tuple(map(_copartition_group, message.copartition_groups)),
    )


def _copartition_group(message: Any) -> CopartitionGroup:
    return CopartitionGroup(
        source_topics=tuple(message.source_topics),
        source_patterns=tuple(message.source_topic_regex),
        repartition_source_topics=tuple(message.repartition_source_topics),
    )


def _internal_topic(message: Any) -> InternalTopic:
    return InternalTopic(
        name=message.name,
        partitions=message.partitions,
        replication_factor=message.replication_factor,
        configs=pairs_from(message.topic_configs),
    )
