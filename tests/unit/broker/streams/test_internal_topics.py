"""How many tasks there are, and which topics are missing for them."""

from dataclasses import replace

import pytest

from millstream.broker.groups.topic_catalog import CataloguedTopic, TopicCatalog
from millstream.broker.streams.internal_topics import (
    TASKS_MAX,
    ResolvedTopology,
    resolve,
    shown,
    unsized_topics,
)
from millstream.broker.streams.streams_messages import StatusCode
from millstream.broker.streams.topology import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from tests.unit.broker.groups.consumer_steps import topic
from tests.unit.broker.streams.steps import COUNT, COUNTING, SPLIT, task


def resolved(*topics: CataloguedTopic, parts: tuple[Subtopology, ...]) -> ResolvedTopology:
    return resolve(Topology(epoch=0, subtopologies=parts), TopicCatalog(topics))


def made(found: ResolvedTopology) -> dict[str, int]:
    return {one.name: one.partitions for one in found.to_create}


def code_of(found: ResolvedTopology) -> StatusCode | None:
    return found.fault.code if found.fault else None


def test_a_subtopology_has_as_many_tasks_as_its_largest_source() -> None:
    reads = Subtopology(id="0", source_topics=("a", "b"))
    found = resolved(topic("a", 2), topic("b", 5), parts=(reads,))
    assert found.task_counts == {"0": 5}
    assert found.is_ready
    assert [found.has_task(task(0, n)) for n in (-1, 0, 4, 5)] == [False, True, True, False]


def test_repartition_topics_and_changelogs_follow_their_sources() -> None:
    found = resolve(COUNTING, TopicCatalog([topic("words", 7)]))
    assert made(found) == {"by-word": 7, "counts": 7}
    assert found.task_counts == {"0": 7, "1": 7}
    assert code_of(found) is StatusCode.MISSING_INTERNAL_TOPICS


def test_a_chain_of_repartition_topics_is_followed_whatever_its_order() -> None:
    last = Subtopology(id="2", repartition_source_topics=(InternalTopic(name="second"),))
    middle = Subtopology(
        id="1",
        repartition_source_topics=(InternalTopic(name="first"),),
        repartition_sink_topics=("second",),
    )
    first = Subtopology(id="0", source_topics=("words",), repartition_sink_topics=("first",))
    found = resolved(topic("words", 3), parts=(last, middle, first))
    assert made(found) == {"first": 3, "second": 3}


def test_a_number_of_partitions_that_the_application_fixed_counts() -> None:
    fixed = replace(COUNT, repartition_source_topics=(InternalTopic(name="by-word", partitions=4),))
    found = resolved(topic("words", 2), parts=(SPLIT, fixed))
    assert made(found) == {"by-word": 4, "counts": 4}


LOOP = Subtopology(
    id="2",
    repartition_source_topics=(InternalTopic(name="round"),),
    repartition_sink_topics=("round",),
)


@pytest.mark.parametrize(("part", "name"), [(COUNT, "by-word"), (LOOP, "round")])
def test_a_repartition_topic_that_nothing_flows_into_has_no_number(
    part: Subtopology, name: str
) -> None:
    reads = Subtopology(id="0", source_topics=("words",))
    assert unsized_topics(Topology(epoch=0, subtopologies=(reads, part))) == {name}
    # Such a topology may be stored, by a version that did not refuse it.
    found = resolved(topic("words", 2), parts=(reads, part))
    assert code_of(found) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert found.task_counts == {}


def test_a_loop_that_a_source_flows_into_or_with_a_fixed_number_has_its_numbers() -> None:
    fed = replace(LOOP, source_topics=("words",))
    fixed = replace(LOOP, repartition_source_topics=(InternalTopic(name="round", partitions=2),))
    for part in (fed, fixed):
        assert unsized_topics(Topology(epoch=0, subtopologies=(part,))) == set()
        assert made(resolved(topic("words", 2), parts=(part,))) == {"round": 2}


def test_topics_that_are_joined_have_equally_many_partitions() -> None:
    joins = Subtopology(
        id="1",
        source_topics=("users",),
        repartition_source_topics=(InternalTopic(name="by-word"),),
        copartition_groups=(CopartitionGroup(source_topics=(0,), repartition_source_topics=(0,)),),
    )
    found = resolved(topic("words", 2), topic("users", 6), parts=(SPLIT, joins))
    assert made(found) == {"by-word": 6}


@pytest.mark.parametrize("fixed", [0, 3])
def test_two_repartition_topics_that_are_joined_take_the_larger_or_fixed_number(
    fixed: int,
) -> None:
    other = Subtopology(id="2", source_topics=("more",), repartition_sink_topics=("by-more",))
    joins = Subtopology(
        id="1",
        repartition_source_topics=(
            InternalTopic(name="by-word"),
            InternalTopic(name="by-more", partitions=fixed),
        ),
        copartition_groups=(CopartitionGroup(repartition_source_topics=(0, 1)),),
    )
    found = resolved(topic("words", 2), topic("more", 5), parts=(SPLIT, other, joins))
    assert made(found) == dict.fromkeys(("by-word", "by-more"), fixed or 5)


def test_sources_that_are_joined_and_differ_are_named() -> None:
    joins = Subtopology(
        id="0",
        source_topics=("a", "b"),
        copartition_groups=(CopartitionGroup(source_topics=(0, 1)),),
    )
    found = resolved(topic("a", 1), topic("b", 2), parts=(joins,))
    assert code_of(found) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS
    assert found.fault is not None
    assert "a has 1, b has 2" in found.fault.detail


def test_a_fixed_number_that_does_not_fit_its_join_is_named() -> None:
    joins = Subtopology(
        id="1",
        source_topics=("users",),
        repartition_source_topics=(InternalTopic(name="by-word", partitions=3),),
        copartition_groups=(CopartitionGroup(source_topics=(0,), repartition_source_topics=(0,)),),
    )
    found = resolved(topic("words", 2), topic("users", 6), parts=(SPLIT, joins))
    assert code_of(found) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_a_source_that_is_its_own_changelog_is_not_made() -> None:
    table = Subtopology(
        id="0", source_topics=("words",), changelog_topics=(InternalTopic(name="words"),)
    )
    assert resolved(topic("words", 2), parts=(table,)).is_ready


def test_a_group_has_a_limit_of_tasks() -> None:
    parts = tuple(Subtopology(id=f"{n}", source_topics=("words",)) for n in range(10))
    assert resolved(topic("words", TASKS_MAX // 10), parts=parts).is_ready
    found = resolved(topic("words", TASKS_MAX // 10 + 1), parts=parts)
    assert code_of(found) is StatusCode.INCORRECTLY_PARTITIONED_TOPICS


def test_a_status_names_a_few_topics() -> None:
    assert shown("edcba") == "a, b, c, d, e"
    assert shown("fedcba") == "a, b, c, d, e and 1 more"
