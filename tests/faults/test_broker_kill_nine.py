"""kill -9 of the broker at random moments under load.

Two idempotent producers write to three partitions whose segments roll all the time, a group member
reads and commits, topics are created and configurations changed. The broker is killed and started
again, round after round, sometimes while it still recovers from the round before. Whatever was
acknowledged must hold: records, committed offsets, topics, configurations, the member's place in
its group.

MILLSTREAM_FAULT_SEED repeats a run's moments (not the operating system's timing).
"""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from millstream import Broker
from millstream.broker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millstream.broker.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.broker.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from millstream.embedded import BrokerDidNotStart
from tests.support.broker_process import assert_no_traceback
from tests.support.raw_client import ConnectionClosed, RawClient
from tests.support.steady_load import SteadyMember, SteadyProducer, read_all

TOPIC = "orders"
GROUP = "readers"
PARTITIONS = 3
SEGMENT_BYTES = 32 << 10
LOAD_SECONDS_MAX = 0.6
# A start takes about 0.4 s; a kill within this falls before, into or after its recovery.
START_SECONDS = 0.5
TOPIC_RESOURCE = 2
SET = 0


@pytest.fixture
def random() -> Random:
    seed = int(os.environ.get("MILLSTREAM_FAULT_SEED") or time.time_ns())
    print(f"MILLSTREAM_FAULT_SEED={seed}")
    return Random(seed)


class Operator:
    """Creates topics and changes configurations; remembers what the broker has confirmed."""

    def __init__(self) -> None:
        self.created: dict[str, str] = {}
        self.retention_ms = 0
        self._number = 0

    def work(self, bootstrap: str) -> None:
        """Until the broker is gone."""
        with suppress(ConnectionClosed, ConnectionRefusedError), RawClient(bootstrap) as client:
            while True:
                self._number += 1
                if self._number % 4 == 0:
                    self._create(client, f"topic-{self._number}", str(1_000_000 + self._number))
                else:
                    self._alter(client, 1_000_000 + self._number)
                time.sleep(0.01)

    def _create(self, client: RawClient, name: str, retention_ms: str) -> None:
        client.create_topic(name, config={"retention.ms": retention_ms})
        self.created[name] = retention_ms

    def _alter(self, client: RawClient, retention_ms: int) -> None:
        config = AlterableConfig(name="retention.ms", config_operation=SET, value=str(retention_ms))
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = client.call(request, IncrementalAlterConfigsResponse, 1)
        assert answer.responses[0].error_code == 0
        self.retention_ms = retention_ms

    def check(self, client: RawClient) -> None:
        """What was confirmed is there: for a value that was overtaken, a newer one."""
        names = [TOPIC, *self.created]
        resources = [
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configuration_keys=["retention.ms"],
            )
            for name in names
        ]
        answer = client.call(
            DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, 4
        )
        found: dict[str, str] = {}
        for result in answer.results:
            assert result.error_code == 0, f"{result.resource_name}: {result.error_message}"
            found[result.resource_name] = result.configs[0].value or ""
        assert int(found.pop(TOPIC)) >= self.retention_ms
        assert found == self.created


def committed_offsets(client: RawClient) -> dict[int, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    answer = client.call(request, OffsetFetchResponse, 8)
    return {
        partition.partition_index: partition.committed_offset
        for topic in answer.groups[0].topics
        for partition in topic.partitions
    }


def kill_process(broker: Broker) -> None:
    """As somebody else would: the object that watches the process knows nothing of it."""
    if broker.is_running:
        os.kill(broker.pid, signal.SIGKILL)


def kill_under_load(broker: Broker, operator: Operator, seconds: float) -> None:
    """The operator works in this thread until another one kills the broker."""
    killer = threading.Timer(seconds, kill_process, (broker,))
    killer.start()
    operator.work(broker.bootstrap)
    killer.join()
    broker.kill()


def start_again(broker: Broker, random: Random) -> None:
    """Start; now and then it is killed while it does, so that it must recover from that too."""
    if random.random() < 0.4:
        killer = threading.Timer(random.uniform(0, START_SECONDS), kill_process, (broker,))
        killer.start()
        with suppress(BrokerDidNotStart):
            broker.start()
        killer.join()
        broker.kill()
    broker.start()


@pytest.mark.parametrize(
    ("durability", "rounds"),
    [
        ("synced", 4),
        # What the process has written is the operating system's: it outlives kill -9 unsynced.
        ("relaxed", 3),
        pytest.param("synced", 20, marks=pytest.mark.full),
        pytest.param("relaxed", 20, marks=pytest.mark.full),
    ],
)
def test_what_was_acknowledged_survives_kill_nine(
    durability: str,
    rounds: int,
    random: Random,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    data_dir = tmp_path / "data"
    broker = Broker(data_dir, durability=durability).start()
    try:
        with RawClient(broker.bootstrap) as client:
            config = {"segment.bytes": str(SEGMENT_BYTES)}
            client.create_topic(TOPIC, partitions=PARTITIONS, config=config)
        producers = [
            SteadyProducer(broker.bootstrap, TOPIC, name=name, partitions=PARTITIONS)
            for name in ("ada", "grace")
        ]
        member = SteadyMember(broker.bootstrap, TOPIC, group=GROUP)
        operator = Operator()
        try:
            member.wait_for(1, within_s=10)
            for _ in range(rounds):
                acknowledged_before = [len(one.acknowledged) for one in producers]
                kill_under_load(broker, operator, random.uniform(0, LOAD_SECONDS_MAX))
                promised = dict(member.committed)
                start_again(broker, random)
                with RawClient(broker.bootstrap) as client:
                    operator.check(client)
                    found = committed_offsets(client)
                for partition, offset in promised.items():
                    assert found[partition] >= offset, f"partition {partition} went back"
                wait_for_progress(producers, acknowledged_before)
        finally:
            for producer in producers:
                producer.stop()
        sent = sum(len(values) for one in producers for values in one.sent.values())
        try:
            member.wait_for(sent, within_s=20)
        finally:
            member.stop()
        stored = read_all(broker.bootstrap, TOPIC, PARTITIONS)
    finally:
        broker.stop()

    for producer in producers:
        producer.check(stored)
    # The member read the same, in the same order, without losing its place even once.
    for number in range(PARTITIONS):
        expected = [record for record in stored if record.partition == number]
        assert [record for record in member.received if record.partition == number] == expected
    assert member.assignments == [list(range(PARTITIONS))]
    assert len(list((data_dir / f"{TOPIC}-0").glob("*.log"))) > rounds, "too few segments rolled"
    assert operator.created
    assert_no_traceback(capfd.readouterr().err)


def wait_for_progress(producers: list[SteadyProducer], before: list[int]) -> None:
    """Each round must find a working broker: else the next kill would prove nothing."""
    deadline = time.monotonic() + 10
    while any(len(one.acknowledged) <= count for one, count in zip(producers, before, strict=True)):
        assert time.monotonic() < deadline, "a producer was not served after the restart"
        time.sleep(0.01)
