"""What a StreamsGroupHeartbeat must say to be looked at, whatever the group is like.

Asked before a group is made for it: what is refused here leaves no trace. What Kafka 4.3 refuses
is refused here, too: static members, warm-up tasks, offsets of tasks, and patterns of sources.
"""

from collections.abc import Iterable

from millstream.broker.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
)
from millstream.broker.groups.group_messages import NO_MEMBER_ID
from millstream.broker.groups.said_text import fault_of_length
from millstream.broker.streams.internal_topics import shown, unsized_topics
from millstream.broker.streams.streams_messages import StreamsHeartbeat, StreamsHeartbeatReply
from millstream.broker.streams.topology import CopartitionGroup, Subtopology, Topology
from millstream.broker.wire.error_codes import ErrorCode

# An application has a few dozen of each; these keep a request from filling memory and disk.
SUBTOPOLOGIES_MAX = 1_000
INTERNAL_TOPICS_MAX = 1_000
# Entries of all its lists together: each change of a topic goes through them, in the broker's loop.
ENTRIES_MAX = 20_000
# Characters of all its names and configs. All of it is one record: one that is larger than the
# log of groups takes could never be stored, and its group never answer.
CHARACTERS_MAX = 1 << 20


def check_heartbeat(request: StreamsHeartbeat) -> StreamsHeartbeatReply | None:
    """The refusal, if there is one."""
    fault = request.unsupported or _find_fault(request)
    if fault is not None:
        return refuse(ErrorCode.INVALID_REQUEST, fault)
    fault = None if request.topology is None else _fault_of_topology(request.topology)
    return None if fault is None else refuse(ErrorCode.STREAMS_INVALID_TOPOLOGY, fault)


def refuse(error: ErrorCode, message: str) -> StreamsHeartbeatReply:
    return StreamsHeartbeatReply(error=error, message=message)


def _find_fault(request: StreamsHeartbeat) -> str | None:
    if request.member_id == NO_MEMBER_ID:
        return "the member id is empty"
    if request.rack_id == "":
        return "the rack id is empty"
    tags = (text for pair in request.client_tags or () for text in pair)
    if fault := fault_of_length("the client tags", tags):
        return fault
    if request.epoch < LEAVING_STATIC_EPOCH:
        return f"there is no member epoch {request.epoch}"
    if request.epoch == LEAVING_STATIC_EPOCH:
        return "a member without an instance id cannot leave for a while"
    if request.epoch == JOINING_EPOCH:
        return _fault_of_join(request)
    return "only a join may bring a topology" if request.topology is not None else None


def _fault_of_join(request: StreamsHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "a join needs a rebalance timeout"
    if request.owned is not None and (request.owned.active or request.owned.standby):
        return "who joins owns no tasks"
    if request.topology is None:
        return "a join needs a topology"
    return None


def _fault_of_topology(topology: Topology) -> str | None:
    entries = sum(map(_count_entries, topology.subtopologies))
    if entries > ENTRIES_MAX:
        return f"{entries} names, configs and joins are more than {ENTRIES_MAX}"
    characters = sum(map(_count_characters, topology.subtopologies))
    if characters > CHARACTERS_MAX:
        return f"{characters} characters of names and configs are more than {CHARACTERS_MAX}"
    ids = [one.id for one in topology.subtopologies]
    if len({*ids}) < len(ids):
        return "two subtopologies have the same id"
    if len(ids) > SUBTOPOLOGIES_MAX:
        return f"{len(ids)} subtopologies are more than {SUBTOPOLOGIES_MAX}"
    internal = len(topology.topics - topology.source_topics)
    if internal > INTERNAL_TOPICS_MAX:
        return f"{internal} internal topics are more than {INTERNAL_TOPICS_MAX}"
    faults = map(_fault_of_subtopology, topology.subtopologies)
    return next(filter(None, faults), None) or _fault_of_sizes(topology)


def _fault_of_sizes(topology: Topology) -> str | None:
    unsized = unsized_topics(topology)
    if not unsized:
        return None
    return (
        f"the number of partitions of repartition topics {shown(unsized)} can never be known: "
        "nothing writes into them, or only subtopologies that read them; fix the number, or let a "
        "subtopology with a source topic write them"
    )


def _count_entries(subtopology: Subtopology) -> int:
    internal = (*subtopology.changelog_topics, *subtopology.repartition_source_topics)
    groups = subtopology.copartition_groups
    return (
        len(subtopology.source_topics)
        + len(subtopology.repartition_sink_topics)
        + sum(1 + len(topic.configs) for topic in internal)
        + sum(1 + len(one.source_topics) + len(one.repartition_source_topics) for one in groups)
    )


def _count_characters(subtopology: Subtopology) -> int:
    internal = (*subtopology.changelog_topics, *subtopology.repartition_source_topics)
    names = (
        subtopology.id,
        *subtopology.source_topics,
        *subtopology.repartition_sink_topics,
        *(topic.name for topic in internal),
        *(text for topic in internal for pair in topic.configs for text in pair),
    )
    return sum(map(len, names))


def _fault_of_subtopology(subtopology: Subtopology) -> str | None:
    if not subtopology.read_topics:
        return f"subtopology {subtopology.id} reads no topic"
    for topic in subtopology.changelog_topics:
        if topic.partitions != 0:
            return f"changelog {topic.name} may not say how many partitions it has"
    if not all(_is_in_range(group, subtopology) for group in subtopology.copartition_groups):
        return f"subtopology {subtopology.id} joins topics that it does not name"
    return None


def _is_in_range(group: CopartitionGroup, subtopology: Subtopology) -> bool:
    def fits(positions: Iterable[int], count: int) -> bool:
        return all(0 <= at < count for at in positions)

    return fits(group.source_topics, len(subtopology.source_topics)) and fits(
        group.repartition_source_topics, len(subtopology.repartition_source_topics)
    )
