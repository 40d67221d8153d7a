"""What an application is made of, as its members say it: subtopologies and the topics they use.

Values, kept as they came, so that they are stored and shown unchanged. What is asked of them with
each heartbeat, commit or change of a topic is found once: a topology may have 20,000 names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """A topic that the broker makes for the application; 0 partitions: as its sources have."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopartitionGroup:
    """Topics that must have equally many partitions: positions in the subtopology's own lists."""

    source_topics: tuple[int, ...] = ()
    source_patterns: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Subtopology:
    """It reads source and repartition topics, writes repartition topics, and keeps changelogs."""

    id: str
    source_topics: tuple[str, ...] = ()
    source_patterns: tuple[str, ...] = ()
    changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelog_topics)

    @cached_property
    def read_topics(self) -> tuple[str, ...]:
        """As a member says them: one may be there twice."""
        return self.source_topics + tuple(one.name for one in self.repartition_source_topics)

    def copartitioned(self, group: CopartitionGroup) -> frozenset[str]:
        return frozenset(
            (
                *(self.source_topics[at] for at in group.source_topics),
                *(
                    self.repartition_source_topics[at].name
                    for at in group.repartition_source_topics
                ),
            )
        )


@dataclass(frozen=True, kw_only=True)
class Topology:
    epoch: int
    subtopologies: tuple[Subtopology, ...] = ()

    def is_same_as(self, other: "Topology") -> bool:
        """Members may name the subtopologies in any order, as in Kafka."""
        return self.epoch == other.epoch and self._by_id() == other._by_id()

    @cached_property
    def topics(self) -> frozenset[str]:
        """All that a task reads, and all that keeps its state."""
        return self.source_topics | {topic.name for topic in self._internal_topics()}

    @property
    def named_topics(self) -> frozenset[str]:
        """Every topic that it speaks of."""
        sinks = (name for one in self.subtopologies for name in one.repartition_sink_topics)
        return self.topics.union(sinks)

    @cached_property
    def source_topics(self) -> frozenset[str]:
        return frozenset(name for one in self.subtopologies for name in one.source_topics)

    @property
    def read_topics(self) -> frozenset[str]:
        return frozenset(self.readers)

    @cached_property
    def readers(self) -> Mapping[str, tuple[str, ...]]:
        """By topic, the subtopologies whose tasks read it."""
        found: dict[str, dict[str, None]] = {}
        for one in self.subtopologies:
            for name in one.read_topics:
                found.setdefault(name, {})[one.id] = None
        return {name: tuple(ids) for name, ids in found.items()}

    def _by_id(self) -> dict[str, Subtopology]:
        return {one.id: one for one in self.subtopologies}

    def _internal_topics(self) -> Iterator[InternalTopic]:
        for one in self.subtopologies:
            yield from one.repartition_source_topics
            yield from one.changelog_topics
