"""librdkafka's ShareConsumer: what becomes of single records in a share group.

Who is in a group is in test_confluent_kafka_share_groups.py.
"""

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient

from millstream.broker.wire.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from millstream.broker.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.clients.share_group_steps import configure_group
from tests.clients.steps import WITHIN_S, create_topic, eventually, numbered, produce
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.timeout(120)

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
LOCK_MS = 1_000
# So long nothing comes, and nothing more will: some polls and their answers.
QUIET_S = 1.5


class Queue:
    """A topic of one partition, a group that starts with its first record, and some members."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.bootstrap, self.group, self.topic = bootstrap, group, topic
        self.members: list[ShareConsumer] = []

    def join(self, *, mode: str = "explicit") -> ShareConsumer:
        config = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "share.acknowledgement.mode": mode,
            "log_level": 3,
        }
        member = ShareConsumer(config)
        self.members.append(member)
        member.subscribe([self.topic])
        return member

    def leave(self, member: ShareConsumer) -> None:
        self.members.remove(member)
        member.close()

    def configure(self, **values: str) -> None:
        configure_group(self.bootstrap, self.group, **values)


@pytest.fixture
def queue(bootstrap: str, admin: AdminClient, group: str, topic: str) -> Iterator[Queue]:
    create_topic(admin, topic, partitions=1)
    queue = Queue(bootstrap, group, topic)
    queue.configure(share_auto_offset_reset="earliest")
    yield queue
    for member in queue.members:
        member.close()


def take(
    member: ShareConsumer, count: int, say: Callable[[Message], AcknowledgeType]
) -> list[Message]:
    """The next records, so many at least, each settled as `say` says and committed."""
    taken: list[Message] = []

    def is_enough() -> bool:
        taken.extend(settle(member, say))
        return len(taken) >= count

    eventually(is_enough, what=f"{count} records")
    return taken


def settle(member: ShareConsumer, say: Callable[[Message], AcknowledgeType]) -> list[Message]:
    """One poll; what came is settled and committed."""
    messages = [one for one in member.poll(0.2) if one.error() is None]
    for message in messages:
        member.acknowledge(message, say(message))
    if messages:
        assert set(member.commit_sync(WITHIN_S).values()) == {None}
    return messages


def hold_one(member: ShareConsumer) -> Message:
    """The next record, of which nothing is said yet."""
    held: list[Message] = []

    def has_one() -> bool:
        held.extend(one for one in member.poll(0.2) if one.error() is None)
        return bool(held)

    eventually(has_one, what="a record")
    [message] = held
    return message


def accept(_: Message) -> AcknowledgeType:
    return ACCEPT


def assert_nothing_comes(member: ShareConsumer) -> None:
    deadline = time.monotonic() + QUIET_S
    while time.monotonic() < deadline:
        found = settle(member, accept)
        assert not found, [one.value() for one in found]


def test_members_get_every_record_once_though_there_is_one_partition(queue: Queue) -> None:
    members = [queue.join(mode="implicit") for _ in range(3)]
    produce(queue.bootstrap, queue.topic, numbered(300))
    got: list[bytes] = []

    def is_all_there() -> bool:
        for member in members:
            got.extend(one.value() or b"" for one in member.poll(0.05) if one.error() is None)
        return len(got) >= 300

    eventually(is_all_there, what="300 records")
    assert sorted(got) == sorted(sent.value or b"" for sent in numbered(300))


def test_a_released_record_comes_again_and_counts_and_others_do_not(queue: Queue) -> None:
    produce(queue.bootstrap, queue.topic, numbered(10))
    member = queue.join()

    def release_the_fourth(message: Message) -> AcknowledgeType:
        return RELEASE if message.offset() == 3 else ACCEPT

    first = take(member, 10, release_the_fourth)
    assert [one.delivery_count() for one in first[:10]] == [1] * 10
    again = take(member, 1, accept)
    assert [(one.offset(), one.delivery_count()) for one in again] == [(3, 2)]
    assert_nothing_comes(member)


def test_a_rejected_record_does_not_come_again(queue: Queue) -> None:
    produce(queue.bootstrap, queue.topic, numbered(3))
    member = queue.join()
    take(member, 3, lambda _: REJECT)
    assert_nothing_comes(member)


def test_a_record_is_delivered_no_more_often_than_the_limit(queue: Queue) -> None:
    queue.configure(share_delivery_count_limit="3")
    produce(queue.bootstrap, queue.topic, numbered(1))
    member = queue.join()
    got = take(member, 3, lambda _: RELEASE)
    assert [one.delivery_count() for one in got] == [1, 2, 3]
    assert_nothing_comes(member)


def test_what_is_not_settled_in_time_goes_to_another_member(queue: Queue) -> None:
    queue.configure(share_record_lock_duration_ms=str(LOCK_MS))
    produce(queue.bootstrap, queue.topic, numbered(1))
    slow, other = queue.join(), queue.join()
    late = hold_one(slow)
    again = hold_one(other)
    assert (again.offset(), again.delivery_count()) == (late.offset(), 2)
    slow.acknowledge(late, ACCEPT)
    [refusal] = slow.commit_sync(WITHIN_S).values()
    assert refusal is not None


def test_what_a_member_has_not_settled_when_it_closes_goes_to_another(queue: Queue) -> None:
    produce(queue.bootstrap, queue.topic, numbered(1))
    leaving = queue.join()
    hold_one(leaving)
    queue.leave(leaving)
    again = take(queue.join(), 1, accept)
    assert [(one.offset(), one.delivery_count()) for one in again] == [(0, 2)]


def test_what_a_member_held_when_its_connection_broke_goes_to_another(queue: Queue) -> None:
    """Long before the lock would run out, or the member be missed."""
    queue.configure(share_record_lock_duration_ms="60000", share_session_timeout_ms="45000")
    produce(queue.bootstrap, queue.topic, numbered(1))
    with RawClient(queue.bootstrap) as client:
        join_bare(client, queue, "ada")
        hold_bare(client, queue, "ada")
    again = take(queue.join(), 1, accept)
    assert [(one.offset(), one.delivery_count()) for one in again] == [(0, 2)]


def join_bare(client: RawClient, queue: Queue, member_id: str) -> None:
    request = ShareGroupHeartbeatRequest(
        group_id=queue.group, member_id=member_id, subscribed_topic_names=[queue.topic]
    )
    answer = client.call_coordinator(request, ShareGroupHeartbeatResponse, 1, group=queue.group)
    assert answer.error_code == 0, answer.error_message


def hold_bare(client: RawClient, queue: Queue, member_id: str) -> None:
    """Open a share session, until it brings a record: the group may not have begun here yet."""
    topic_id = client.metadata(queue.topic).topics[0].topic_id
    request = ShareFetchRequest(
        group_id=queue.group,
        member_id=member_id,
        max_wait_ms=100,
        max_records=1,
        batch_size=1,
        topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=0)])],
    )

    def has_one() -> bool:
        answer = client.call(request, ShareFetchResponse, 1)
        return any(one.acquired_records for topic in answer.responses for one in topic.partitions)

    eventually(has_one, what="a record")


def test_a_group_that_reads_committed_sees_no_aborted_records(queue: Queue) -> None:
    queue.configure(share_isolation_level="read_committed")
    producer = Producer(
        {"bootstrap.servers": queue.bootstrap, "transactional.id": queue.group, "log_level": 3}
    )
    producer.init_transactions(WITHIN_S)
    for value, must_commit in ((b"never", False), (b"kept", True), (b"nor", False), (b"too", True)):
        producer.begin_transaction()
        producer.produce(queue.topic, value)
        producer.flush(WITHIN_S)
        (producer.commit_transaction if must_commit else producer.abort_transaction)(WITHIN_S)
    member = queue.join()
    assert [one.value() for one in take(member, 2, accept)] == [b"kept", b"too"]
    assert_nothing_comes(member)
