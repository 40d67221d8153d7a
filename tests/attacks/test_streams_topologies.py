"""A topology that is allowed and as long as can be: the broker looks through it at once."""

from time import process_time

from millstream.broker.groups.topic_catalog import TopicCatalog
from millstream.broker.streams.internal_topics import resolve
from millstream.broker.streams.streams_admission import SUBTOPOLOGIES_MAX
from millstream.broker.streams.topology import InternalTopic, Subtopology, Topology
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
