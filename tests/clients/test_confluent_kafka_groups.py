"""librdkafka in consumer groups: who reads what as members join, leave and crash."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.steps import (
    SESSION_TIMEOUT_MS,
    WITHIN_S,
    Sent,
    create_topic,
    eventually,
    numbered,
    offsets_of,
    open_consumer,
    produce,
    take,
    values_of,
)

PARTITIONS = 4

Join = Callable[..., "Member"]


class Member:
    """A consumer that subscribed, and what its group has done to it since."""

    def __init__(self, bootstrap: str, group: str, topic: str, config: dict[str, Any]) -> None:
        self.consumer = open_consumer(bootstrap, group, config)
        self.revoked: list[set[int]] = []
        self.received: list[Message] = []
        self.consumer.subscribe([topic], on_revoke=self._on_revoke)
        self._is_open = True

    @property
    def partitions(self) -> set[int]:
        return {assigned.partition for assigned in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is None:
            return
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        self.received.append(message)

    def leave(self) -> None:
        if self._is_open:
            self._is_open = False
            self.consumer.close()

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked.append({revoked.partition for revoked in partitions})


@pytest.fixture
def join(bootstrap: str, admin: AdminClient, group: str, topic: str) -> Iterator[Join]:
    """Start a member of the test's group on the test's topic, which has four partitions."""
    create_topic(admin, topic, partitions=PARTITIONS)
    members: list[Member] = []

    def start(**config: Any) -> Member:
        dotted = {name.replace("_", "."): value for name, value in config.items()}
        members.append(Member(bootstrap, group, topic, dotted))
        return members[-1]

    yield start
    for member in members:
        member.leave()


def settle(*expected: tuple[Member, int], within_s: float = WITHIN_S) -> None:
    """Poll the members until each has its number of partitions and together they have all."""

    def is_settled() -> bool:
        for member, _ in expected:
            member.poll()
        together = set[int]().union(*(member.partitions for member, _ in expected))
        counts_match = all(len(member.partitions) == count for member, count in expected)
        return counts_match and len(together) == sum(count for _, count in expected)

    counts = [count for _, count in expected]
    eventually(is_settled, within_s=within_s, what=f"members with {counts} partitions")


def poll_for_an_error(member: Member) -> None:
    """Poll until the client raises what its group did to it, or the time is up."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        member.poll()


def test_the_only_member_gets_every_partition(join: Join) -> None:
    settle((join(), 4))


def test_a_member_that_joins_takes_its_share(join: Join) -> None:
    first = join()
    settle((first, 4))
    settle((first, 2), (join(), 2))


def test_the_partitions_of_a_member_that_leaves_are_taken_over_at_once(join: Join) -> None:
    first, second = join(), join()
    settle((first, 2), (second, 2))
    second.leave()
    settle((first, 4), within_s=SESSION_TIMEOUT_MS / 1000 - 1)  # not by the session running out


def test_the_partitions_of_a_member_that_is_killed_are_taken_over(
    bootstrap: str, group: str, topic: str, join: Join
) -> None:
    survivor = join()
    settle((survivor, 4))
    command = [sys.executable, "-m", "tests.clients.group_member", bootstrap, group, topic]
    with subprocess.Popen(command) as doomed:
        try:
            settle((survivor, 2))
        finally:
            doomed.kill()
    killed_s = time.monotonic()
    settle((survivor, 4), within_s=SESSION_TIMEOUT_MS / 1000 + 10)
    # The dead member's session must run out first; its last heartbeat was under 1 s before.
    assert time.monotonic() - killed_s > SESSION_TIMEOUT_MS / 1000 - 1


def test_members_share_the_records_and_none_is_read_twice(
    bootstrap: str, topic: str, join: Join
) -> None:
    first, second = join(), join()
    settle((first, 2), (second, 2))
    produce(bootstrap, topic, [Sent(value=b"%d" % n, partition=n % 4) for n in range(100)])

    def have_all() -> bool:
        first.poll()
        second.poll()
        return len(first.received) + len(second.received) >= 100

    eventually(have_all, what="100 records")
    assert sorted(values_of(first.received + second.received), key=lambda v: int(v or b"")) == [
        b"%d" % n for n in range(100)
    ]
    assert len(first.received) == len(second.received) == 50


def test_two_groups_each_read_everything(
    bootstrap: str, group: str, topic: str, join: Join
) -> None:
    produce(bootstrap, topic, numbered(10))
    for name in (group, f"{group}-other"):
        consumer = open_consumer(bootstrap, name)
        consumer.subscribe([topic])
        assert len(take(consumer, 10)) == 10
        consumer.close()


def test_a_static_member_that_returns_keeps_its_partitions_without_a_rebalance(
    join: Join,
) -> None:
    stays, restarts = join(group_instance_id="stays"), join(group_instance_id="restarts")
    settle((stays, 2), (restarts, 2))
    held, revocations = restarts.partitions, len(stays.revoked)
    restarts.leave()  # a static member does not tell its group

    returned = join(group_instance_id="restarts")
    settle((stays, 2), (returned, 2))
    assert returned.partitions == held
    assert len(stays.revoked) == revocations


def test_a_second_member_with_the_same_instance_id_fences_the_first(join: Join) -> None:
    first = join(group_instance_id="only-one")
    settle((first, 4))
    second = join(group_instance_id="only-one")
    settle((second, 4))
    with pytest.raises(KafkaException) as fenced:
        poll_for_an_error(first)
    # librdkafka makes it fatal, and keeps the broker's reason only in the text.
    assert fenced.value.args[0].code() == KafkaError._FATAL
    assert "fenced by other consumer with same group.instance.id" in str(fenced.value)
    settle((second, 4))


def test_a_cooperative_member_gives_up_only_what_moves(join: Join) -> None:
    first = join(partition_assignment_strategy="cooperative-sticky")
    settle((first, 4))
    second = join(partition_assignment_strategy="cooperative-sticky")
    settle((first, 2), (second, 2))
    assert [revoked for revoked in first.revoked if revoked] == [second.partitions]


def test_members_without_a_common_strategy_cannot_form_a_group(join: Join) -> None:
    settle((join(partition_assignment_strategy="range"), 4))
    other = join(partition_assignment_strategy="roundrobin")
    with pytest.raises(KafkaException) as refused:
        poll_for_an_error(other)
    assert refused.value.args[0].code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_continues_where_it_committed(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    consumer = open_consumer(bootstrap, group)
    consumer.subscribe([topic])
    consumer.commit(message=take(consumer, 4)[-1], asynchronous=False)
    take(consumer, 3)  # read, and not committed: these are read again
    consumer.close()

    successor = open_consumer(bootstrap, group)
    successor.subscribe([topic])
    assert offsets_of(take(successor, 6)) == [4, 5, 6, 7, 8, 9]
    successor.close()


def test_a_commit_keeps_its_metadata_and_an_unread_partition_has_none(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic, partitions=2)
    consumer = open_consumer(bootstrap, group)
    wanted = TopicPartition(topic, 0, 42, metadata="by hand")
    consumer.commit(offsets=[wanted], asynchronous=False)
    consumer.close()

    reader = open_consumer(bootstrap, group)
    first, second = reader.committed([TopicPartition(topic, n) for n in range(2)], WITHIN_S)
    reader.close()
    assert (first.offset, first.metadata) == (42, "by hand")
    assert second.offset < 0


def test_what_was_stored_is_committed_when_the_consumer_closes(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(5))
    consumer = open_consumer(bootstrap, group, {"enable.auto.commit": True})
    consumer.subscribe([topic])
    take(consumer, 5)
    consumer.close()

    reader = open_consumer(bootstrap, group)
    [committed] = reader.committed([TopicPartition(topic, 0)], WITHIN_S)
    reader.close()
    assert committed.offset == 5


@pytest.mark.full
def test_a_commit_of_a_member_that_was_thrown_out_is_refused(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(1))
    # A poll interval of one session: a member that does not poll is out when it ends.
    config = {"max.poll.interval.ms": SESSION_TIMEOUT_MS}
    slow = open_consumer(bootstrap, group, config)
    slow.subscribe([topic])
    [message] = take(slow, 1)

    heir = open_consumer(bootstrap, group)
    heir.subscribe([topic])
    assert offsets_of(take(heir, 1)) == [0]
    with pytest.raises(KafkaException) as refused:
        slow.commit(message=message, asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    heir.close()
    slow.close()


def test_a_pattern_subscribes_to_topics_that_are_made_later(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, f"{topic}-a")
    produce(bootstrap, f"{topic}-a", [Sent(value=b"a")])
    consumer = open_consumer(bootstrap, group)
    consumer.subscribe([f"^{topic}-.*"])
    [message] = take(consumer, 1)
    assert message.value() == b"a"
    consumer.commit(message=message, asynchronous=False)  # else the rebalance reads it again

    create_topic(admin, f"{topic}-b")
    produce(bootstrap, f"{topic}-b", [Sent(value=b"b")])
    assert values_of(take(consumer, 1)) == [b"b"]
    consumer.close()
