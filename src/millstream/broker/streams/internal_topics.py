"""How many tasks a topology has with the topics as they are, and which topics are missing for it.

The rules are Kafka's: a repartition topic has as many partitions as the largest source of whoever
writes it, unless the application fixed the number; topics that are joined have equally many; a
changelog has one partition for each task. Makes no topic: it says which to make.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.base.errors import Rejected
from millstream.broker.groups.topic_catalog import TopicCatalog
from millstream.broker.streams.streams_messages import Status, StatusCode
from millstream.broker.streams.task import TaskId
from millstream.broker.streams.topology import InternalTopic, Subtopology, Topology

# All of a group's tasks are handed out in one go, in the broker's loop.
TASKS_MAX = 100_000
TOPICS_SHOWN_MAX = 5  # in a status; an application may have hundreds


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTopology:
    """`fault` is what keeps the application from running; then nobody gets a task."""

    task_counts: Mapping[str, int] = field(default_factory=dict)  # by subtopology
    repartition_counts: Mapping[str, int] = field(default_factory=dict)  # partitions, by topic
    to_create: tuple[NewTopic, ...] = ()
    fault: Status | None = None

    @property
    def is_ready(self) -> bool:
        return self.fault is None

    def tasks_of(self, subtopology: Subtopology) -> list[TaskId]:
        count = self.task_counts.get(subtopology.id, 0)
        return [TaskId(subtopology.id, number) for number in range(count)]

    def has_task(self, task: TaskId) -> bool:
        return 0 <= task.partition < self.task_counts.get(task.subtopology, 0)


class Unfit(Rejected):
    """The topics are not as the topology needs them."""

    def __init__(self, *, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code=code, detail=detail)


def resolve(topology: Topology, catalog: TopicCatalog) -> ResolvedTopology:
    try:
        return _resolve(topology, catalog)
    except Unfit as unfit:
        return ResolvedTopology(fault=unfit.status)


def shown(names: Iterable[str]) -> str:
    ordered = sorted(names)
    rest = len(ordered) - TOPICS_SHOWN_MAX
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(ordered[:TOPICS_SHOWN_MAX]) + more


def _resolve(topology: Topology, catalog: TopicCatalog) -> ResolvedTopology:
    counts = _counts_of_sources(topology, catalog)
    repartition, fixed = _repartition_counts(topology, counts), _fixed(topology)
    for subtopology in topology.subtopologies:
        for group in subtopology.copartition_groups:
            joined = subtopology.copartitioned(group)
            repartition |= _copartitioned(joined, counts, repartition, fixed)
    counts |= repartition
    tasks = {
        one.id: max(counts[name] for name in one.read_topics) for one in topology.subtopologies
    }
    if sum(tasks.values()) > TASKS_MAX:
        detail = f"{sum(tasks.values())} tasks are more than {TASKS_MAX}"
        raise Unfit(code=StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail=detail)
    to_create = _missing(topology, repartition, tasks, catalog)
    if not to_create:
        return ResolvedTopology(task_counts=tasks, repartition_counts=repartition)
    detail = f"internal topics are missing: {shown(one.name for one in to_create)}"
    fault = Status(code=StatusCode.MISSING_INTERNAL_TOPICS, detail=detail)
    return ResolvedTopology(
        task_counts=tasks, repartition_counts=repartition, to_create=to_create, fault=fault
    )


def _counts_of_sources(topology: Topology, catalog: TopicCatalog) -> dict[str, int]:
    internal = {topic.name for topic in _repartition_topics(topology)}
    found = {name: catalog.named(name) for name in topology.source_topics - internal}
    missing = [name for name, topic in found.items() if topic is None]
    if missing:
        detail = f"source topics are missing: {shown(missing)}; create them"
        raise Unfit(code=StatusCode.MISSING_SOURCE_TOPICS, detail=detail)
    return {name: topic.partition_count for name, topic in found.items() if topic is not None}


def _repartition_topics(topology: Topology) -> list[InternalTopic]:
    return [topic for one in topology.subtopologies for topic in one.repartition_source_topics]


def _fixed(topology: Topology) -> dict[str, int]:
    return {one.name: one.partitions for one in _repartition_topics(topology) if one.partitions > 0}


def unsized_topics(topology: Topology) -> frozenset[str]:
    """Repartition topics whose number of partitions can never be known, whatever topics exist."""
    internal = {topic.name for topic in _repartition_topics(topology)}
    return _follow_flow(topology, dict.fromkeys(topology.source_topics - internal, 1)).unknown


def _repartition_counts(topology: Topology, counts: Mapping[str, int]) -> dict[str, int]:
    sizes = _follow_flow(topology, counts)
    if sizes.unknown:  # stored by an older version: a join that brings such a topology is refused
        detail = (
            f"the number of partitions of repartition topics {shown(sizes.unknown)} cannot be "
            "told: nothing that is known writes into them"
        )
        raise Unfit(code=StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail=detail)
    return sizes.known


@dataclass(frozen=True, slots=True)
class _RepartitionSizes:
    known: dict[str, int]
    unknown: frozenset[str]


def _follow_flow(topology: Topology, counts: Mapping[str, int]) -> _RepartitionSizes:
    """From the sources on, subtopology after subtopology, until no further topic gets known."""
    known = _fixed(topology)
    unknown = {topic.name for topic in _repartition_topics(topology)} - known.keys()
    flow = _Flow(topology)
    found = {**counts, **known}
    while unknown and found:
        found = {name: count for name, count in flow.follow(found).items() if name in unknown}
        known |= found
        unknown -= found.keys()
    return _RepartitionSizes(known, frozenset(unknown))


class _Flow:
    """Which subtopologies read and write a topic, looked up: a chain of a thousand is not searched
    from its start for each of its links."""

    def __init__(self, topology: Topology) -> None:
        self._readers: defaultdict[str, list[Subtopology]] = defaultdict(list)
        self._writers: defaultdict[str, list[Subtopology]] = defaultdict(list)
        self._largest: Counter[str] = Counter()  # by subtopology, of what it reads and is known
        for one in topology.subtopologies:
            for name in {*one.read_topics}:
                self._readers[name].append(one)
            for name in {*one.repartition_sink_topics}:
                self._writers[name].append(one)

    def follow(self, found: Mapping[str, int]) -> dict[str, int]:
        """What those that read these topics write, with its number of partitions."""
        written: dict[str, None] = {}
        for name, count in found.items():
            for reader in self._readers[name]:
                self._largest[reader.id] = max(self._largest[reader.id], count)
                written |= dict.fromkeys(reader.repartition_sink_topics)
        return {
            name: max(self._largest[writer.id] for writer in self._writers[name])
            for name in written
        }


def _copartitioned(
    joined: frozenset[str],
    counts: Mapping[str, int],
    repartition: Mapping[str, int],
    fixed: Mapping[str, int],
) -> dict[str, int]:
    """The repartition topics among them as they must be."""
    external = {name: counts[name] for name in joined if name not in repartition}
    given = external or {name: fixed[name] for name in joined if name in fixed}
    if len({*given.values()}) > 1:
        each = ", ".join(f"{name} has {count}" for name, count in sorted(given.items()))
        detail = f"topics that are joined differ in their partitions: {each}"
        raise Unfit(code=StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail=detail)
    own = {name: repartition[name] for name in joined if name in repartition}
    count = max(given.values(), default=0) or max(own.values(), default=0)
    for name in own.keys() & fixed.keys():
        if fixed[name] != count:
            detail = (
                f"repartition topic {name} is fixed at {fixed[name]} partitions, but what it is "
                f"joined with has {count}"
            )
            raise Unfit(code=StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail=detail)
    return dict.fromkeys(own, count)


def _missing(
    topology: Topology,
    repartition: Mapping[str, int],
    tasks: Mapping[str, int],
    catalog: TopicCatalog,
) -> tuple[NewTopic, ...]:
    wanted: dict[str, NewTopic] = {}
    for one in topology.subtopologies:
        for topic in one.repartition_source_topics:
            wanted[topic.name] = NewTopic(
                name=topic.name, partitions=repartition[topic.name], configs=dict(topic.configs)
            )
        for topic in one.changelog_topics:
            if topic.name not in topology.source_topics:  # a source that is its own changelog
                wanted[topic.name] = NewTopic(
                    name=topic.name, partitions=tasks[one.id], configs=dict(topic.configs)
                )
    return tuple(one for _, one in sorted(wanted.items()) if _must_make(one, catalog))


def _must_make(wanted: NewTopic, catalog: TopicCatalog) -> bool:
    topic = catalog.named(wanted.name)
    if topic is not None and topic.partition_count != wanted.partitions:
        detail = (
            f"internal topic {wanted.name} has {topic.partition_count} partitions and should have "
            f"{wanted.partitions}; reset the application"
        )
        raise Unfit(code=StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail=detail)
    return topic is None
