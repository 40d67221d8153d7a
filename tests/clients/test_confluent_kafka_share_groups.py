"""librdkafka's ShareConsumer: who is in a share group, what each reads, and who may not come in.

What becomes of single records is in test_confluent_kafka_queues.py.
"""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaException, ShareConsumer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    NewPartitions,
)

from tests.clients.share_group_steps import (
    configure_group,
    describe_share_group,
    join_share_group,
    members_of,
    positions_of,
)
from tests.clients.steps import WITHIN_S, create_topic, eventually, numbered, produce
from tests.conftest import SHARE_SESSION_MS

pytestmark = pytest.mark.timeout(200)

BUSY_WITHIN_S = 60.0  # a first fetch by Apache Kafka, on a machine that has much to do

# What librdkafka makes of Kafka's codes 23 and 69.
REFUSALS = {"classic": "Inconsistent group protocol", "consumer": "group id does not exist"}


class Queue:
    """Members of the test's group in this process. A member heartbeats whether it polls or not."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self.members: list[ShareConsumer] = []

    def join(self, *topics: str) -> ShareConsumer:
        config = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 3}
        member = ShareConsumer(config)
        self.members.append(member)
        member.subscribe(list(topics or (self.topic,)))
        return member

    def leave(self, member: ShareConsumer) -> None:
        self.members.remove(member)
        member.close()

    def settle(self, *counts: int, within_s: float = WITHIN_S) -> None:
        """Until the members have so many partitions each, in any order."""

        def is_settled() -> bool:
            for member in self.members:
                member.poll(0.02)
            owned = members_of(self.bootstrap, self.group).values()
            return sorted(map(len, owned)) == sorted(counts)

        eventually(is_settled, what=f"members with {counts} partitions", within_s=within_s)


@pytest.fixture
def queue(bootstrap: str, admin: AdminClient, group: str, topic: str) -> Iterator[Queue]:
    create_topic(admin, topic, partitions=2)
    queue = Queue(bootstrap, group, topic)
    yield queue
    for member in queue.members:
        member.close()


def test_more_members_than_partitions_share_them(queue: Queue) -> None:
    queue.join()
    queue.settle(2)
    second = queue.join()
    third = queue.join()
    queue.settle(1, 1, 2)
    queue.leave(second)
    queue.leave(third)
    queue.settle(2)


def test_a_group_is_a_share_group_and_describes_itself(queue: Queue, admin: AdminClient) -> None:
    queue.join()
    queue.settle(2)
    described = describe_share_group(queue.bootstrap, queue.group)
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    (member,) = described.members
    assert member.subscribed_topic_names == [queue.topic]
    assert described.group_epoch == described.assignment_epoch == member.member_epoch


def test_members_hear_of_partitions_that_are_added(queue: Queue, admin: AdminClient) -> None:
    queue.join()
    queue.settle(2)
    admin.create_partitions([NewPartitions(queue.topic, 4)])[queue.topic].result(WITHIN_S)
    queue.settle(4)


def test_a_group_whose_members_are_gone_keeps_its_place(queue: Queue) -> None:
    configure_group(queue.bootstrap, queue.group, share_auto_offset_reset="earliest")
    produce(queue.bootstrap, queue.topic, numbered(10))
    member = queue.join()
    taken = 0
    deadline = time.monotonic() + BUSY_WITHIN_S
    while taken < 10:
        assert time.monotonic() < deadline, f"{taken} of 10 records came"
        taken += len(member.poll(0.2))
    member.commit_sync(BUSY_WITHIN_S)
    queue.leave(member)
    assert describe_share_group(queue.bootstrap, queue.group).group_state == "Empty"

    def is_done() -> bool:
        return sum(one.lag for one in positions_of(queue.bootstrap, queue.group).values()) == 0

    eventually(is_done, what="a group that has nothing left to do", within_s=BUSY_WITHIN_S)
    produce(queue.bootstrap, queue.topic, numbered(3))
    assert sum(one.lag for one in positions_of(queue.bootstrap, queue.group).values()) == 3


@pytest.mark.full
def test_a_member_that_is_not_heard_of_is_out_and_others_take_over(queue: Queue) -> None:
    queue.join()
    queue.settle(2)
    join_share_group(queue.bootstrap, queue.group, queue.topic, member_id="silent")
    assert "silent" in members_of(queue.bootstrap, queue.group)
    queue.settle(2, within_s=SHARE_SESSION_MS / 1000 + 20)


def test_a_consumer_of_another_kind_is_not_let_in(queue: Queue) -> None:
    queue.join()
    queue.settle(2)
    for protocol in REFUSALS:
        consumer = Consumer(
            {
                "bootstrap.servers": queue.bootstrap,
                "group.id": queue.group,
                "group.protocol": protocol,
                "log_level": 0,
            }
        )
        with closing(consumer):
            consumer.subscribe([queue.topic])
            with pytest.raises(KafkaException) as refused:
                _poll_until_refused(consumer)
        assert REFUSALS[protocol] in refused.value.args[0].str()
    queue.settle(2)


def _poll_until_refused(consumer: Consumer) -> None:
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error():
            raise KafkaException(message.error())
