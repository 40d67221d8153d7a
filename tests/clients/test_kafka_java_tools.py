"""Apache Kafka's own command line tools, and so its Java clients: the newest requests there are.

Each run starts a JVM, a good half of a second, so that a test asks one tool for several things.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from millstream.broker.wire import ApiKey
from tests.clients.steps import (
    Sent,
    create_topic,
    end_offset,
    numbered,
    open_consumer,
    produce,
    read,
    take,
    values_of,
)
from tests.support.broker_thread import BrokerThread
from tests.support.java_tools import ToolRun, run_class, run_tool

# The first test of a checkout may have to fetch the jars, and Java itself.
pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("kafka_tools")]

CONSUMER_GROUP_COMMAND = "consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "consumer.ConsoleConsumer"


def checked(tool: str, bootstrap: str, *arguments: str, stdin: str = "") -> ToolRun:
    return run_tool(tool, *arguments, bootstrap=bootstrap, stdin=stdin).checked()


def events(run: ToolRun, name: str) -> list[dict[str, Any]]:
    """What a verifiable client reported, a JSON object per line."""
    parsed = [json.loads(line) for line in run.lines if line.startswith("{")]
    return [event for event in parsed if event["name"] == name]


def commit(bootstrap: str, group: str, topic: str, count: int) -> None:
    """Leave behind an empty group that has read `count` records."""
    consumer = open_consumer(bootstrap, group)
    consumer.subscribe([topic])
    consumer.commit(message=take(consumer, count)[-1], asynchronous=False)
    consumer.close()


@pytest.mark.full
def test_topic_command_creates_describes_grows_lists_and_deletes(
    bootstrap: str, topic: str
) -> None:
    created = checked(
        "TopicCommand",
        bootstrap,
        *("--create", "--topic", topic, "--partitions", "2"),
        *("--config", "retention.ms=3600000"),
    )
    assert f"Created topic {topic}." in created.lines

    checked("TopicCommand", bootstrap, "--alter", "--topic", topic, "--partitions", "4")
    described = checked("TopicCommand", bootstrap, "--describe", "--topic", topic)
    head, *partitions = described.lines
    assert "PartitionCount: 4" in head
    assert "ReplicationFactor: 1" in head
    assert "retention.ms=3600000" in head
    assert re.search(r"TopicId: [\w-]{22}", head)
    assert [re.search(r"Partition: (\d)", line)[1] for line in partitions] == list("0123")  # type: ignore[index]  # a miss must fail

    assert topic in checked("TopicCommand", bootstrap, "--list").lines
    checked("TopicCommand", bootstrap, "--delete", "--topic", topic)
    assert topic not in checked("TopicCommand", bootstrap, "--list").lines


def test_topic_command_reports_a_topic_that_exists(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    again = run_tool("TopicCommand", "--create", "--topic", topic, bootstrap=bootstrap)
    assert again.exit_code != 0
    assert "TopicExistsException" in again.stderr


@pytest.mark.full
def test_config_command_sets_shows_and_takes_back_a_topics_setting(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)

    def config_command(*arguments: str) -> ToolRun:
        entity = ("--entity-type", "topics", "--entity-name", topic)
        server = ("--bootstrap-server", bootstrap)
        return run_class("kafka.admin.ConfigCommand", *server, *entity, *arguments).checked()

    config_command("--alter", "--add-config", "segment.bytes=2000000,cleanup.policy=compact")
    shown = config_command("--describe").stdout
    assert "segment.bytes=2000000" in shown
    assert "cleanup.policy=compact" in shown

    config_command("--alter", "--delete-config", "segment.bytes")
    shown = config_command("--describe").stdout
    assert "segment.bytes" not in shown
    assert "cleanup.policy=compact" in shown


@pytest.mark.full
def test_consumer_group_command_lists_describes_resets_and_deletes(
    bootstrap: str, admin: AdminClient, topic: str, group: str
) -> None:
    create_topic(admin, topic)
    produce(bootstrap, topic, numbered(10))
    commit(bootstrap, group, topic, 4)

    def groups(*arguments: str) -> ToolRun:
        return checked(CONSUMER_GROUP_COMMAND, bootstrap, *arguments)

    assert group in groups("--list").lines
    described = groups("--describe", "--group", group).stdout
    # Columns: group, topic, partition, current offset, log end offset, lag.
    assert re.search(rf"{group}\s+{topic}\s+0\s+4\s+10\s+6\s", described)
    assert re.search(r"Empty\s+0$", groups("--describe", "--group", group, "--state").stdout, re.M)

    groups("--group", group, "--topic", topic, "--reset-offsets", "--shift-by", "3", "--execute")
    described = groups("--describe", "--group", group).stdout
    assert re.search(rf"{group}\s+{topic}\s+0\s+7\s+10\s+3\s", described)

    assert "was successful" in groups("--delete", "--group", group).stdout
    assert group not in groups("--list").lines


@pytest.mark.full
def test_consumer_group_command_shows_a_running_member(
    bootstrap: str, admin: AdminClient, topic: str, group: str
) -> None:
    create_topic(admin, topic, partitions=2)
    produce(bootstrap, topic, numbered(1))
    consumer = open_consumer(bootstrap, group, {"client.id": "shown"})
    consumer.subscribe([topic])
    take(consumer, 1)
    described = checked(
        CONSUMER_GROUP_COMMAND, bootstrap, "--describe", "--group", group, "--members", "--verbose"
    )
    consumer.close()
    # Columns: group, consumer id, host, client id, number of partitions, assignment.
    assert re.search(rf"{group}\s+shown-\S+\s+/127\.0\.0\.1\s+shown\s+2\s", described.stdout)
    assert f"{topic}:0,1" in described.stdout


@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.full)])
def test_producer_and_consumer_performance_move_every_record(
    bootstrap: str, admin: AdminClient, topic: str, codec: str
) -> None:
    create_topic(admin, topic, partitions=3)
    sent = checked(
        "ProducerPerformance",
        bootstrap,
        *("--topic", topic, "--num-records", "20000", "--record-size", "100"),
        *("--throughput", "-1", "--command-property", f"compression.type={codec}"),
    )
    assert sent.lines[-1].startswith("20000 records sent")
    assert sum(end_offset(bootstrap, topic, partition) for partition in range(3)) == 20_000

    got = checked(
        "ConsumerPerformance",
        bootstrap,
        *("--topic", topic, "--num-records", "20000", "--timeout", "20000"),
    )
    names, figures = (line.split(", ") for line in got.lines[-2:])
    assert dict(zip(names, figures, strict=True))["data.consumed.in.nMsg"] == "20000"


@pytest.mark.full
def test_verifiable_clients_account_for_every_record(
    bootstrap: str, admin: AdminClient, topic: str, group: str
) -> None:
    create_topic(admin, topic)
    produced = checked("VerifiableProducer", bootstrap, "--topic", topic, "--max-messages", "200")
    acked = events(produced, "producer_send_success")
    assert [event["offset"] for event in acked] == list(range(200))
    [total] = events(produced, "tool_data")
    assert (total["sent"], total["acked"]) == (200, 200)

    consumed = checked(
        "VerifiableConsumer",
        bootstrap,
        *("--topic", topic, "--group-id", group, "--max-messages", "200"),
        *("--reset-policy", "earliest"),
    )
    [assigned] = events(consumed, "partitions_assigned")
    assert assigned["partitions"] == [{"topic": topic, "partition": 0}]
    last_commit = events(consumed, "offsets_committed")[-1]
    assert last_commit["success"]
    assert last_commit["offsets"] == [{"topic": topic, "partition": 0, "offset": 200}]


@pytest.mark.full
def test_end_to_end_latency_gets_every_record_back(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    measured = checked(
        "EndToEndLatency",
        bootstrap,
        *("--topic", topic, "--num-records", "100", "--producer-acks", "all"),
        *("--record-size", "100"),
    )
    assert "Avg latency:" in measured.stdout
    assert end_offset(bootstrap, topic) == 100


def test_broker_api_versions_finds_every_request_that_clients_need_usable(bootstrap: str) -> None:
    listed = checked("BrokerApiVersionsCommand", bootstrap).stdout
    assert listed.startswith(f"{bootstrap} (id: ")
    usable = set(re.findall(r"^\t(\w+)\(\d+\): .*\[usable: \d+\]", listed, re.MULTILINE))
    assert usable >= {
        *("Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "InitProducerId"),
        *("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"),
        *("OffsetCommit", "OffsetFetch", "DescribeGroups", "ListGroups", "DeleteGroups"),
        *("CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords"),
        *("DescribeConfigs", "IncrementalAlterConfigs", "DescribeCluster", "DescribeLogDirs"),
    }


@pytest.mark.full
def test_get_offset_shell_and_delete_records_agree_about_the_ends(
    bootstrap: str, admin: AdminClient, topic: str, tmp_path: Path
) -> None:
    create_topic(admin, topic, partitions=2)
    produce(bootstrap, topic, [Sent(value=b"%d" % n, partition=0) for n in range(10)])

    def offsets(time: str) -> list[str]:
        return checked("GetOffsetShell", bootstrap, "--topic", topic, "--time", time).lines

    assert offsets("latest") == [f"{topic}:0:10", f"{topic}:1:0"]
    request = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 6}]}
    request_file = tmp_path / "delete.json"
    request_file.write_text(json.dumps(request))
    deleted = checked("DeleteRecordsCommand", bootstrap, "--offset-json-file", str(request_file))
    assert f"partition: {topic}-0\tlow_watermark: 6" in deleted.lines
    assert offsets("earliest") == [f"{topic}:0:6", f"{topic}:1:0"]


@pytest.mark.full
def test_log_dirs_command_shows_the_size_of_each_partition(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic, partitions=2)
    produce(bootstrap, topic, [Sent(value=b"x" * 10_000, partition=1)])
    shown = checked("LogDirsCommand", bootstrap, "--describe", "--topic-list", topic)
    [broker] = json.loads(shown.lines[-1])["brokers"]
    [log_dir] = broker["logDirs"]
    assert log_dir["error"] is None
    sizes = {found["partition"]: found["size"] for found in log_dir["partitions"]}
    assert sizes[f"{topic}-0"] == 0
    assert 10_000 < sizes[f"{topic}-1"] < 11_000


def test_what_the_console_producer_is_told_the_console_consumer_repeats(
    bootstrap: str, topic: str, group: str
) -> None:
    checked(
        "ConsoleProducer",
        bootstrap,
        *("--topic", topic, "--reader-property", "parse.key=true"),
        *("--reader-property", "key.separator=:"),
        stdin="ada:first\ngrace:second\n",
    )
    repeated = checked(
        CONSOLE_CONSUMER,
        bootstrap,
        *("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "2"),
        *("--formatter-property", "print.key=true", "--timeout-ms", "20000"),
    )
    assert repeated.lines == ["ada\tfirst", "grace\tsecond"]
    assert values_of(read(bootstrap, topic, 2)) == [b"first", b"second"]


@pytest.mark.parametrize(
    "codec",
    ["zstd", *(pytest.param(one, marks=pytest.mark.full) for one in ("gzip", "snappy", "lz4"))],
)
def test_java_reads_what_librdkafka_compressed(
    bootstrap: str, admin: AdminClient, topic: str, codec: str
) -> None:
    create_topic(admin, topic)
    sent = [Sent(value=b"%03d " % n + b"mill " * 20) for n in range(100)]
    produce(bootstrap, topic, sent, {"compression.type": codec, "linger.ms": 50})
    got = checked(
        CONSOLE_CONSUMER,
        bootstrap,
        *("--topic", topic, "--from-beginning", "--max-messages", "100", "--timeout-ms", "20000"),
    )
    assert [line.encode() for line in got.lines] == [record.value for record in sent]


@pytest.mark.full
def test_a_java_consumer_of_many_partitions_uses_a_fetch_session(tmp_path: Path) -> None:
    """After the first one its requests name hardly any partition, and it reads all the same."""
    count = 200
    with BrokerThread(tmp_path / "data") as broker:
        create_topic(
            AdminClient({"bootstrap.servers": broker.bootstrap}), "orders", partitions=count
        )
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(5 * count):
            producer.produce("orders", b"%d" % number, partition=number % count)
        producer.flush(30)
        run = checked(
            CONSOLE_CONSUMER,
            broker.bootstrap,
            *("--topic", "orders", "--from-beginning", "--max-messages", str(5 * count)),
            *("--timeout-ms", "5000", "--command-property", "fetch.max.bytes=500"),
        )
        asked = broker.ask(lambda node: node.metrics.apis[ApiKey.FETCH])
        left = broker.ask(lambda node: len(node.fetch_sessions))
    assert sorted(map(int, run.lines)) == [*range(5 * count)]
    assert asked.requests > 20
    assert asked.request_bytes / asked.requests < 10 * count, "all partitions in each request"
    assert left == 0, "its last request closes the session"
