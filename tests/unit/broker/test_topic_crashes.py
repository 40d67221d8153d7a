"""Creating, growing and deleting a topic, cut off between any two steps, leaves all or nothing.

The disk is simulated: before every call that changes it, what each kind of power cut would leave
is kept aside, and a new broker starts from it.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.topics import INTERNAL_TOPICS
from tests.support.recording_disk import Leftovers, RecordingDisk, restarted
from tests.support.served_node import ServedNode
from tests.support.simulated_disk import Survival

PLACE = TopicPartition("orders", 0)


@pytest.fixture
def recording(tmp_path: Path) -> RecordingDisk:
    return RecordingDisk(tmp_path)


def record(disk: RecordingDisk, path: Path, act: Callable[[ServedNode], object]) -> Leftovers:
    served = ServedNode(path, disk=disk)
    served.create("orders", 1)
    served.produce(b"kept")
    group = served.node.groups.find_or_create("readers")
    committed = CommittedOffset(offset=1, committed_ms=served.now_ms)
    served.run(served.node.groups.commit(group, [(PLACE, committed)]))
    disk.start()
    act(served)
    leftovers = disk.stop()
    served.close()
    return leftovers


def partitions(served: ServedNode, topic: str) -> int:
    topics = served.node.topics
    return len(topics.named(topic).partitions) if topic in topics else 0


def directories(served: ServedNode, topic: str) -> int:
    return sum(1 for name, _ in served.node.directory.partitions_on_disk() if name == topic)


def test_a_creation_is_whole_or_not_there(recording: RecordingDisk, tmp_path: Path) -> None:
    leftovers = record(recording, tmp_path, lambda served: served.create("new", 2))
    seen = set()
    for moment, served in restarted(tmp_path, leftovers):
        count = partitions(served, "new")
        seen.add(count)
        assert count in (0, 2), moment
        assert directories(served, "new") == count, moment
        assert served.node.topics.named("orders").partitions[0].log.end_offset == 1, moment
        if count == 0:
            served.create("new", 3)
        assert served.produce(b"first", topic="new") == 0, moment
    assert seen == {0, 2}


def test_growth_is_whole_or_not_there(recording: RecordingDisk, tmp_path: Path) -> None:
    def grow(served: ServedNode) -> None:
        topics = served.node.topics
        served.run(topics.add_partitions(topics.named("orders"), 3))

    seen = set()
    for moment, served in restarted(tmp_path, record(recording, tmp_path, grow)):
        count = partitions(served, "orders")
        seen.add(count)
        assert count in (1, 3), moment
        assert directories(served, "orders") == count, moment
        assert served.produce(b"next") == 1, moment
    assert seen == {1, 3}


def test_a_deletion_is_whole_or_not_there_and_takes_the_offsets_along(
    recording: RecordingDisk, tmp_path: Path
) -> None:
    def delete(served: ServedNode) -> None:
        topics = served.node.topics
        served.run(topics.delete(topics.named("orders")))

    seen = set()
    for moment, served in restarted(tmp_path, record(recording, tmp_path, delete)):
        count = partitions(served, "orders")
        seen.add(count)
        assert count in (0, 1), moment
        assert directories(served, "orders") == count, moment
        group = served.node.groups.find("readers")
        offset = group.offsets.fetch(PLACE) if group is not None else None
        assert (offset is not None) == (count == 1), moment
        if count == 1:
            assert served.node.topics.named("orders").partitions[0].log.end_offset == 1, moment
        else:
            served.create("orders")
            assert served.produce(b"first") == 0, moment
    assert seen == {0, 1}


def test_an_answered_creation_or_deletion_stands(recording: RecordingDisk, tmp_path: Path) -> None:
    """The last moment of each: after the answer, nothing depends on what was not synced."""

    def create_and_delete(served: ServedNode) -> None:
        topics = served.node.topics
        served.create("new")
        served.run(topics.delete(topics.named("orders")))

    leftovers = record(recording, tmp_path, create_and_delete)
    for moment, served in restarted(tmp_path, leftovers[-len(Survival) :]):
        names = {topic.name for topic in served.node.topics} - INTERNAL_TOPICS
        assert names == {"new"}, moment
