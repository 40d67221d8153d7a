"""A disk that is full, a log that is read-only, a damaged one: each is in the diagnostics, in the
metrics, in `millstream doctor`, and known to clients that ask."""

import json
import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millstream.app import App
from millstream.broker import server
from millstream.capture.control import CaptureControl
from millstream.capture.definition import CaptureDefinition
from millstream.capture.runner import CaptureRunner
from millstream.cli import app as millstream
from millstream.commands.console.shown_app import ShownApp
from millstream.queues.access import access_from
from millstream.queues.broker_health import BrokerHealth, broker_health
from tests.support.approvals import approved
from tests.support.broker_thread import BrokerThread
from tests.support.cramped_disk import CrampedDisk
from tests.support.held_disk import HeldDisk
from tests.support.raw_client import RawClient, batch_of
from tests.support.scrape import Scrape
from tests.support.waiting import eventually

TOPIC = "orders"


def health_of(broker: BrokerThread) -> BrokerHealth:
    return broker_health(access_from({"bootstrap.servers": broker.bootstrap}))


def in_console(broker: BrokerThread, folder: Path) -> str:
    """Why a capture cannot write, as the pages of the console have it."""
    with (
        App("shop", data=folder / "app", brokers=broker.bootstrap) as app,
        closing(ShownApp(app)) as shown,
    ):
        [capture] = shown.declared.captures()
        return capture.refusal


def doctor(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("MILLSTREAM_BROKERS", broker.bootstrap)
    found = json.loads(CliRunner().invoke(millstream, ["doctor", "--json"]).stdout)
    return {one["check"]: one for one in found}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    caplog.set_level(logging.INFO)
    return lambda words: [one.getMessage() for one in caplog.records if words in one.getMessage()]


@pytest.mark.parametrize("is_quota", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_full_disk_is_said_measured_and_found_and_its_end_too(
    is_quota: bool,
    tmp_path: Path,
    lines: Callable[[str], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = CrampedDisk()
    disk.is_quota = is_quota
    with BrokerThread(tmp_path, disk=disk, metrics_listen=("127.0.0.1", 0)) as broker:
        url = broker.server.metrics_url
        assert url is not None
        with RawClient(broker.bootstrap) as client:
            client.create_topic(TOPIC)
            assert not health_of(broker).troubles()
            assert health_of(broker).disks
            assert Scrape(url).value("millstream_disk_full") == 0

            disk.is_full = True
            for _ in range(20):
                assert client.produce(TOPIC, batch_of(b"x")).error_code != 0
            eventually(lambda: Scrape(url).value("millstream_disk_full") == 1, what="it is full")

            assert (Scrape(url).value("millstream_disk_full_refusals_total") or 0) >= 20
            assert len(lines("the disk is full")) == 1
            [trouble] = health_of(broker).troubles()
            assert "the broker's disk is full" in trouble
            assert "continues by itself" in trouble
            seen = doctor(broker, monkeypatch)["broker disk"]
            assert seen["verdict"] == "fail"
            assert "the disk is full" in seen["told"]
            listed = CliRunner().invoke(millstream, ["topics", "list"])
            assert "warning: the broker's disk is full" in listed.stderr
            assert listed.exit_code == 0

            disk.is_full = False
            assert client.produce(TOPIC, batch_of(b"x")).error_code == 0
            eventually(lambda: Scrape(url).value("millstream_disk_full") == 0, what="it is over")
        assert len(lines("the disk is full")) == 1
        assert len(lines("the disk has room again")) == 1
        assert not health_of(broker).troubles()


def test_a_read_only_partition_has_nobody_in_sync_and_doctor_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Callable[[str], list[str]]
) -> None:
    disk = HeldDisk(TOPIC)
    monkeypatch.setattr(server, "TROUBLE_LINE_INTERVAL_MS", 50)
    with BrokerThread(tmp_path, disk=disk, metrics_listen=("127.0.0.1", 0)) as broker:
        with RawClient(broker.bootstrap) as client:
            client.create_topic(TOPIC)
            disk.fails = True
            assert client.produce(TOPIC, batch_of(b"x")).error_code != 0
            [partition] = client.metadata(TOPIC).topics[0].partitions
            assert (partition.isr_nodes, partition.offline_replicas) == ([], [partition.leader_id])
        health = health_of(broker)
        assert health.read_only == ((TOPIC, 0),)
        assert "orders-0: takes no records since a write failed" in health.troubles()[0]
        seen = doctor(broker, monkeypatch)["partitions"]
        assert (seen["verdict"], "orders-0" in seen["told"]) == ("fail", True)
        assert Scrape(str(broker.server.metrics_url)).value("millstream_read_only_partitions") == 1
        assert lines("orders-0: read-only since a write could not be made durable")
        again = "partitions that take no records since a write failed: orders-0; check the disk"
        eventually(lambda: len(lines(again)) > 1, what="it is said again while it lasts")


def test_a_damaged_partition_is_measured_and_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: Callable[[str], list[str]]
) -> None:
    with BrokerThread(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        client.create_topic(TOPIC)
        for value in (b"a" * 500, b"b" * 500):
            assert client.produce(TOPIC, batch_of(value)).error_code == 0
    [log] = (tmp_path / f"{TOPIC}-0").glob("*.log")
    content = bytearray(log.read_bytes())
    content[200] ^= 0xFF
    log.write_bytes(content)
    monkeypatch.setattr(server, "TROUBLE_LINE_INTERVAL_MS", 50)
    with BrokerThread(tmp_path, metrics_listen=("127.0.0.1", 0)) as broker:
        with RawClient(broker.bootstrap) as client:
            assert client.fetch(TOPIC, 0).error_code != 0
        assert health_of(broker).damaged == ((TOPIC, 0),)
        seen = doctor(broker, monkeypatch)["partitions"]
        assert (seen["verdict"], "damaged" in seen["told"]) == ("fail", True)
        assert Scrape(str(broker.server.metrics_url)).value("millstream_damaged_partitions") == 1
        assert lines("damaged at byte")
        again = "partitions with damaged records, which are not served: orders-0; restore"
        eventually(lambda: len(lines(again)) > 1, what="it is said again while it lasts")


@pytest.mark.full
def test_a_capture_says_that_the_broker_refuses_its_changes_and_goes_on_by_itself(
    tmp_path: Path,
) -> None:
    database = tmp_path / "shop.db"
    with closing(sqlite3.connect(database)) as shop:
        shop.executescript(
            "PRAGMA journal_mode = WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY)"
        )
    disk = CrampedDisk()
    with BrokerThread(tmp_path / "data", disk=disk) as broker:
        client = {"bootstrap.servers": broker.bootstrap}
        CaptureControl(client).add(
            CaptureDefinition(name="shop", url=f"sqlite:///{database}", tables=("orders",))
        )

        def listed() -> tuple[str, str]:
            command = ["capture", "list", "--json", "--brokers", broker.bootstrap]
            [one] = json.loads(CliRunner().invoke(millstream, command).stdout)
            return one["state"], one["error"]

        def insert(number: int) -> None:
            with closing(sqlite3.connect(database)) as shop, shop:
                shop.execute("INSERT INTO orders VALUES (?)", [number])

        runner = CaptureRunner(client, "shop", approval=approved(client, "shop"))
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            eventually(lambda: listed()[0] == "streaming", what="it streams")
            disk.is_full = True
            insert(1)
            eventually(lambda: listed()[0] == "cannot write", what="it says so")
            assert "the broker refuses records, as its disk is full" in listed()[1]
            assert in_console(broker, tmp_path) == listed()[1]
            disk.is_full = False
            eventually(lambda: listed() == ("streaming", ""), what="it goes on", within_s=60)
            assert in_console(broker, tmp_path) == ""
        finally:
            disk.is_full = False
            runner.stop()
            thread.join(60)
