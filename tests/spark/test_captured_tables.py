"""Tables of a database in jobs: a captured table is a changelog with typed columns, and the view of
it follows the database."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from millstream import App, changelog, joins, windows
from millstream.base.declared import DeclaredTable
from millstream.processing.reading.frames import Reading, batch_frame, stream_frame
from millstream.schemas.declaration import schema_of
from tests.clients.steps import create_topic, read, unique_name
from tests.clients.transaction_steps import open_producer
from tests.spark.steps import run_to_the_end
from tests.support.captured_records import CapturedRecords

TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, total REAL);
INSERT INTO customers VALUES (1, 'ada'), (2, 'bob');
INSERT INTO orders VALUES (10, 1, 9.5), (11, 1, 3.25), (12, 2, 4);
"""
SPENT = """
SELECT name, count(*) AS orders, sum(total) AS total
FROM orders JOIN customers ON customer = customers.id GROUP BY name
"""


# --- the topic of a table ---------------------------------------------------------------------


@pytest.fixture
def orders(bootstrap: str, admin: AdminClient) -> CapturedRecords:
    topic = unique_name("shop.orders")
    create_topic(admin, topic, partitions=2, config={"cleanup.policy": "compact"})
    return CapturedRecords(open_producer(bootstrap, f"capture-{topic}"), topic)


def table_of(orders: CapturedRecords) -> DeclaredTable:
    schema = schema_of("id BIGINT NOT NULL, total DECIMAL(10,2), at TIMESTAMP, note STRING")
    return DeclaredTable(name=orders.topic, schema=schema, key=("id",), encoding="debezium")


def test_the_latest_rows_of_a_captured_table_are_typed_and_what_was_deleted_is_gone(
    spark: SparkSession, bootstrap: str, orders: CapturedRecords
) -> None:
    orders.commit(
        ("r", {"id": 1, "total": "9.50", "at": "2026-01-01T12:00:00.123456Z"}),
        ("r", {"id": 2, "total": "0.10"}),
        ("r", {"id": 3, "total": "1.00"}),
    )
    orders.abort(("d", {"id": 1}))
    orders.commit(("u", {"id": 2, "total": "7.00", "note": "tea"}), ("d", {"id": 3}), ("t", {}))
    frame = batch_frame(spark, table_of(orders), Reading(brokers=bootstrap, on_bad="fail"))
    rows = {row.id: row for row in changelog.latest(frame).collect()}
    assert rows.keys() == {1, 2}
    assert (rows[1].total, rows[1].at.microsecond) == (Decimal("9.50"), 123456)
    assert (rows[2].total, rows[2].note) == (Decimal("7.00"), "tea")


def test_a_stream_has_an_upsert_or_a_delete_for_each_change(
    spark: SparkSession, bootstrap: str, orders: CapturedRecords, tmp_path: Path
) -> None:
    orders.commit(("c", {"id": 1, "total": "9.50"}), ("c", {"id": 2}), ("d", {"id": 1}))
    frame = stream_frame(spark, table_of(orders), Reading(brokers=bootstrap))
    (batch,) = run_to_the_end(frame, tmp_path / "checkpoint")
    changes = sorted((row.id, row._order, row._change) for row in batch)
    of_first = [change for number, _, change in changes if number == 1]
    assert of_first == ["upsert", "delete", "delete"]  # the tombstone says it again
    assert [change for number, _, change in changes if number == 2] == ["upsert"]


def test_a_row_of_which_the_database_left_out_a_part_is_a_dead_letter_that_says_so(
    spark: SparkSession, bootstrap: str, orders: CapturedRecords, tmp_path: Path
) -> None:
    orders.commit(("c", {"id": 1, "note": "long"}))
    orders.commit(("u", {"id": 1}), unavailable=["note"])
    reading = Reading(brokers=bootstrap, job="j", run="r")
    (batch,) = run_to_the_end(
        stream_frame(spark, table_of(orders), reading), tmp_path / "checkpoint"
    )
    assert [row.note for row in batch] == ["long"]
    (letter,) = read(bootstrap, f"{orders.topic}.dead", 1)
    assert any(b"left out note" in (one[1] or b"") for one in letter.headers() or [])


# --- an application ---------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Path:
    file = tmp_path / "shop.db"
    with closing(sqlite3.connect(file)) as shop:
        shop.executescript(TABLES)
    return file


@pytest.fixture
def shop(spark: SparkSession, bootstrap: str, database: Path, tmp_path: Path) -> Iterator[App]:
    app = App(unique_name("shop"), data=tmp_path / "data", brokers=bootstrap)
    app.capture(
        f"sqlite:///{database}",
        tables=["customers", "orders"],
        name=unique_name("shop"),
        partitions=2,
    )

    @app.view(key="name")
    def spent(orders: DataFrame, customers: DataFrame) -> DataFrame:
        named = joins.tables(orders, customers, on={"customer": "id"}, key="id")
        of = {"orders": windows.count(), "total": windows.sum("total")}
        return changelog.aggregate(named, by="name", of=of)

    yield app
    app.close()


def in_view(app: App) -> list[dict[str, Any]]:
    with app.view("spent") as view:
        return sorted((dict(row) for row in view.scan()), key=lambda row: str(row["name"]))


def in_database(file: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(file)) as shop:
        shop.row_factory = sqlite3.Row
        return sorted((dict(row) for row in shop.execute(SPENT)), key=lambda row: row["name"])


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_view_of_captured_tables_follows_the_database(shop: App, database: Path) -> None:
    shop.run(once=True)
    assert in_view(shop) == in_database(database) != []
    with closing(sqlite3.connect(database)) as writer, writer:
        writer.execute("INSERT INTO orders VALUES (13, 2, 100)")
        writer.execute("UPDATE orders SET customer = 2 WHERE id = 10")
        writer.execute("DELETE FROM orders WHERE id = 11")
        writer.execute("UPDATE customers SET name = 'eve' WHERE id = 2")
    shop.run(once=True)
    assert in_view(shop) == in_database(database)
    assert [row["name"] for row in in_view(shop)] == ["eve"]
