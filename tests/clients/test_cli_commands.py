"""The client commands end to end, on our broker and on Apache Kafka.

Most run in this process; what is about signals, pipes and start-up runs the real command.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ShareConsumer
from typer.testing import CliRunner

from millstream import Broker
from millstream.cli import app
from tests.clients.protocol_member import config_of, open_member
from tests.clients.share_group_steps import configure_group
from tests.clients.steps import take
from tests.clients.streams_group_steps import join_streams, leave_streams
from tests.support.raw_client import RawClient

COMMAND = (sys.executable, "-m", "millstream")
WITHIN_S = 20.0
# Nothing listens on port 1 of loopback.
NOWHERE = "127.0.0.1:1"


class Cli:
    """Runs `millstream` against one broker; what it prints is kept apart from what it says."""

    def __init__(self, bootstrap: str) -> None:
        self.env = {"MILLSTREAM_BROKERS": bootstrap}

    def run(self, *args: str, stdin: str | bytes = "", exit_code: int = 0) -> str:
        """Its stdout, when it ends as expected."""
        result = CliRunner().invoke(app, list(args), input=stdin, env=self.env)
        assert result.exit_code == exit_code, result.output
        return result.stdout

    def fail(self, *args: str, exit_code: int = 1, stdin: str | bytes = "") -> str:
        """Its last line on stderr, when it fails as expected."""
        result = CliRunner().invoke(app, list(args), input=stdin, env=self.env)
        assert result.exit_code == exit_code, result.output
        assert "Traceback" not in result.output
        return result.stderr.strip().split("\n")[-1]

    def said(self, *args: str, stdin: str | bytes = "") -> str:
        """Its stderr, when it succeeds."""
        result = CliRunner().invoke(app, list(args), input=stdin, env=self.env)
        assert result.exit_code == 0, result.output
        return result.stderr

    def json(self, *args: str, stdin: str | bytes = "") -> Any:
        return json.loads(self.run(*args, "--json", stdin=stdin))

    def lines(self, topic: str, *args: str) -> list[str]:
        return self.run("consume", topic, "--until", "latest", *args).splitlines()

    @contextmanager
    def started(self, *args: str) -> Iterator[subprocess.Popen[bytes]]:
        """The real command in its own process."""
        pipe = subprocess.PIPE
        env = os.environ | self.env
        with subprocess.Popen([*COMMAND, *args], stdout=pipe, stderr=pipe, env=env) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    return Cli(bootstrap)


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.1)


# --- topics ----------------------------------------------------------------------------------


def test_a_topic_is_created_listed_and_described(cli: Cli, topic: str) -> None:
    said = cli.run("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=1h")
    assert said == f"Created topic {topic}: 3 partitions, retention 1h\n"
    (listed,) = [one for one in cli.json("topics", "list") if one["topic"] == topic]
    assert (listed["partitions"], listed["records"], listed["retention"]) == (3, 0, "1h")
    (described,) = cli.json("topics", "describe", topic)
    assert described["configs"] == {"retention.ms": "3600000"}
    assert [part["partition"] for part in described["partition_details"]] == [0, 1, 2]


def test_a_description_counts_records_and_knows_the_newest(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    record = {"value": "a", "timestamp": "2026-07-01T12:00:00Z"}
    cli.run("produce", topic, "--json-lines", stdin=json.dumps(record))
    (described,) = cli.json("topics", "describe", topic)
    (part,) = described["partition_details"]
    assert (part["start"], part["end"], part["records"]) == (0, 1, 1)
    assert part["newest"] == "2026-07-01T12:00:00.000Z"
    shown = cli.run("topics", "describe", topic)
    assert shown.startswith(f"Topic {topic}\n  records    1\n")


def test_a_topic_that_exists_is_refused_unless_only_missing_ones_are_wanted(
    cli: Cli, topic: str
) -> None:
    cli.run("topics", "create", topic)
    assert "TOPIC_ALREADY_EXISTS" in cli.fail("topics", "create", topic)
    assert cli.json("topics", "create", topic, "--if-missing")[0]["created"] is False


def test_a_config_is_altered_and_unset(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    said = cli.run("topics", "alter", topic, "--config", "retention.ms=2d")
    assert said == f"{topic}: retention.ms = 7d -> 2d\n"
    assert cli.run("topics", "alter", topic, "--unset", "retention.ms").endswith("2d -> 7d\n")


def test_an_unknown_config_is_refused(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    assert "retntion.ms" in cli.fail("topics", "alter", topic, "--config", "retntion.ms=2d")


def test_nothing_to_alter_is_told(cli: Cli) -> None:
    said = cli.fail("topics", "alter", "a", exit_code=2)
    assert said == "millstream: Nothing to change: give --config or --unset."


def test_a_missing_topic_is_not_to_be_created_only_to_be_deleted(cli: Cli) -> None:
    for args in (("topics", "delete"), ("topics", "describe"), ("topics", "trim", "--before", "1")):
        said = cli.fail(*args, "nosuch-7f3a")
        assert "Topic nosuch-7f3a does not exist. `millstream topics list` shows" in said
    assert "topics create nosuch-7f3a" in cli.fail("consume", "nosuch-7f3a")


def test_an_internal_topic_is_the_brokers_own(cli: Cli) -> None:
    told = "__consumer_offsets is an internal topic: only the broker writes it"
    assert told in cli.fail("produce", "__consumer_offsets", "a")
    assert told in cli.fail("topics", "delete", "__consumer_offsets")


def test_fewer_copies_than_wanted_are_told(millstream_broker: Broker, topic: str) -> None:
    """Only by our broker: Kafka refuses what it cannot replicate."""
    cli = Cli(millstream_broker.bootstrap)
    said = cli.said("topics", "create", topic, "--replication", "3")
    assert said == f"Topic {topic}: --replication 3 was asked, the broker keeps 1.\n"


def test_partitions_are_added_but_never_taken(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic, "--partitions", "2")
    assert cli.run("topics", "add-partitions", topic, "--to", "4").endswith("2 -> 4 partitions\n")
    assert "has 4 partitions already" in cli.fail("topics", "add-partitions", topic, "--to", "3")


def test_records_before_an_offset_are_trimmed(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a", "b", "c")
    assert "Nothing was changed" in cli.fail("topics", "trim", topic, "--before", "2", exit_code=2)
    cli.run("topics", "trim", topic, "--before", "2", "--yes")
    assert cli.lines(topic) == ["c"]


def test_a_topic_is_deleted_only_when_confirmed(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    refused = cli.fail("topics", "delete", topic, stdin="y\n", exit_code=2)
    assert "Nothing was changed" in refused
    cli.run("topics", "delete", topic, "--yes")
    assert topic not in [one["topic"] for one in cli.json("topics", "list")]


# --- produce and consume ---------------------------------------------------------------------


def test_lines_come_back_in_order(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    numbers = [str(number) for number in range(2_000)]
    cli.run("produce", topic, stdin="\n".join(numbers) + "\n")
    assert cli.lines(topic) == numbers


def test_keys_headers_and_bytes_come_back_as_json(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "--key-separator", ":", "--header", "h=1", stdin=b"ada:\xff\x00\n")
    (line,) = cli.lines(topic, "--json")
    record = json.loads(line)
    assert record["timestamp"].endswith("Z")
    del record["timestamp"]
    assert record == {
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "key": "ada",
        "value_base64": "/wA=",
        "headers": [{"name": "h", "value": "1"}],
    }


def test_what_consume_prints_can_be_produced_again(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    sent = {"key": "k", "value": None, "headers": {"a": "1"}, "timestamp": "2026-07-01T12:00:00Z"}
    cli.run("produce", topic, "--json-lines", stdin=json.dumps(sent))
    (first,) = cli.lines(topic, "--json")
    cli.run("produce", topic, "--json-lines", stdin=first)
    again = json.loads(cli.lines(topic, "--json")[1])
    assert again == json.loads(first) | {"offset": 1}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_record_comes_back(cli: Cli, topic: str, compression: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a" * 1_000, "--compression", compression)
    assert cli.lines(topic) == ["a" * 1_000]


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_a_record_is_sent_with_any_acks(cli: Cli, topic: str, acks: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a", "--acks", acks)
    eventually(lambda: cli.lines(topic) == ["a"])


def test_a_summary_has_the_count_and_the_offsets(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    summary = cli.json("produce", topic, "a", "b")
    assert (summary["delivered"], summary["failed"], summary["value_bytes"]) == (2, 0, 2)
    assert summary["partitions"] == {"0": {"first_offset": 0, "last_offset": 1}}


def test_a_record_that_is_too_large_is_told_and_the_others_arrive(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic, "--config", "max.message.bytes=1000")
    args = ("produce", topic, "small", "x" * 5_000)
    assert "1 of 2 records did not reach" in cli.fail(*args)
    assert "MSG_SIZE_TOO_LARGE" in cli.fail(*args)
    assert cli.lines(topic) == ["small", "small"]


def test_a_bad_line_stops_and_what_came_before_it_is_sent(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    args = ("produce", topic, "--key-separator", ":")
    assert "Line 2: no key" in cli.fail(*args, stdin="a:1\nb\nc:3\n", exit_code=65)
    assert cli.lines(topic) == ["1"]


def test_a_topic_that_produce_creates_is_told_once(cli: Cli, topic: str) -> None:
    assert f"Created topic {topic} (1 partition)" in cli.said("produce", topic, "a")
    assert "Created" not in cli.said("produce", topic, "b")


def test_a_partition_that_is_not_there_is_told_with_those_that_are(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic, "--partitions", "3")
    said = cli.fail("produce", topic, "a", "b", "--partition", "9")
    assert said.endswith(f"{topic}[9] does not exist: {topic} has partitions 0-2.")


def test_a_bad_argument_is_a_value_not_a_line(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    said = cli.fail("produce", topic, "a", "--key-separator", ":", exit_code=65)
    assert "Value 1: no key" in said


def test_a_file_and_values_do_not_go_together(cli: Cli) -> None:
    said = cli.fail("produce", "a", "v", "--file", "nope.txt", exit_code=2)
    assert said == "millstream: Give either --file or values, not both."


def test_a_file_is_produced_line_by_line(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli.run("topics", "create", topic)
    (tmp_path / "lines").write_text("a\nb")
    cli.run("produce", topic, "--file", str(tmp_path / "lines"))
    assert cli.lines(topic) == ["a", "b"]
    missing = str(tmp_path / "none")
    assert "no such file" in cli.fail("produce", topic, "--file", missing, exit_code=74)


def test_a_place_to_start_is_an_offset_a_count_or_a_time(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    days = [{"value": str(day), "timestamp": f"2026-07-0{day}T00:00:00Z"} for day in range(1, 6)]
    cli.run("produce", topic, "--json-lines", stdin="\n".join(map(json.dumps, days)))
    assert cli.lines(topic, "--from", "3") == ["4", "5"]
    assert cli.lines(topic, "--from", "-1") == ["5"]
    assert cli.lines(topic, "--from", "2026-07-04T00:00:00Z") == ["4", "5"]
    assert cli.lines(topic, "--from", "latest") == []
    until = ("consume", topic, "--until", "2026-07-03T00:00:00Z")
    assert cli.run(*until) == "1\n2\n"
    assert cli.run("consume", topic, "--max", "2") == "1\n2\n"
    assert cli.run("consume", topic, "--max", "1", "--format", r"%p %o\t%v") == "0 0\t1\n"


def test_a_start_past_the_end_is_told(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a")
    args = ("consume", topic, "--until", "latest", "--from")
    assert f"--from 999 is past the end: {topic}[0] ends at 1" in cli.said(*args, "999")
    assert cli.said(*args, "1") == ""


def test_one_partition_can_be_read_alone(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic, "--partitions", "2")
    cli.run("produce", topic, "a", "--partition", "0")
    cli.run("produce", topic, "b", "--partition", "1")
    assert cli.lines(topic, "--partition", "1") == ["b"]
    assert "does not exist" in cli.fail("consume", topic, "--partition", "2")


def test_a_group_goes_on_where_it_stopped(cli: Cli, topic: str, group: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a", "b", "c")
    assert cli.run("consume", topic, "--group", group, "--max", "2") == "a\nb\n"
    assert cli.run("consume", topic, "--group", group, "--until", "latest") == "c\n"


def test_a_start_that_does_not_count_for_a_group_is_told(cli: Cli, topic: str, group: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a")
    args = ("consume", topic, "--group", group, "--until", "latest", "--from", "earliest")
    assert cli.said(*args) == ""
    said = cli.said(*args)
    assert f"Group {group} goes on from its committed offsets in 1 partition" in said
    assert f"`millstream groups reset {group} --to earliest`" in said


def test_a_key_goes_where_java_clients_send_it(cli: Cli, topic: str) -> None:
    """murmur2("ada") and murmur2("bob"), made positive, modulo 8: Kafka's DefaultPartitioner."""
    from confluent_kafka import murmur2

    cli.run("topics", "create", topic, "--partitions", "8")
    cli.run("produce", topic, "--key-separator", ":", stdin="ada:1\nbob:1\n")
    lines = map(json.loads, cli.lines(topic, "--json"))
    chosen = {record["key"]: record["partition"] for record in lines}
    assert chosen == {key: murmur2(key.encode(), 8) for key in ("ada", "bob")}


# --- groups ----------------------------------------------------------------------------------


def test_a_group_shows_its_lag_and_its_time_to_loss(cli: Cli, topic: str, group: str) -> None:
    cli.run("topics", "create", topic, "--config", "retention.ms=1h")
    cli.run("produce", topic, "a", "b", "c")
    cli.run("consume", topic, "--group", group, "--max", "1")
    (described,) = cli.json("groups", "describe", group)
    (part,) = described["partitions"]
    assert (part["committed"], part["end"], part["lag"], part["headroom"]) == (1, 3, 2, 1)
    assert 3_000_000 < part["loses_data_in_ms"] <= 3_600_000
    assert part["risk"].startswith("loses data in ")
    (listed,) = [one for one in cli.json("groups", "list") if one["group"] == group]
    assert (listed["state"], listed["members"], listed["lag"]) == ("empty", 0, 2)


def test_a_lag_that_is_not_known_is_not_0(cli: Cli, topic: str, group: str) -> None:
    cli.run("topics", "create", topic, "--partitions", "2")
    cli.run("produce", topic, "a", "b", "--partition", "0")
    cli.run("groups", "reset", group, "--to", "1", "--topic", f"{topic}:0", "--yes")
    (described,) = cli.json("groups", "describe", group)
    (listed,) = [one for one in cli.json("groups", "list") if one["group"] == group]
    for one in (described, described["topics"][0], listed):
        known = (one["lag"], one["known_lag"], one["never_committed_partitions"])
        assert known == (None, 1, 1)
    shown = cli.run("groups", "describe", group)
    assert shown.startswith(
        f"Group {group}: empty, classic protocol, 0 members, lag 1 + 1 partition"
    )


def test_a_reset_counts_only_what_changes(cli: Cli, topic: str, group: str) -> None:
    cli.run("topics", "create", topic, "--partitions", "2")
    args = ("groups", "reset", group, "--to", "earliest", "--yes", "--topic")
    cli.run(*args, f"{topic}:0")
    said = cli.run(*args, topic)
    assert "stays" in said
    assert "set to 0 (had none)" in said
    assert said.endswith(f"Reset 1 partition of group {group}\n")
    assert cli.said(*args, topic) == f"Group {group} is there already: nothing was changed.\n"


def test_records_that_a_group_lost_are_counted(cli: Cli, topic: str, group: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a", "b", "c", "d")
    cli.run("consume", topic, "--group", group, "--max", "1")
    cli.run("topics", "trim", topic, "--before", "3", "--yes")
    assert "ALREADY LOST 2 records" in cli.run("groups", "describe", group)


def test_a_reset_shows_its_plan_and_waits_for_a_yes(cli: Cli, topic: str, group: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a", "b", "c")
    cli.run("consume", topic, "--group", group, "--max", "2")
    args = ("groups", "reset", group, "--to", "earliest")
    assert "reads 2 records again" in cli.run(*args, "--dry-run")
    assert "Nothing was changed" in cli.fail(*args, exit_code=2)
    assert cli.json("groups", "describe", group)[0]["partitions"][0]["committed"] == 2
    cli.run(*args, "--yes")
    assert cli.run("consume", topic, "--group", group, "--max", "1") == "a\n"


@pytest.mark.parametrize(
    ("to", "offset"), [("latest", 3), ("1", 1), ("shift:-1", 1), ("shift:+9", 3), ("1h ago", 0)]
)
def test_a_reset_goes_to_any_place(cli: Cli, topic: str, group: str, to: str, offset: int) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a", "b", "c")
    cli.run("consume", topic, "--group", group, "--max", "2")
    plan = cli.json("groups", "reset", group, "--to", to, "--topic", f"{topic}:0", "--yes")
    assert plan["executed"] is True
    assert [part["new"] for part in plan["partitions"]] == [offset]
    assert cli.json("groups", "describe", group)[0]["partitions"][0]["committed"] == offset


def test_a_group_can_be_placed_before_it_first_runs(cli: Cli, topic: str, group: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a", "b")
    cli.run("groups", "reset", group, "--to", "1", "--topic", topic, "--yes")
    assert cli.run("consume", topic, "--group", group, "--max", "1") == "b\n"


def test_a_live_group_is_shown_with_its_consumer_and_is_neither_reset_nor_deleted(
    cli: Cli, topic: str, group: str
) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a")
    with cli.started("consume", topic, "--group", group) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"a\n"
        (described,) = cli.json("groups", "describe", group)
        assert described["partitions"][0]["client_id"] == "millstream-cli"
        assert [one["partitions"] for one in described["consumers"]] == [1]
        refused = cli.fail("groups", "reset", group, "--to", "earliest", "--yes")
        assert "1 live member (millstream-cli on " in refused
        assert "Stop every member, then run this again" in refused
        assert "1 live member" in cli.fail("groups", "delete", group, "--yes")


def test_a_group_of_the_new_protocol_is_shown_like_any_other(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    cli.run("topics", "create", topic, "--partitions", "2")
    cli.run("produce", topic, "a")
    consumer = open_member(bootstrap, group, config_of("consumer"))
    consumer.subscribe([topic])
    consumer.commit(message=take(consumer, 1)[0], asynchronous=False)
    (described,) = cli.json("groups", "describe", group)
    assert (described["state"], described["protocol"]) == ("stable", "consumer")
    assert [one["partitions"] for one in described["consumers"]] == [2]
    listed = [line.split() for line in cli.run("groups", "list").splitlines()]
    assert [group, "stable", "consumer", "1", "1"] in [row[:5] for row in listed]
    assert "1 live member" in cli.fail("groups", "delete", group, "--yes")
    consumer.close()
    cli.run("groups", "delete", group, "--yes")


def test_a_share_group_is_shown_moved_and_deleted_like_any_other(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    cli.run("topics", "create", topic, "--partitions", "2")
    cli.run("produce", topic, "a", "b", "c", "--partition", "0")
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 3})
    with closing(consumer):
        consumer.subscribe([topic])
        eventually(lambda: _reads_two_partitions(cli, group, consumer))
        (described,) = cli.json("groups", "describe", group)
        assert (described["state"], described["protocol"]) == ("stable", "share")
        assert ", share protocol, 1 member, lag " in cli.run("groups", "describe", group)
        assert "1 live member" in cli.fail("groups", "reset", group, "--to", "earliest", "--yes")
        assert "1 live member" in cli.fail("groups", "delete", group, "--yes")
    cli.run("groups", "reset", group, "--to", "1", "--topic", f"{topic}:0", "--yes")
    (described,) = cli.json("groups", "describe", group)
    part = described["partitions"][0]
    assert (part["committed"], part["end"], part["lag"]) == (1, 3, 2)
    listed = [line.split() for line in cli.run("groups", "list").splitlines()]
    assert [group, "empty", "share", "0", "1"] in [row[:5] for row in listed]
    cli.run("groups", "delete", group, "--yes")
    assert f"Group {group} does not exist" in cli.fail("groups", "describe", group)


def _reads_two_partitions(cli: Cli, group: str, consumer: ShareConsumer) -> bool:
    consumer.poll(0.05)
    groups = [one for one in cli.json("groups", "list") if one["group"] == group]
    if not groups:
        return False
    (described,) = cli.json("groups", "describe", group)
    return [one["partitions"] for one in described["consumers"]] == [2]


def test_a_streams_group_is_shown_with_its_tasks_moved_and_deleted(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    cli.run("topics", "create", topic, "--partitions", "2")
    cli.run("produce", topic, "a", "b", "c", "--partition", "0")
    configure_group(bootstrap, group, streams_initial_rebalance_delay_ms="0")
    with RawClient(bootstrap) as client:
        told = join_streams(client, group, topic)
        (described,) = cli.json("groups", "describe", group)
        assert (described["state"], described["protocol"]) == ("stable", "streams")
        [consumer] = described["consumers"]
        assert (consumer["active_tasks"], consumer["standby_tasks"]) == (["0_0", "0_1"], [])
        assert consumer["partitions"] == 2
        shown = cli.run("groups", "describe", group)
        assert ", streams protocol, 1 member, lag " in shown
        assert "0_0, 0_1" in shown
        assert "1 live member" in cli.fail("groups", "reset", group, "--to", "earliest", "--yes")
        leave_streams(client, group, told.member_id)
    cli.run("groups", "reset", group, "--to", "1", "--topic", f"{topic}:0", "--yes")
    (described,) = cli.json("groups", "describe", group)
    part = described["partitions"][0]
    assert (part["committed"], part["end"], part["lag"]) == (1, 3, 2)
    listed = [line.split() for line in cli.run("groups", "list").splitlines()]
    assert [group, "empty", "streams", "0", "1"] in [row[:5] for row in listed]
    cli.run("groups", "delete", group, "--yes")
    assert f"Group {group} does not exist" in cli.fail("groups", "describe", group)


def test_a_deleted_group_is_gone(cli: Cli, topic: str, group: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a")
    cli.run("consume", topic, "--group", group, "--max", "1")
    cli.run("groups", "delete", group, "--yes")
    assert f"Group {group} does not exist" in cli.fail("groups", "describe", group)


# --- ending ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_cleanly_and_commits(
    cli: Cli, topic: str, group: str, ending: signal.Signals
) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a")
    with cli.started("consume", topic, "--group", group) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"a\n"
        time.sleep(0.1)  # out of the write, into the next wait
        consumer.send_signal(ending)
        _, said = consumer.communicate(timeout=WITHIN_S)
    assert (consumer.returncode, said) == (0, b"")
    assert cli.json("groups", "describe", group)[0]["partitions"][0]["committed"] == 1


def test_a_reader_that_has_seen_enough_is_no_error(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, stdin="x" * 100 + "\n" + ("y" * 100 + "\n") * 20_000)
    with cli.started("consume", topic) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"x" * 100 + b"\n"
        consumer.stdout.close()
        assert consumer.wait(timeout=WITHIN_S) == 0
        assert consumer.stderr.read() == b""


def test_a_reader_that_has_seen_enough_is_noticed_on_a_quiet_topic(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    cli.run("produce", topic, "a")
    with cli.started("consume", topic) as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == b"a\n"
        consumer.stdout.close()
        assert consumer.wait(timeout=WITHIN_S) == 0
        assert consumer.stderr.read() == b""


# --- without a broker ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ("topics", "list"),
        ("topics", "create", "a"),
        ("produce", "a", "b"),
        ("consume", "a"),
        ("groups", "list"),
        ("groups", "reset", "a", "--to", "latest"),
    ],
)
def test_without_a_broker_there_is_one_line_soon(args: tuple[str, ...]) -> None:
    started = time.monotonic()
    last = Cli(NOWHERE).fail(*args, exit_code=69)
    assert last.startswith(f"millstream: No broker answers at {NOWHERE} (connection refused). ")
    assert time.monotonic() - started < 5


def test_a_missing_topic_is_told_with_the_nearest_one(cli: Cli, topic: str) -> None:
    cli.run("topics", "create", topic)
    told = cli.fail("consume", f"{topic}x")
    assert f"Topic {topic}x does not exist." in told
    assert f"Did you mean {topic}?" in told


def test_what_is_not_understood_is_told(cli: Cli) -> None:
    assert "--from: cannot read 'soon'" in cli.fail("consume", "a", "--from", "soon", exit_code=2)
    assert "no placeholder %x" in cli.fail("consume", "a", "--format", "%x", exit_code=2)
    assert "--brokers" in cli.fail("topics", "list", "--brokers", "nowhere", exit_code=2)
