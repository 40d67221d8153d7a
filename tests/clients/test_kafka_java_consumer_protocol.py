"""Kafka's Java consumer with group.protocol=consumer: the newest requests, and its own tools."""

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.member_processes import Members
from tests.clients.steps import create_topic, eventually, numbered, produce
from tests.conftest import CONSUMER_SESSION_MS
from tests.support.java_tools import TOOLS, java_class_command, run_class, run_tool

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("kafka_tools")]

CONSUMER_GROUP_COMMAND = "consumer.group.ConsumerGroupCommand"


class JavaMember:
    """A VerifiableConsumer, which reports in JSON, line by line."""

    def __init__(self, bootstrap: str, group: str, topic: str, *options: str) -> None:
        command = java_class_command(
            f"{TOOLS}.VerifiableConsumer",
            *("--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group),
            *("--reset-policy", "earliest", *options),
        )
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    self.events.append(json.loads(line))

    @property
    def partitions(self) -> set[int]:
        owned: set[int] = set()
        for event in list(self.events):
            numbers = {part["partition"] for part in event.get("partitions", [])}
            if event["name"] == "partitions_assigned":
                owned |= numbers
            elif event["name"] == "partitions_revoked":
                owned -= numbers
        return owned

    @property
    def committed(self) -> int:
        """Records of which it knows that their offsets are committed."""
        done: dict[int, int] = {}
        for event in list(self.events):
            if event["name"] == "offsets_committed" and event["success"]:
                done |= {one["partition"]: one["offset"] for one in event["offsets"]}
        return sum(done.values())

    def end(self, how: signal.Signals) -> None:
        self._process.send_signal(how)
        self._process.wait(30)
        self._reader.join()


@pytest.fixture
def start(bootstrap: str, group: str, topic: str) -> Iterator[Any]:
    members: list[JavaMember] = []

    def start_one(*options: str) -> JavaMember:
        members.append(JavaMember(bootstrap, group, topic, *options))
        return members[-1]

    yield start_one
    for member in members:
        member.end(signal.SIGKILL)


def settle(*counts: tuple[JavaMember, int], within_s: float = 60.0) -> None:
    def is_settled() -> bool:
        return all(len(member.partitions) == count for member, count in counts)

    eventually(is_settled, within_s=within_s, what=f"{[count for _, count in counts]} partitions")


NEW_PROTOCOL = ("--group-protocol", "consumer", "--group-remote-assignor", "range")


def test_a_java_member_reads_and_commits(
    bootstrap: str, admin: AdminClient, topic: str, start: Any
) -> None:
    create_topic(admin, topic, partitions=4)
    produce(bootstrap, topic, numbered(100))
    member = start(*NEW_PROTOCOL)
    settle((member, 4))
    eventually(lambda: member.committed == 100, what="100 records committed")


@pytest.mark.full
def test_java_members_share_and_are_described(
    bootstrap: str, admin: AdminClient, group: str, topic: str, start: Any
) -> None:
    create_topic(admin, topic, partitions=4)
    produce(bootstrap, topic, numbered(100))
    first = start(*NEW_PROTOCOL)
    eventually(lambda: first.committed == 100, what="100 records committed")
    second = start(*NEW_PROTOCOL)
    settle((first, 2), (second, 2))
    assert first.partitions in ({0, 1}, {2, 3})

    described = run_tool(
        CONSUMER_GROUP_COMMAND, "--describe", "--group", group, "--state", bootstrap=bootstrap
    ).checked()
    assert {"range", "Stable"} <= set(described.stdout.split())
    offsets = run_tool(
        CONSUMER_GROUP_COMMAND, "--describe", "--group", group, bootstrap=bootstrap
    ).checked()
    rows = [line.split() for line in offsets.lines if line.startswith(group)]
    # Records without a key may leave a partition empty: nothing is committed there.
    assert sum(int(row[3]) for row in rows if row[3] != "-") == 100

    second.end(signal.SIGKILL)
    settle((first, 4), within_s=CONSUMER_SESSION_MS / 1000 + 20)


@pytest.mark.full
def test_java_and_librdkafka_share_a_group_in_both_protocols(
    bootstrap: str, admin: AdminClient, group: str, topic: str, start: Any
) -> None:
    create_topic(admin, topic, partitions=4)
    strategy = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    old = start("--assignment-strategy", strategy)
    settle((old, 4))
    with Members(bootstrap, group, topic) as members:
        new = members.start()
        eventually(
            lambda: len(new.partitions) == 2 and len(old.partitions) == 2,
            within_s=60,
            what="two partitions each",
        )
        new.leave()
        settle((old, 4))


@pytest.mark.full
def test_the_config_command_sets_and_shows_the_pace_of_a_group(bootstrap: str, group: str) -> None:
    where = ("--bootstrap-server", bootstrap, "--entity-type", "groups", "--entity-name", group)
    setting = "consumer.heartbeat.interval.ms=5000"
    run_class("kafka.admin.ConfigCommand", *where, "--alter", "--add-config", setting).checked()
    described = run_class("kafka.admin.ConfigCommand", *where, "--describe").checked()
    assert setting in described.stdout
