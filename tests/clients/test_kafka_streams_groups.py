"""Kafka Streams in Java with `group.protocol=streams` (KIP-1071): it counts exactly once.

The application has a repartition topic and a store; the broker makes its internal topics and hands
out its tasks. The same on Apache Kafka.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.share_group_steps import configure_group
from tests.clients.steps import Sent, create_topic, eventually, produce, unique_name
from tests.support.committed_records import committed_records
from tests.support.java_tools import require_compiler, run_tool
from tests.support.streams_application import Instance, compiled

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("kafka_tools"),
]

PARTITIONS = 2
WORDS = 5
SESSION_MS = 6_000
HEARTBEAT_MS = 200
STARTED_WITHIN_S = 90.0
COUNTED_WITHIN_S = 120.0


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    require_compiler()
    return compiled(tmp_path_factory.mktemp("classes"))


class Counting:
    """An application with its topics, and all that was started of it."""

    def __init__(self, bootstrap: str, class_path: str, directory: Path) -> None:
        self.bootstrap, self.name = bootstrap, unique_name("app")
        self.source, self.target = f"{self.name}.words", f"{self.name}.counts"
        self._class_path, self._directory = class_path, directory
        self.instances: list[Instance] = []
        self.sent = 0
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
        for topic in (self.source, self.target):
            create_topic(admin, topic, partitions=PARTITIONS)
        configure_group(
            bootstrap,
            self.name,
            streams_session_timeout_ms=str(SESSION_MS),
            streams_heartbeat_interval_ms=str(HEARTBEAT_MS),
        )

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        records = [
            Sent(value=b"word-%d" % (number % WORDS), partition=number % PARTITIONS)
            for number in numbers
        ]
        produce(self.bootstrap, self.source, records)
        self.sent += count

    def start(self, name: str) -> Instance:
        directory = str(self._directory / name)
        places = (self.bootstrap, self.name, directory, self.source, self.target)
        instance = Instance(self._class_path, *places)
        self.instances.append(instance)
        return instance

    def counts(self) -> dict[bytes, list[int]]:
        """Of each word, every count that was committed, in the order of the log."""
        found: dict[bytes, list[int]] = defaultdict(list)
        for message in committed_records(self.bootstrap, self.target):
            found[message.key() or b""].append(int(message.value() or b""))
        return found

    def tool(self, *arguments: str) -> str:
        """What kafka-streams-groups.sh prints."""
        tool = "streams.StreamsGroupCommand"
        return run_tool(tool, *arguments, bootstrap=self.bootstrap).checked().stdout

    def wait_for_counts(self) -> None:
        def are_there() -> bool:
            return sum(map(len, self.counts().values())) >= self.sent

        eventually(are_there, within_s=COUNTED_WITHIN_S, what=f"{self.sent} counts are committed")


@pytest.fixture
def counting(bootstrap: str, class_path: str, tmp_path: Path) -> Iterator[Counting]:
    application = Counting(bootstrap, class_path, tmp_path)
    yield application
    for instance in application.instances:
        instance.kill()


def until(instance: Instance, condition: Callable[[], bool], what: str) -> None:
    try:
        eventually(condition, within_s=STARTED_WITHIN_S, what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{instance.output}") from error


def test_an_application_counts_exactly_once_through_a_kill_and_a_restart(
    counting: Counting,
) -> None:
    counting.send(200)
    first, second = counting.start("one"), counting.start("two")
    for instance in (first, second):
        until(instance, lambda instance=instance: instance.is_ready, "it runs")  # type: ignore[misc]
    counting.send(200)
    eventually(lambda: len(counting.counts()) > 0, within_s=COUNTED_WITHIN_S, what="it counts")
    first.kill()
    counting.send(200)
    again = counting.start("one")
    counting.wait_for_counts()
    until(again, lambda: again.is_ready, "it runs again")
    counting.send(50)
    counting.wait_for_counts()
    per_word = counting.sent // WORDS
    assert counting.counts() == {
        b"word-%d" % number: list(range(1, per_word + 1)) for number in range(WORDS)
    }
    described = counting.tool("--describe", "--members", "--group", counting.name)
    assert described.count("ACTIVE: ") == 2
    for instance in (second, again):
        assert instance.stop() == 0, instance.output
        assert "ERROR" not in instance.states, instance.output
    is_empty = ("--list", "--state", "empty")
    eventually(lambda: counting.name in counting.tool(*is_empty), what="nobody is in the group")
    reset = ("--reset-offsets", "--all-input-topics", "--to-earliest", "--execute")
    moved = counting.tool(*reset, "--group", counting.name)
    assert [line.split()[1:] for line in sorted(moved.splitlines()) if counting.source in line] == [
        [counting.source, str(number), "0"] for number in range(PARTITIONS)
    ]
    counting.tool("--delete", "--group", counting.name)
    assert counting.name not in counting.tool("--list")
