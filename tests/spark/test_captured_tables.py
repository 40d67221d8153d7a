"""Tables of a database in jobs: a captured table is a changelog with typed columns, and the view of
it follows the database."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession

from millstream import App, changelog, joins, windows
from millstream.base.declared import DeclaredTable
from millstream.processing.reading.frames import Reading, batch_frame, stream_frame
from millstream.schemas.declaration import schema_of
from millstream.views.store import ViewNotFound
from tests.clients.steps import create_topic, read, unique_name
from tests.clients.transaction_steps import open_producer
from tests.spark.conftest import OURS_ALONE
from tests.spark.steps import run_to_the_end
from tests.support.captured_records import CapturedRecords
from tests.support.postgres_server import LOGICAL, PostgresServer, postgres_server
from tests.support.waiting import eventually

# Spark starts a worker for each partition of each step; on a busy machine that is minutes.
STARTED_WITHIN_S = 300.0
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


@contextmanager
def running(app: App) -> Iterator[list[Exception]]:
    """Beside the test, without an end. The list has what it raised."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            app.run()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield errors
    finally:
        app.stop()
        thread.join(STARTED_WITHIN_S)
    assert not thread.is_alive()
    assert errors == []


@OURS_ALONE
@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_join_of_captured_tables_follows_the_database_while_it_runs(
    shop: App, database: Path
) -> None:
    def follows() -> bool:
        with suppress(ViewNotFound):  # before the first batch
            return in_view(shop) == in_database(database)
        return False

    assert not follows()
    with running(shop) as errors:
        eventually(
            lambda: bool(errors) or follows(), what="the first rows", within_s=STARTED_WITHIN_S
        )
        with closing(sqlite3.connect(database, timeout=STARTED_WITHIN_S)) as writer, writer:
            writer.execute("INSERT INTO orders VALUES (13, 2, 100)")
            writer.execute("UPDATE customers SET name = 'eve' WHERE id = 2")
            writer.execute("DELETE FROM orders WHERE customer = 1")
        eventually(
            lambda: bool(errors) or follows(), what="what has changed", within_s=STARTED_WITHIN_S
        )
    assert in_view(shop) == [{"name": "eve", "orders": 2, "total": 104.0}]


# --- a table that is emptied ------------------------------------------------------------------


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as server:
        execute(server, "CREATE TABLE orders (id int PRIMARY KEY, customer text, total int)")
        yield server


def execute(server: PostgresServer, *statements: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.fixture
def emptied(
    spark: SparkSession, bootstrap: str, postgres: PostgresServer, tmp_path: Path
) -> Iterator[App]:
    app = App(unique_name("shop"), data=tmp_path / "data", brokers=bootstrap)
    app.capture(postgres.url, tables=["orders"], name=unique_name("shop"), partitions=2)

    @app.view(key="customer")
    def spent(orders: DataFrame) -> DataFrame:
        return changelog.aggregate(orders, by="customer", of={"total": windows.sum("total")})

    yield app
    app.close()


def totals(app: App) -> dict[str, int]:
    with app.view("spent") as view:
        return {row["customer"]: row["total"] for row in view.scan()}


@OURS_ALONE
@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_truncated_table_leaves_an_empty_view_and_rows_that_come_then_are_there(
    emptied: App, postgres: PostgresServer
) -> None:
    execute(postgres, "INSERT INTO orders VALUES (1, 'ada', 5), (2, 'ada', 6), (3, 'bob', 7)")
    emptied.run(once=True)
    assert totals(emptied) == {"ada": 11, "bob": 7}
    execute(postgres, "INSERT INTO orders VALUES (4, 'bob', 8)", "TRUNCATE orders")
    emptied.run(once=True)
    assert totals(emptied) == {}
    execute(postgres, "INSERT INTO orders VALUES (1, 'ada', 2), (5, 'eve', 9)")
    emptied.run(once=True)
    assert totals(emptied) == {"ada": 2, "eve": 9}


# --- a column with another type ---------------------------------------------------------------


@OURS_ALONE
@pytest.mark.full
@pytest.mark.timeout(600)
def test_records_of_a_retyped_column_are_read_by_their_version(
    spark: SparkSession, bootstrap: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    capture = unique_name("shop")

    def run() -> tuple[int | None, dict[int, Any]]:
        """By a job that begins with the oldest record."""
        name = unique_name("reader")
        with closing(App(name, data=tmp_path / name, brokers=bootstrap)) as app:
            app.capture(postgres.url, tables=["orders"], name=capture, partitions=1)
            latest = app.view(key="id", name="latest", inputs={"orders": "orders"})
            latest(lambda orders: orders.select("id", "total", "_change", "_order"))
            (ended,) = app.run(once=True)
            with app.view("latest") as view:
                return ended.dead, {row["id"]: row["total"] for row in view.scan()}

    execute(postgres, "INSERT INTO orders VALUES (1, 'ada', 5), (2, 'ada', 6)")
    assert run() == (0, {1: 5, 2: 6})
    execute(
        postgres,
        "ALTER TABLE orders ALTER total TYPE text",
        "UPDATE orders SET total = 'seven' WHERE id = 2",
    )
    assert run() == (0, {1: "5", 2: "seven"})
