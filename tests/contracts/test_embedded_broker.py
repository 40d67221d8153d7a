"""`Broker`, `millstream broker` and the pytest fixtures: what each promises to those who use it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import Broker
from millstream.embedded import BrokerDidNotStart, BrokerMisused
from tests.support.broker_process import (
    READY_LINE,
    BrokerProcess,
    assert_no_traceback,
    is_alive,
    wait_until_gone,
)
from tests.support.raw_client import RawClient, batch_of

TOPIC = "orders"
RECOVERY_LINE = "the last stop was not clean; recovering"
# A start takes about 0.4 s; much more than it needs, on a machine that is busy.
SECONDS_MAX = 20.0


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def serves(bootstrap: str) -> bool:
    with RawClient(bootstrap) as client:
        return client.metadata("anything").topics is not None


class TestBroker:
    def test_it_serves_in_its_block_and_leaves_nothing_behind(self) -> None:
        with Broker() as broker:
            pid, data_dir = broker.pid, broker.data_dir
            assert data_dir is not None
            assert data_dir.is_dir()
            assert pid != os.getpid()
            assert broker.is_running
            assert serves(broker.bootstrap)
        assert not broker.is_running
        assert not is_alive(pid)
        assert not data_dir.exists()

    def test_a_given_directory_is_kept(self, tmp_path: Path) -> None:
        with Broker(tmp_path / "data") as broker, RawClient(broker.bootstrap) as client:
            client.create_topic(TOPIC)
            assert client.produce(TOPIC, batch_of(b"kept")).error_code == 0
        with Broker(tmp_path / "data") as broker, RawClient(broker.bootstrap) as client:
            found = client.fetch(TOPIC, 0)
        assert b"kept" in found.records

    def test_after_a_kill_it_starts_again_at_the_same_address_with_the_same_data(self) -> None:
        with Broker() as broker:
            bootstrap, data_dir = broker.bootstrap, broker.data_dir
            with RawClient(bootstrap) as client:
                client.create_topic(TOPIC)
                assert client.produce(TOPIC, batch_of(b"kept")).error_code == 0
            for _ in range(2):
                broker.kill()
                assert not broker.is_running
                broker.start()
                assert (broker.bootstrap, broker.data_dir) == (bootstrap, data_dir)
            with RawClient(bootstrap) as client:
                found = client.fetch(TOPIC, 0)
            assert b"kept" in found.records

    def test_starting_it_twice_is_refused_and_harms_nothing(self) -> None:
        with Broker() as broker:
            with pytest.raises(BrokerMisused, match="runs already"):
                broker.start()
            assert serves(broker.bootstrap)
            assert broker.data_dir is not None
            assert broker.data_dir.is_dir()

    def test_settings_reach_it_as_python_names(self) -> None:
        with (
            Broker(default_partitions=3, auto_create_topics=True) as broker,
            RawClient(broker.bootstrap) as client,
        ):
            made = client.metadata("new", may_create=True).topics[0]
            assert len(made.partitions) == 3

    def test_a_wrong_setting_is_named(self) -> None:
        with pytest.raises(BrokerDidNotStart, match="default_partitions: '0'"):
            Broker(default_partitions=0).start()

    def test_a_misspelt_setting_is_named(self) -> None:
        with (
            pytest.raises(BrokerDidNotStart, match="default_partition"),
            Broker(default_partition=1),
        ):
            pass

    def test_a_busy_port_is_named(self, busy_port: int) -> None:
        broker = Broker(port=busy_port)
        with pytest.raises(BrokerDidNotStart, match=f"127.0.0.1:{busy_port} is in use"):
            broker.start()
        assert not broker.is_running
        assert broker.data_dir is None, "its temporary directory is gone"

    def test_before_its_start_it_says_how_to_use_it(self) -> None:
        with pytest.raises(BrokerMisused, match="with"):
            _ = Broker().bootstrap

    def test_without_metrics_it_says_how_to_have_them(self) -> None:
        with pytest.raises(BrokerMisused, match="metrics_listen"):
            _ = Broker().metrics_url

    @pytest.mark.parametrize("name", ["data", "listen"])
    def test_settings_that_have_arguments_of_their_own_are_refused(self, name: str) -> None:
        with pytest.raises(BrokerMisused, match="data_dir"):
            Broker(**{name: "elsewhere"})  # type: ignore[arg-type] # what a user would write

    @pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
    def test_it_ends_when_its_parent_does(self, ending: signal.Signals) -> None:
        program = (
            "import sys, time; from millstream import Broker; broker = Broker().start(); "
            "print(broker.pid, broker.data_dir, flush=True); time.sleep(60)"
        )
        parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert parent.stdout is not None
        with parent.stdout:
            pid = int(parent.stdout.readline().split()[0])
        assert is_alive(pid)
        parent.send_signal(ending)
        parent.wait(SECONDS_MAX)
        wait_until_gone(pid, within_s=SECONDS_MAX)


class TestCommand:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_stops_it_cleanly(self, tmp_path: Path, number: signal.Signals) -> None:
        with BrokerProcess(tmp_path / "data", "--log-level", "info") as broker:
            assert READY_LINE.fullmatch(broker.ready_line), broker.ready_line
            with RawClient(broker.bootstrap) as client:
                client.create_topic(TOPIC)
                assert client.produce(TOPIC, batch_of(b"kept")).error_code == 0
                assert broker.process.stdout is not None
                broker.process.send_signal(number)
                assert broker.process.stdout.read() == b"", "one line on stdout, no more"
                assert broker.wait() == 0
            assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
            assert_no_traceback(broker.diagnostics)
            self.assert_starts_without_recovery(broker)

    def assert_starts_without_recovery(self, broker: BrokerProcess) -> None:
        """A clean log is not read through: the start does not touch what it need not.

        That the line is said where it must be, `test_after_a_kill_it_recovers_and_says_so` sees.
        """
        segment = broker.data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
        before = segment.stat()
        broker.start()
        with RawClient(broker.bootstrap) as client:
            found = client.fetch(TOPIC, 0)
        assert b"kept" in found.records
        assert segment.stat().st_mtime_ns == before.st_mtime_ns
        assert RECOVERY_LINE not in broker.diagnostics

    def test_after_a_kill_it_recovers_and_says_so(self, tmp_path: Path) -> None:
        with BrokerProcess(tmp_path / "data", "--log-level", "info") as broker:
            with RawClient(broker.bootstrap) as client:
                client.create_topic(TOPIC)
                assert client.produce(TOPIC, batch_of(b"kept")).error_code == 0
            assert RECOVERY_LINE not in broker.diagnostics, "a new directory needs none"
            broker.end()
            assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
            broker.start()
            assert broker.diagnostics.count(RECOVERY_LINE) == 1
            with RawClient(broker.bootstrap) as client:
                found = client.fetch(TOPIC, 0)
            assert b"kept" in found.records

    def test_requests_that_wait_are_answered_before_it_stops(self, tmp_path: Path) -> None:
        """A stop during load loses nothing: each record is acknowledged or was never taken."""
        with BrokerProcess(tmp_path / "data") as broker:
            acknowledged = 0
            with RawClient(broker.bootstrap) as client:
                client.create_topic(TOPIC)
                for number in range(200):
                    if number == 100:
                        broker.process.send_signal(signal.SIGTERM)
                    try:
                        answer = client.produce(TOPIC, batch_of(b"%d" % number))
                    except Exception:
                        break
                    assert answer.error_code == 0
                    acknowledged += 1
            assert acknowledged >= 100
            assert broker.wait() == 0
            broker.start()
            with RawClient(broker.bootstrap) as client:
                found = client.fetch(TOPIC, 0)
            assert found.high_watermark >= acknowledged


class TestPytestPlugin:
    def test_its_fixtures_work_in_a_foreign_project(self, tmp_path: Path) -> None:
        (tmp_path / "test_orders.py").write_text(FOREIGN_TESTS)
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "3 passed" in result.stdout, result.stdout + result.stderr
        facts = [json.loads(line) for line in (tmp_path / "facts.jsonl").read_text().splitlines()]
        assert len({fact["pid"] for fact in facts}) == 1, "one broker for the session"
        assert len({fact["topic"] for fact in facts}) == 2, "one topic per test"
        assert not is_alive(facts[0]["pid"])
        assert not Path(facts[0]["data_dir"]).exists()


FOREIGN_TESTS = """
import json
from pathlib import Path

from confluent_kafka import Consumer, Producer

def note(broker, topic):
    facts = {"pid": broker.pid, "topic": topic, "data_dir": str(broker.data_dir)}
    with (Path(__file__).parent / "facts.jsonl").open("a") as file:
        print(json.dumps(facts), file=file)

def publish_and_read(broker, topic, value):
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(10) == 0
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest",
    })
    consumer.subscribe([topic])
    [message] = consumer.consume(1, timeout=10)
    consumer.close()
    return message.value()

def test_an_order(millstream_broker, millstream_topic):
    note(millstream_broker, millstream_topic)
    assert publish_and_read(millstream_broker, millstream_topic, b"1") == b"1"

def test_another_order_sees_a_fresh_topic(millstream_broker, millstream_topic):
    note(millstream_broker, millstream_topic)
    assert publish_and_read(millstream_broker, millstream_topic, b"2") == b"2"

def test_the_broker_alone(millstream_broker):
    assert millstream_broker.is_running
"""
