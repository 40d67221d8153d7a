"""A topology that is allowed and as large as can be: the broker looks through it at once, and
makes no more topics for it than naming topics would."""

from contextlib import closing
from pathlib import Path
from time import process_time
from typing import Any

from millstream.broker.groups.topic_catalog import TopicCatalog
from millstream.broker.streams.internal_topics import resolve
from millstream.broker.streams.streams_admission import SUBTOPOLOGIES_MAX
from millstream.broker.streams.streams_messages import StatusCode
from millstream.broker.streams.topology import InternalTopic, Subtopology, Topology
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages import streams_group_heartbeat as wire
from tests.support.served_node import ServedNode
from tests.unit.broker.groups.consumer_steps import topic

# It takes some 0.02 s; looked for link by link it took 15 s.
WITHIN_S = 5.0


def chained(number: int) -> Subtopology:
    """Reads what the one before it wrote; the first reads the source."""
    return Subtopology(
        id=f"{number}",
        source_topics=() if number else ("words",),
        repartition_source_topics=(InternalTopic(name=f"r{number}"),) if number else (),
        repartition_sink_topics=(f"r{number + 1}",),
    )


def test_a_chain_of_a_thousand_repartition_topics_is_followed_at_once() -> None:
    parts = tuple(map(chained, reversed(range(SUBTOPOLOGIES_MAX))))
    started_s = process_time()
    found = resolve(Topology(epoch=0, subtopologies=parts), TopicCatalog([topic("words", 3)]))
    assert process_time() - started_s < WITHIN_S
    assert {one.name: one.partitions for one in found.to_create} == {
        f"r{number}": 3 for number in range(1, SUBTOPOLOGIES_MAX)
    }


# --- the internal topics that one heartbeat may ask for ---------------------------------------

PARTITIONS_MAX = 20
OWN = 4  # of the broker: metadata, offsets, transactions, share groups


def join(topics: int, partitions: int, group: str = "app") -> wire.StreamsGroupHeartbeatRequest:
    """A few bytes for each of the topics, and none for their partitions."""
    changelogs = [wire.TopicInfo(name=f"{group}-changelog-{n}") for n in range(topics - 1)]
    subtopology = wire.Subtopology(
        subtopology_id="0",
        repartition_source_topics=[wire.TopicInfo(name=f"{group}-fixed", partitions=partitions)],
        state_changelog_topics=changelogs,
    )
    return wire.StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="ada",
        rebalance_timeout_ms=60_000,
        topology=wire.Topology(epoch=0, subtopologies=[subtopology]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        client_tags=None,
        task_offsets=None,
        task_end_offsets=None,
    )


def missing(answer: Any) -> str:
    """What the status says of internal topics that are missing."""
    assert answer.error_code == ErrorCode.NONE
    code = StatusCode.MISSING_INTERNAL_TOPICS
    [detail] = [one.status_detail for one in answer.status if one.status_code == code]
    return str(detail)


def test_a_heartbeat_that_asks_for_ten_million_partitions_gets_none(tmp_path: Path) -> None:
    with closing(ServedNode(tmp_path)) as served:
        before = served.node.topics.partition_count
        detail = missing(served.ask(join(topics=999, partitions=10_000)))
        assert "auto_create_partitions_max=2000" in detail
        assert "millstream topics create" in detail
        assert served.node.topics.partition_count == before


def test_internal_topics_are_made_up_to_the_limit_and_not_one_more(tmp_path: Path) -> None:
    possible = PARTITIONS_MAX - OWN
    with closing(ServedNode(tmp_path, auto_create_partitions_max=PARTITIONS_MAX)) as served:
        assert "auto_create_partitions_max" in missing(served.ask(join(possible + 1, 1)))
        assert served.node.topics.partition_count == OWN
    with closing(ServedNode(tmp_path, auto_create_partitions_max=PARTITIONS_MAX)) as served:
        request = join(possible, 1, "modest")
        assert "auto_create_partitions_max" not in missing(served.ask(request))
        assert served.node.topics.partition_count == PARTITIONS_MAX


def test_members_that_join_at_once_get_no_more_than_the_limit(tmp_path: Path) -> None:
    """Each has room when it asks; the turns of both are counted when they come."""
    with closing(ServedNode(tmp_path, auto_create_partitions_max=PARTITIONS_MAX)) as served:
        asked = [served.ask_soon(join(2, 6, group)) for group in ("one", "other")]
        said = [missing(served.run(one)) for one in asked]
        assert served.node.topics.partition_count <= PARTITIONS_MAX
        assert any("auto_create_partitions_max" in one for one in said)
