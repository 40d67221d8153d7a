"""librdkafka with group.protocol=consumer (KIP-848), alone and beside classic members.

Members are processes that say when they own what: no partition may ever have two owners.
"""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    NewPartitions,
)

from tests.clients.member_processes import Members
from tests.clients.protocol_member import config_of, open_member
from tests.clients.steps import (
    WITHIN_S,
    create_topic,
    eventually,
    numbered,
    produce,
    take,
    values_of,
)
from tests.conftest import CONSUMER_SESSION_MS

PARTITIONS = 4

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def members(bootstrap: str, admin: AdminClient, group: str, topic: str) -> Iterator[Members]:
    """Starts members of the test's group on its topic, which has four partitions."""
    create_topic(admin, topic, partitions=PARTITIONS)
    with Members(bootstrap, group, topic) as running:
        yield running
        running.check_single_owners()


def type_of(admin: AdminClient, group: str) -> str:
    listed = admin.list_consumer_groups().result(WITHIN_S).valid
    name: str = next(one.type.name for one in listed if one.group_id == group)
    return name


def test_members_share_and_take_over_from_who_leaves(members: Members) -> None:
    first = members.start()
    members.settle((first, 4))
    second = members.start()
    members.settle((first, 2), (second, 2))
    second.leave()
    members.settle((first, 4), within_s=CONSUMER_SESSION_MS / 1000 - 1)  # not by its session


def test_a_newcomer_takes_no_more_than_its_share(members: Members) -> None:
    first, second = members.start(), members.start()
    members.settle((first, 2), (second, 2))
    third = members.start()
    members.settle((third, 1))
    assert sorted(len(member.partitions) for member in (first, second)) == [1, 2]


def test_the_partitions_of_a_member_that_is_killed_are_taken_over(members: Members) -> None:
    survivor, doomed = members.start(), members.start()
    members.settle((survivor, 2), (doomed, 2))
    doomed.kill()
    killed_s = time.monotonic()
    members.settle((survivor, 4), within_s=CONSUMER_SESSION_MS / 1000 + 10)
    assert time.monotonic() - killed_s > CONSUMER_SESSION_MS / 1000 - 2


@pytest.mark.full
def test_members_that_come_and_go_never_own_a_partition_twice(members: Members) -> None:
    first = members.start()
    second = members.start()
    members.settle((first, 2), (second, 2))
    third, fourth = members.start(), members.start()
    first.leave()
    fifth = members.start()
    members.settle((second, 1), (third, 1), (fourth, 1), (fifth, 1))
    third.kill()
    fourth.leave()
    members.settle((second, 2), (fifth, 2))


def test_a_pattern_follows_topics_that_appear(
    members: Members, admin: AdminClient, topic: str
) -> None:
    reader = members.start(topic=f"^{topic}.*")
    members.settle((reader, 4))
    create_topic(admin, f"{topic}-more", partitions=2)
    members.settle((reader, 6), within_s=60)  # Kafka looks at patterns every ten seconds


def test_a_pattern_finds_internal_topics(members: Members, admin: AdminClient) -> None:
    first = members.start()
    members.settle((first, 4))  # with the first group, Kafka makes the topic
    first.leave()
    offsets = "__consumer_offsets"
    partitions = len(admin.list_topics(offsets).topics[offsets].partitions)
    reader = members.start(topic=f"^{offsets[:-2]}.*")
    members.settle((reader, partitions), within_s=60)


def test_partitions_that_are_added_are_read(
    members: Members, admin: AdminClient, topic: str
) -> None:
    reader = members.start()
    members.settle((reader, 4))
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(WITHIN_S)
    members.settle((reader, 6))


def test_a_static_member_that_returns_keeps_its_partitions_without_a_rebalance(
    members: Members,
) -> None:
    stays = members.start(group_instance_id="stays")
    restarts = members.start(group_instance_id="restarts")
    members.settle((stays, 2), (restarts, 2))
    held, revocations = restarts.partitions, stays.revocations()
    restarts.leave()
    returned = members.start(group_instance_id="restarts")
    members.settle((stays, 2), (returned, 2))
    assert returned.partitions == held
    assert stays.revocations() == revocations


def test_an_instance_id_in_use_is_refused(members: Members) -> None:
    first = members.start(group_instance_id="only-one")
    members.settle((first, 4))
    second = members.start(group_instance_id="only-one")
    eventually(lambda: bool(second.failures), what="a refusal")
    assert "instance" in second.failures[0].lower()
    members.settle((first, 4))


def test_what_was_committed_is_where_the_next_member_goes_on(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    for batch in (range(5), range(5, 10)):
        consumer = open_member(bootstrap, group, config_of("consumer"))
        consumer.subscribe([topic])
        messages = take(consumer, len(batch))
        assert values_of(messages) == [b"%d" % number for number in batch]
        consumer.commit(message=messages[-1], asynchronous=False)
        consumer.close()
    reader = open_member(bootstrap, group, config_of("consumer"))
    assert reader.committed([TopicPartition(topic, 0)], WITHIN_S)[0].offset == 10
    reader.close()


def test_the_admin_client_describes_and_lists_both_kinds(
    members: Members, admin: AdminClient, group: str
) -> None:
    first, second = members.start(), members.start()
    members.settle((first, 2), (second, 2))
    described = admin.describe_consumer_groups([group])[group].result(WITHIN_S)
    assert (described.type.name, described.state.name) == ("CONSUMER", "STABLE")
    assert described.partition_assignor == "uniform"
    assert [len(m.assignment.topic_partitions) for m in described.members] == [2, 2]
    assert type_of(admin, group) == "CONSUMER"
    first.leave()
    second.leave()
    admin.delete_consumer_groups([group])[group].result(WITHIN_S)


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_classic_members_and_new_ones_share_until_one_kind_is_left(
    members: Members,
    admin: AdminClient,
    group: str,
    assignor: str,
    request: pytest.FixtureRequest,
) -> None:
    if "apache-kafka-cooperative" in request.node.name:
        pytest.skip(
            "Kafka cannot read the user data that librdkafka's cooperative assignor sends from its "
            "second join on; whether a second one comes before the conversion is chance"
        )
    old, other_old = members.start(assignor), members.start(assignor)
    members.settle((old, 2), (other_old, 2))
    assert type_of(admin, group) == "CLASSIC"
    new = members.start()
    members.settle((new, 1))
    assert type_of(admin, group) == "CONSUMER"
    other_old.leave()
    members.settle((old, 2), (new, 2))
    new.leave()
    members.settle((old, 4))
    assert type_of(admin, group) == "CLASSIC"


@pytest.mark.full
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_classic_member_joins_a_consumer_group_and_its_end_is_noticed(
    members: Members, assignor: str
) -> None:
    new = members.start()
    members.settle((new, 4))
    old = members.start(assignor)
    members.settle((new, 2), (old, 2))
    old.kill()
    members.settle((new, 4), within_s=20)
