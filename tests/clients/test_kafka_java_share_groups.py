"""Kafka's Java share consumer and its tool for share groups, kafka-share-groups.sh."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import AdminClient

from millstream.broker.wire import ErrorCode
from tests.clients.share_group_steps import (
    Position,
    configure_group,
    describe_share_group,
    members_of,
    positions_of,
)
from tests.clients.steps import create_topic, eventually, numbered, produce
from tests.support.java_tools import ToolRun, run_class, run_tool

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("kafka_tools"),
]

SHARE_GROUP_COMMAND = "consumer.group.ShareGroupCommand"
RECORDS = 20


def share_groups(bootstrap: str, *arguments: str) -> list[list[str]]:
    """The words of each line that kafka-share-groups.sh prints."""
    done = run_tool(SHARE_GROUP_COMMAND, *arguments, bootstrap=bootstrap).checked()
    return [line.split() for line in done.lines if line.strip()]


def consume(bootstrap: str, group: str, topic: str) -> list[dict[str, Any]]:
    """What a VerifiableShareConsumer reports until it has accepted all records."""
    done: ToolRun = run_tool(
        "VerifiableShareConsumer",
        *("--topic", topic, "--group-id", group, "--max-messages", str(RECORDS)),
        *("--offset-reset-strategy", "earliest"),
        bootstrap=bootstrap,
    ).checked()
    return [json.loads(line) for line in done.lines if line.startswith("{")]


def test_a_java_share_consumer_reads_and_the_tool_shows_moves_and_deletes_its_group(
    bootstrap: str, admin: AdminClient, group: str, topic: str
) -> None:
    create_topic(admin, topic, partitions=1)
    produce(bootstrap, topic, numbered(RECORDS))
    events = consume(bootstrap, group, topic)
    acknowledged = [one for one in events if one["name"] == "offsets_acknowledged"]
    assert sum(one["count"] for one in acknowledged) == RECORDS
    assert all(one["success"] for one in acknowledged)

    of_group = ("--group", group)
    (row,) = [one for one in share_groups(bootstrap, "--describe", *of_group) if one[0] == group]
    assert (row[1], row[2], row[-1]) == (topic, "0", "0")  # Kafka may leave its start behind
    share_groups(
        bootstrap, "--reset-offsets", *of_group, "--topic", topic, "--to-earliest", "--execute"
    )
    assert positions_of(bootstrap, group) == {(topic, 0): Position(0, RECORDS)}
    deleted = share_groups(bootstrap, "--delete-offsets", *of_group, "--topic", topic)
    assert [topic, "Successful"] in deleted
    share_groups(bootstrap, "--delete", *of_group)
    assert describe_share_group(bootstrap, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_tool_shows_members_and_configs_of_a_live_group(
    bootstrap: str, admin: AdminClient, group: str, topic: str, share_member: str
) -> None:
    states = share_groups(bootstrap, "--describe", "--group", group, "--state")
    assert [word for row in states if row[0] == group for word in row[-2:]] == ["Stable", "1"]
    members = share_groups(bootstrap, "--describe", "--group", group, "--members")
    (row,) = [row for row in members if row[0] == group]
    assert share_member in row
    assert f"{topic}:0,1" in row
    configure_group(bootstrap, group, share_record_lock_duration_ms="20000")
    described = run_class(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", bootstrap, "--describe", "--all"),
        *("--entity-type", "groups", "--entity-name", group),
    ).checked()
    configs = dict(line.split()[0].split("=", 1) for line in described.lines[1:])
    assert configs["share.record.lock.duration.ms"] == "20000"
    assert configs["share.auto.offset.reset"] == "latest"
    assert configs["share.delivery.count.limit"] == "5"


@pytest.fixture
def share_member(bootstrap: str, admin: AdminClient, group: str, topic: str) -> Iterator[str]:
    """The id of a live member, librdkafka's."""
    create_topic(admin, topic, partitions=2)
    member = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 3})
    member.subscribe([topic])

    def is_assigned() -> bool:
        member.poll(0.1)
        return any(members_of(bootstrap, group).values())

    eventually(is_assigned, what="a member that has partitions", within_s=30)
    yield next(iter(members_of(bootstrap, group)))
    member.close()
