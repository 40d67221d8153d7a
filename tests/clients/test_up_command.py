"""`millstream up` in processes of their own, without Spark: broker, HTTP, and how they end."""

import os
import signal
import socket
import urllib.request
from pathlib import Path

import pytest

from tests.support.no_java import without_java
from tests.support.up_process import WITHIN_S, UpProcess
from tests.support.waiting import eventually

APP = """\
import millstream

app = millstream.App("shop")
numbers = app.topic("numbers", schema="n BIGINT", partitions=3)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.py"
    file.write_text(APP)
    return file


def health(url: str) -> int:
    with urllib.request.urlopen(f"{url}/health", timeout=WITHIN_S) as answer:
        return int(answer.status)


def count_of(brokers: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "counts"})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition("numbers", n), 30) for n in range(3)]
    finally:
        consumer.close()
    return sum(high for _, high in ends)


def publish(brokers: str) -> None:
    import millstream

    with millstream.App("shop", brokers=brokers) as app:
        app.topic("numbers", schema="n BIGINT", partitions=3).publish([{"n": n} for n in range(5)])


def test_all_of_an_app_is_up_and_ends_by_ctrl_c_and_goes_on_at_the_next_start(shop: Path) -> None:
    with UpProcess(shop) as up:
        assert health(up.url) == 200
        publish(up.broker)
        assert up.stop() == 0
        assert up.said.endswith("millstream up stopped\n")
    with UpProcess(shop) as up:
        assert count_of(up.broker) == 5, "topics are made at the start; records are still there"
        assert up.stop(signal.SIGTERM) == 0


def test_a_broker_that_was_killed_comes_back_where_it_was(shop: Path) -> None:
    with UpProcess(shop) as up:
        publish(up.broker)
        killed, address = up.broker_pid, up.broker
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: up.broker_pid != killed, what="a new broker", within_s=WITHIN_S)
        assert up.broker == address
        assert count_of(up.broker) == 5
        assert up.stop() == 0


def test_what_was_killed_starts_again_though_its_broker_is_just_ending(shop: Path) -> None:
    with UpProcess(shop) as up:
        publish(up.broker)
        up.process.kill()
        up.end()
    with UpProcess(shop) as up:
        assert count_of(up.broker) == 5
        assert up.stop() == 0


@pytest.mark.parametrize("option", ["--listen", "--broker-listen"])
def test_a_port_that_is_taken_is_one_line(shop: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with UpProcess(shop, option, address, wait=False) as up:
            assert up.end() == 1
    lines = [line for line in up.said.splitlines() if line != "millstream up stopped"]
    assert len(lines) == 1, up.said
    assert f"{address} is in use by another process" in lines[0]


def test_java_that_is_missing_is_one_line(tmp_path: Path) -> None:
    job = "@app.view(key='n')\ndef all_numbers(numbers):\n    return numbers\n"
    (tmp_path / "shop.py").write_text(f"{APP}\n{job}")
    env = without_java(tmp_path)
    with UpProcess(tmp_path / "shop.py", env=env, wait=False) as up:
        assert up.end() == 1
    assert up.said.startswith("millstream: Spark needs Java 17 or newer, and there is none")
    assert len(up.said.splitlines()) == 1
