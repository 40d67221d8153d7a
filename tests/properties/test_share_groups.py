"""Random members, topics and power cuts against a node with one share group.

The model knows what each member was told last. Whatever happens, a member that was told an epoch
goes on with it, the epochs it is told never fall, and once all have been heard of, every partition
that somebody subscribes to is read by somebody who does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.wire import ErrorCode
from millstream.broker.wire.messages.delete_groups import DeleteGroupsRequest
from millstream.broker.wire.messages.share_group_heartbeat import ShareGroupHeartbeatResponse
from tests.support.served_node import ServedNode
from tests.support.simulated_disk import SimulatedDisk, Survival
from tests.unit.broker.share_group_steps import QUEUE, beat_request

MEMBERS, TOPICS = ("ada", "bob", "eve"), ("orders", "audit")
SESSION_S, PAUSE_S = 45, 20
SUBSCRIPTIONS = (["orders"], ["audit"], ["orders", "audit"])
NAMES = [*["join", "beat"] * 4, "leave", "wait", "create", "grow", "delete topic", "cut", "delete"]
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 2)),
    min_size=10,
    max_size=30,
)


class Room:
    """The node, and what its members were told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.disk = SimulatedDisk(path)
        self.served = ServedNode(path, disk=self.disk)
        self.epochs: dict[str, int] = {}
        self.assigned: dict[str, set[TopicIdPartition]] = {}
        self.topics: dict[str, list[str]] = {}
        self.silent_s: dict[str, int] = {}

    def take(self, step: tuple[str, int, int]) -> None:
        name, first, second = step
        getattr(self, name.replace(" ", "_"))(first, second)

    # What members do.

    def join(self, first: int, second: int) -> None:
        member, topics = MEMBERS[first], SUBSCRIPTIONS[second]
        answer = self.served.ask(beat_request(member, 0, topics))
        self.topics[member] = topics
        self.heard(member, answer)

    def beat(self, first: int, _second: int) -> None:
        member = MEMBERS[first]
        if member in self.epochs:
            self.heard(member, self.served.ask(beat_request(member, self.epochs[member])))
        else:
            answer = self.served.ask(beat_request(member, 7))
            assert answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)

    def heard(self, member: str, answer: ShareGroupHeartbeatResponse) -> None:
        assert answer.error_code == ErrorCode.NONE, answer
        assert answer.member_epoch >= self.epochs.get(member, 1)
        self.epochs[member], self.silent_s[member] = answer.member_epoch, 0
        if answer.assignment is not None:
            self.assigned[member] = {
                TopicIdPartition(topic.topic_id, number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            }

    def leave(self, first: int, _second: int) -> None:
        member = MEMBERS[first]
        if member in self.epochs:
            answer = self.served.ask(beat_request(member, -1))
            assert answer.error_code == ErrorCode.NONE
            self.gone(member)

    def gone(self, member: str) -> None:
        for told in (self.epochs, self.assigned, self.topics, self.silent_s):
            told.pop(member, None)

    def wait(self, _first: int, _second: int) -> None:
        self.served.advance(PAUSE_S)
        for member in [*self.epochs]:
            self.silent_s[member] += PAUSE_S
            if self.silent_s[member] > SESSION_S:
                self.gone(member)

    # What operators do.

    def create(self, first: int, second: int) -> None:
        name = TOPICS[first % 2]
        if name not in self.served.node.topics:
            self.served.create(name, partitions=second + 1)

    def grow(self, first: int, _second: int) -> None:
        name = TOPICS[first % 2]
        if name in self.served.node.topics:
            topic = self.served.node.topics.named(name)
            more = self.served.node.topics.add_partitions(topic, len(topic.partitions) + 1)
            self.served.run(more)

    def delete_topic(self, first: int, _second: int) -> None:
        name = TOPICS[first % 2]
        if name in self.served.node.topics:
            self.served.run(self.served.node.topics.delete(self.served.node.topics.named(name)))

    def delete(self, _first: int, _second: int) -> None:
        answer = self.served.ask(DeleteGroupsRequest(groups_names=[QUEUE])).results[0]
        if self.epochs:
            assert answer.error_code == ErrorCode.NON_EMPTY_GROUP

    def cut(self, first: int, second: int) -> None:
        """Nobody could heartbeat meanwhile: sessions start again."""
        survival = [*Survival][first % len(Survival)]
        self.served.crash()
        self.disk = self.disk.after_power_cut(survival, seed=second)
        self.served = ServedNode(self.path, disk=self.disk)
        self.silent_s = dict.fromkeys(self.epochs, 0)

    # The promise.

    def check(self) -> None:
        for _ in range(2):  # what the first heartbeat of one changes, all hear of in the second
            for member in self.epochs:
                self.beat(MEMBERS.index(member), 0)
        wanted: set[TopicIdPartition] = set()
        for member, names in self.topics.items():
            readable = self.partitions_of(names)
            assert self.assigned[member] <= readable
            wanted |= readable
        assert set().union(*self.assigned.values()) == wanted
        shares = self.served.node.groups.shares
        assert {one.member_id for group in shares for one in group.book} == self.epochs.keys()
        there = self.partitions_of([*TOPICS])
        assert all(group.book.shared <= there for group in shares)

    def partitions_of(self, names: list[str]) -> set[TopicIdPartition]:
        topics = self.served.node.topics
        return {
            TopicIdPartition(topics.named(name).id, number)
            for name in names
            if name in topics
            for number in range(len(topics.named(name).partitions))
        }


@contextmanager
def open_room() -> Iterator[Room]:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "data"
        path.mkdir()
        room = Room(path)
        try:
            yield room
        finally:
            room.served.crash()


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_a_told_epoch_stands_and_every_partition_has_a_reader(
    steps: list[tuple[str, int, int]],
) -> None:
    with open_room() as room:
        for step in steps:
            room.take(step)
        room.check()
