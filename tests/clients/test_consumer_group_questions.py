"""What the console asks of consumer groups without librdkafka: the same as with it."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from millstream.commands.cluster import Cluster, is_mute
from millstream.commands.connecting import Partition
from millstream.commands.console.shown_cluster import ShownCluster
from millstream.commands.consumer_groups import ConsumerGroups
from millstream.setting_kinds import Address, parse_address
from tests.clients.protocol_member import config_of, open_member
from tests.clients.steps import create_topic, eventually, numbered, produce, take
from tests.support.protected_broker import PASSWORD, USER, ProtectedBroker

PARTITIONS = 3


@pytest.fixture(params=["range", "consumer"])
def member(
    request: pytest.FixtureRequest, bootstrap: str, admin: AdminClient, group: str, topic: str
) -> Iterator[Consumer]:
    """Of either protocol; has read and committed some."""
    create_topic(admin, topic, partitions=PARTITIONS)
    produce(bootstrap, topic, numbered(6))
    consumer = open_member(bootstrap, group, config_of(request.param))
    consumer.subscribe([topic])
    take(consumer, 6)
    consumer.commit(asynchronous=False)
    yield consumer
    consumer.close()


@pytest.mark.timeout(120)
def test_a_group_is_told_as_librdkafka_tells_it(
    bootstrap: str, member: Consumer, group: str, topic: str
) -> None:
    brokers = (parse_address(bootstrap),)
    ours, theirs = ShownCluster(brokers), Cluster(brokers)
    eventually(lambda: theirs.groups([group])[group].state == "stable", what="a settled group")
    wanted = [group, f"not-{group}"]
    told = ours.groups(wanted)
    assert told[group] == theirs.groups([group])[group]
    assert ours.listed_groups(wanted) == told
    [assigned] = told[group].members.values()
    assert set(assigned) == {Partition(topic, number) for number in range(PARTITIONS)}
    assert not told[wanted[1]].exists
    assert ours.committed(group) == theirs.committed(group) != {}
    assert ours.committed(wanted[1]) == {}
    assert group in ours.group_names()
    assert set(ours.group_names()) == set(theirs.group_names())


def test_groups_are_asked_for_by_tls_and_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    with ProtectedBroker(tmp_path) as broker:
        settings = {"TLS_CA": broker.path("ca.pem"), "USER": USER, "PASSWORD_FILE": str(password)}
        for name, value in settings.items():
            monkeypatch.setenv(f"MILLSTREAM_{name}", value)
        groups = ConsumerGroups((parse_address(broker.bootstrap),))
        assert groups.names() == []
        assert not groups.described(["none"])["none"].exists
        assert groups.committed(["none"]) == {"none": {}}
        broker.stop()


def test_who_says_nothing_is_told_from_who_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = (Address("127.0.0.1", listening.getsockname()[1]),)
        assert is_mute(there)

        def hang_up() -> None:
            for _ in range(2):  # the one before still waits to be taken
                listening.accept()[0].close()

        hanging = threading.Thread(target=hang_up)
        hanging.start()
        assert not is_mute(there)
        hanging.join(60)
