"""Consumer groups (KIP-848) across kill -9 of the broker: the group goes on where it was.

Members are processes that say what they own and when; the broker is killed while they share, while
they revoke, and while a newcomer joins.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from millstream import Broker
from tests.clients.member_processes import Members
from tests.clients.steps import create_topic, eventually

TOPIC, GROUP, PARTITIONS = "orders", "readers", 4

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    running = Broker(
        tmp_path / "data",
        group_consumer_session_timeout_ms="6s",
        group_consumer_heartbeat_interval_ms="200ms",
    ).start()
    yield running
    running.stop()


@pytest.fixture
def members(broker: Broker) -> Iterator[Members]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    create_topic(admin, TOPIC, partitions=PARTITIONS)
    with Members(broker.bootstrap, GROUP, TOPIC) as running:
        yield running
        running.check_single_owners()


def kill_and_start_again(broker: Broker) -> None:
    broker.kill()
    broker.start()


def test_members_go_on_with_what_they_had(broker: Broker, members: Members) -> None:
    first, second = members.start(), members.start()
    members.settle((first, 2), (second, 2))
    held, revocations = first.partitions, first.revocations()
    for _ in range(3):
        kill_and_start_again(broker)
        time.sleep(1)  # a few heartbeats: time to be told something else
    members.settle((first, 2), (second, 2))
    assert (first.partitions, first.revocations()) == (held, revocations)
    second.leave()
    members.settle((first, 4))


FULL = pytest.mark.full


@pytest.mark.parametrize(
    "after_ms", [0, pytest.param(100, marks=FULL), 200, pytest.param(300, marks=FULL)]
)
def test_a_broker_killed_while_a_newcomer_joins_hands_out_each_partition_once(
    broker: Broker, members: Members, after_ms: int
) -> None:
    first = members.start()
    members.settle((first, 4))
    second = members.start()
    eventually(lambda: bool(first.revocations()), what="the owner is told to revoke")
    time.sleep(after_ms / 1000)  # from the revocation to what the newcomer hears of it
    kill_and_start_again(broker)
    members.settle((first, 2), (second, 2))


@pytest.mark.parametrize("assignor", ["range", pytest.param("cooperative-sticky", marks=FULL)])
def test_a_group_of_both_protocols_survives(
    broker: Broker, members: Members, assignor: str
) -> None:
    old = members.start(assignor)
    members.settle((old, 4))
    new = members.start()
    members.settle((old, 2), (new, 2))
    kill_and_start_again(broker)
    time.sleep(1)
    members.settle((old, 2), (new, 2))
    new.leave()
    kill_and_start_again(broker)
    members.settle((old, 4))
