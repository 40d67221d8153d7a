"""kill -9 of the broker, and of the process that compacts, in the middle of cleanings under load;
and consumers that read meanwhile. What counts is the last value of each key.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from millstream import Broker
from tests.support.broker_process import (
    BrokerProcess,
    assert_no_traceback,
    is_alive,
    wait_until_gone,
)
from tests.support.raw_client import RawClient
from tests.support.steady_load import PATIENT, PRODUCER
from tests.support.waiting import eventually

TOPIC = "orders"
KEYS = 1_500
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 << 10),
    "min.cleanable.dirty.ratio": "0.01",
}
# So slow that a cleaning takes a good part of a second: most kills fall into one.
SETTINGS = {"compaction_check_interval_ms": "100ms", "compaction_bytes_per_second": "768KiB"}

SET_BACK = "orders-0: not compacted, tried again in 60 s: the process that compacts has ended"


class KeyedLoad:
    """An idempotent producer in a thread that writes the same keys again and again.

    With `unique_every` some keys in between are written only once: they stay.
    """

    def __init__(self, bootstrap: str, *, unique_every: int = 1 << 60) -> None:
        self._unique_every = unique_every
        self.sent: dict[bytes, bytes | None] = {}
        self.errors: list[str] = []
        self.acknowledged = 0
        self._stop = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
        self._thread = threading.Thread(target=self._run, name="keyed load")
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for _ in range(20):
                is_unique = number % self._unique_every == 1
                key = b"unique %d" % number if is_unique else b"key %d" % (number * 7 % KEYS)
                value = None if number % 11 == 0 else b"%d " % number + b"." * 150
                self.sent[key] = value
                self._producer.produce(TOPIC, value, key=key, on_delivery=self._on_delivery)
                number += 1
            self._producer.poll(0)
            self._stop.wait(0.01)

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        self.acknowledged += 1
        if error is not None:
            self.errors.append(str(error))

    def stop(self) -> dict[bytes, bytes]:
        """Send no more; the state that a reader must find now."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0
        assert self.errors == []
        return {key: value for key, value in self.sent.items() if value is not None}


def read_state(bootstrap: str) -> tuple[dict[bytes, bytes], int]:
    """The last value of each key, and how many records it took to learn them."""
    config = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**PATIENT, **config})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    state: dict[bytes, bytes] = {}
    count, offset = 0, -1
    try:
        while True:
            for message in consumer.consume(500, timeout=1):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        return state, count
                    raise KafkaException(error)
                found, key, value = message.offset(), message.key(), message.value()
                assert found is not None
                assert key is not None
                assert found > offset
                offset, count = found, count + 1
                state.pop(key, None)
                if value is not None:
                    state[key] = value
    finally:
        consumer.close()


@pytest.fixture
def broker(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Broker]:
    """Its diagnostics go to `capfd`, so that is asked for first."""
    running = Broker(tmp_path / "data", log_level="info", **SETTINGS).start()  # type: ignore[arg-type] # settings of both kinds
    with RawClient(running.bootstrap) as client:
        client.create_topic(TOPIC, config=CONFIG)
    try:
        yield running
    finally:
        running.stop()


def compactor_pid(broker: Broker | BrokerProcess) -> int | None:
    """The child of the broker that compacts, if it has one now."""
    for task in Path(f"/proc/{broker.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if is_alive(int(child)):
                return int(child)
    return None


def wait_for_compactor(broker: Broker | BrokerProcess) -> int:
    found: list[int] = []

    def is_there() -> bool:
        pid = compactor_pid(broker)
        found.extend([] if pid is None else [pid])
        return bool(found)

    eventually(is_there, what="a process that compacts", within_s=20)
    return found[0]


def unfinished(broker: Broker | BrokerProcess) -> list[str]:
    assert broker.data_dir is not None
    names = os.listdir(broker.data_dir / f"{TOPIC}-0")
    return [name for name in names if name.endswith((".cleaned", ".swap"))]


def wait_until_cleaned(broker: Broker, records_max: int) -> None:
    eventually(
        lambda: read_state(broker.bootstrap)[1] < records_max,
        what=f"fewer than {records_max} records",
        within_s=60,
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.full)])
def test_the_last_values_survive_kill_nine_of_the_broker_while_it_compacts(
    broker: Broker, capfd: pytest.CaptureFixture[str], kills: int
) -> None:
    load = KeyedLoad(broker.bootstrap)
    in_the_middle = 0
    for number in range(kills):
        if number % 2:
            time.sleep(0.3 * number)
        else:
            eventually(lambda: bool(unfinished(broker)), what="a cleaning under way", within_s=30)
        pid = wait_for_compactor(broker)
        in_the_middle += bool(unfinished(broker))
        os.kill(broker.pid, signal.SIGKILL)
        broker.kill()
        wait_until_gone(pid, within_s=5)
        broker.start()
        assert not unfinished(broker)
    # Enough for half of it to go: the last record of each key stays, and the last segment.
    eventually(lambda: load.acknowledged > 4 * KEYS, what="enough records", within_s=60)
    expected = load.stop()
    assert in_the_middle, "no kill fell into a cleaning"
    assert read_state(broker.bootstrap)[0] == expected
    wait_until_cleaned(broker, load.acknowledged // 2)
    assert read_state(broker.bootstrap)[0] == expected
    assert_no_traceback(capfd.readouterr().err)


@pytest.mark.timeout(300)
def test_a_compactor_that_is_killed_harms_nothing_and_is_reported(tmp_path: Path) -> None:
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SETTINGS.items()]
    with BrokerProcess(tmp_path / "data", *options) as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic(TOPIC, config=CONFIG)
        load = KeyedLoad(broker.bootstrap)
        deadline = time.monotonic() + 60
        while SET_BACK not in broker.diagnostics:
            assert time.monotonic() < deadline, "no kill fell into a cleaning"
            eventually(lambda: bool(unfinished(broker)), what="a cleaning under way", within_s=30)
            os.kill(wait_for_compactor(broker), signal.SIGKILL)
            time.sleep(0.3)
        eventually(lambda: not unfinished(broker), what="its files removed")
        expected = load.stop()
        assert read_state(broker.bootstrap)[0] == expected
        assert broker.stop() == 0
        assert_no_traceback(broker.diagnostics)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_readers_find_every_last_value_while_segments_are_swapped_under_them(
    broker: Broker,
) -> None:
    set_policy(broker, "delete")
    load = KeyedLoad(broker.bootstrap, unique_every=3)
    eventually(lambda: load.acknowledged > 12_000, what="a log worth cleaning", within_s=60)
    expected = load.stop()
    counts = [read_state(broker.bootstrap)[1]]
    assert counts[0] == load.acknowledged
    set_policy(broker, "compact")
    deadline = time.monotonic() + 60
    while counts[-1] > counts[0] // 2:
        assert time.monotonic() < deadline, f"not cleaned: {counts}"
        state, count = read_state(broker.bootstrap)
        assert state == expected
        counts.append(count)
    assert len(set(counts)) > 2, f"too few swaps fell into the time of reading: {counts}"


def set_policy(broker: Broker, policy: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    change = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[change])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)
