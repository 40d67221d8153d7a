"""What people do to a captured PostgreSQL and its topics behind the capture's back: either the
topic has the rows of the table, or the capture stops, and the command that it names mends it."""

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any, get_args

import psycopg
import pytest

from millstream.base.log_clients import Topics
from millstream.capture.change_writer import KeyMoved, TopicShared
from millstream.capture.control import CaptureControl
from millstream.capture.definition import CaptureDefinition, Mode
from millstream.capture.postgres.refusals import TableNotCaptured, TableNotPublished
from millstream.capture.postgres.slot import slot_name
from millstream.capture.runner import CaptureRunner
from millstream.capture.source import CannotCapture
from tests.clients.steps import unique_name
from tests.support.approvals import approved
from tests.support.committed_records import committed_records
from tests.support.postgres_server import LOGICAL, PASSWORD, PostgresServer, postgres_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.full

WITHIN_S = 120.0
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, item text)"
TWO_ORDERS = "INSERT INTO orders VALUES (1, 'tea'), (2, 'rum')"


class Shop:
    """A database of its own, captured under its name."""

    def __init__(self, bootstrap: str, server: PostgresServer) -> None:
        self.bootstrap, self.server, self.name = bootstrap, server, unique_name("shop")
        self.client = {"bootstrap.servers": bootstrap}
        self.control = CaptureControl(self.client)
        self.errors: list[Exception] = []

    def url(self, password: str = PASSWORD) -> str:
        return self.server.url_of(password).removesuffix("/postgres") + f"/{self.name}"

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def define(self, *tables: str, mode: Mode = "log") -> None:
        url = self.url("${SHOP_PASSWORD}")
        self.control.add(CaptureDefinition(name=self.name, url=url, tables=tables, mode=mode))

    def run_once(self) -> None:
        CaptureRunner(self.client, self.name, approval=approved(self.client, self.name)).run(
            once=True
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Beside the test; what it raised is in `errors`."""
        runner = CaptureRunner(self.client, self.name, approval=approved(self.client, self.name))

        def run() -> None:
            try:
                runner.run()
            except Exception as error:
                self.errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            runner.stop()
            thread.join(WITHIN_S)
        assert not thread.is_alive()

    def captured(self, topic: str = "orders") -> list[Any]:
        """The newest row of each key."""
        rows: dict[bytes | str | None, Any] = {}
        for record in committed_records(self.bootstrap, f"{self.name}.{topic}"):
            value = record.value()
            after = json.loads(value)["after"] if value else None
            rows[record.key()] = after
        return in_order(row for row in rows.values() if row is not None)

    def rows(self, table: str = "orders") -> list[Any]:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            query = f"SELECT row_to_json(t) FROM {table} t"
            return in_order(row for (row,) in connection.execute(query.encode()).fetchall())


def in_order(rows: Iterator[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as server:
        yield server


@pytest.fixture
def shop(bootstrap: str, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    shop = Shop(bootstrap, server)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{shop.name}"'.encode())
    yield shop
    if shop.name in shop.control.captures():
        shop.control.drop(shop.name)
        shop.run_once()


# --- changes of tables that the log does not tell ----------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders ADD COLUMN price int NOT NULL DEFAULT 5",
        "BEGIN; SAVEPOINT a; ALTER TABLE orders ADD price int DEFAULT 5; RELEASE a; COMMIT",
        "ALTER TABLE orders RENAME COLUMN item TO thing",
        "ALTER TABLE orders ALTER COLUMN id TYPE bigint",
    ],
)
def test_rows_that_are_there_have_what_a_changed_table_gives_them(
    shop: Shop, statement: str
) -> None:
    shop.execute(ORDERS, TWO_ORDERS)
    shop.define("orders")
    shop.run_once()
    shop.execute(statement)
    shop.run_once()
    assert shop.captured() == shop.rows()


def test_a_column_without_a_default_needs_no_load(shop: Shop) -> None:
    shop.execute(ORDERS, TWO_ORDERS)
    shop.define("orders")
    shop.run_once()
    shop.execute(
        "ALTER TABLE orders ADD COLUMN price int", "ALTER TABLE orders SET (fillfactor=50)"
    )
    shop.execute("UPDATE orders SET price = 3 WHERE id = 1")
    shop.run_once()
    loaded = [
        json.loads(record.value() or b"{}").get("op")
        for record in committed_records(shop.bootstrap, f"{shop.name}.orders")
    ]
    assert loaded == ["r", "r", "u"]


def test_rows_come_and_go_with_their_partition(shop: Shop) -> None:
    shop.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, item text) PARTITION BY RANGE (id)",
        "CREATE TABLE few PARTITION OF orders FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE more (id int PRIMARY KEY, item text)",
        "INSERT INTO orders VALUES (1, 'tea')",
        "INSERT INTO more VALUES (11, 'rum')",
    )
    shop.define("orders")
    shop.run_once()
    shop.execute("ALTER TABLE orders ATTACH PARTITION more FOR VALUES FROM (10) TO (20)")
    shop.execute("INSERT INTO orders VALUES (12, 'gin')")
    shop.run_once()
    assert shop.captured() == shop.rows()
    shop.execute("ALTER TABLE orders DETACH PARTITION few")
    shop.run_once()
    assert shop.captured() == shop.rows() != []


# --- tables that are not what they were --------------------------------------------------------


def test_a_table_that_is_dropped_and_made_again_stops_its_capture_until_a_reload(
    shop: Shop,
) -> None:
    shop.execute(ORDERS, TWO_ORDERS)
    shop.define("orders")
    shop.run_once()
    with shop.running():
        shop.execute("DROP TABLE orders", ORDERS, "INSERT INTO orders VALUES (7, 'gin')")
        eventually(lambda: bool(shop.errors), what="the end of the capture", within_s=WITHIN_S)
    assert isinstance(shop.errors[0], TableNotPublished)
    assert f"`millstream capture reload {shop.name}`" in str(shop.errors[0])
    shop.control.reload(shop.name)
    shop.run_once()
    assert shop.captured() == shop.rows()


@pytest.mark.parametrize("change", ["DROP TABLE orders", "SET (publish = 'insert')"])
def test_a_publication_that_tells_less_stops_its_capture_until_a_reload(
    shop: Shop, change: str
) -> None:
    shop.execute(ORDERS, TWO_ORDERS, "CREATE TABLE other (id int PRIMARY KEY)")
    shop.define("orders", "other")
    shop.run_once()
    shop.execute(f"ALTER PUBLICATION {slot_name(shop.name)} {change}", "DELETE FROM orders")
    with pytest.raises(TableNotPublished, match=r"public\.orders"):
        shop.run_once()
    shop.control.reload(shop.name)
    shop.run_once()
    assert shop.captured() == []


def test_a_table_that_is_renamed_stops_its_capture_until_it_is_added_by_its_name(
    shop: Shop,
) -> None:
    shop.execute(ORDERS, TWO_ORDERS)
    shop.define("orders")
    shop.run_once()
    shop.execute("ALTER TABLE orders RENAME TO sales", "INSERT INTO sales VALUES (3, 'gin')")
    with pytest.raises(TableNotCaptured, match=f"add {shop.name} --table public.sales"):
        shop.run_once()
    assert len(shop.captured()) == 2
    shop.control.add_tables(shop.name, ["public.sales"])
    shop.run_once()
    assert shop.captured("sales") == shop.rows("sales")


@pytest.mark.parametrize("mode", get_args(Mode))
def test_a_run_that_is_to_end_ends_when_its_only_table_was_dropped_and_leaves_no_row(
    shop: Shop, mode: Mode
) -> None:
    shop.execute(ORDERS, TWO_ORDERS)
    shop.define("orders", mode=mode)
    shop.run_once()
    shop.execute("INSERT INTO orders VALUES (3, 'gin')", "DROP TABLE orders")
    shop.run_once()
    shop.run_once()
    assert shop.captured() == []


def test_a_key_column_that_is_renamed_stops_its_capture_with_both_names(shop: Shop) -> None:
    shop.execute(ORDERS, TWO_ORDERS)
    shop.define("orders")
    shop.run_once()
    with shop.running():
        shop.execute("INSERT INTO orders VALUES (3, 'gin')")
        eventually(lambda: len(shop.captured()) == 3, what="a new row", within_s=WITHIN_S)
        shop.execute("ALTER TABLE orders RENAME COLUMN id TO nr")
        eventually(lambda: bool(shop.errors), what="the end of the capture", within_s=WITHIN_S)
    assert isinstance(shop.errors[0], KeyMoved), shop.errors
    assert "had the key (id) and has (nr) now" in str(shop.errors[0])


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE orders REPLICA IDENTITY USING INDEX orders_item_key",
        "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (item, id)",
    ],
)
def test_a_table_that_gets_another_key_stops_its_capture(shop: Shop, statement: str) -> None:
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, item text NOT NULL UNIQUE)", TWO_ORDERS)
    shop.define("orders")
    shop.run_once()
    with shop.running():
        shop.execute(statement, "UPDATE orders SET id = 3 WHERE id = 1")
        eventually(lambda: bool(shop.errors), what="the end of the capture", within_s=WITHIN_S)
    assert isinstance(shop.errors[0], KeyMoved)
    assert "had the key (id)" in str(shop.errors[0])
    with pytest.raises(KeyMoved):
        shop.run_once()
    shop.control.drop(shop.name)
    shop.run_once()
    Topics(shop.client).remove(f"{shop.name}.orders")
    shop.define("orders")
    shop.run_once()
    assert shop.captured() == shop.rows()


def test_a_deferrable_key_is_refused_with_the_statement_that_mends_it(shop: Shop) -> None:
    """Inside of a transaction two rows may have it: `SET id = id + 1` would lose all but one."""
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY DEFERRABLE, item text)", TWO_ORDERS)
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.define("orders")
    with pytest.raises(CannotCapture, match="deferrable key orders_pkey") as refused:
        shop.run_once()
    shop.execute(str(refused.value)[str(refused.value).index("ALTER TABLE") :])
    shop.run_once()
    assert shop.captured() == shop.rows()


# --- topics ------------------------------------------------------------------------------------


def test_a_table_whose_topic_was_deleted_is_loaded_anew(shop: Shop) -> None:
    shop.execute(ORDERS, TWO_ORDERS)
    shop.define("orders")
    shop.run_once()
    Topics(shop.client).remove(f"{shop.name}.orders")
    shop.execute("INSERT INTO orders VALUES (3, 'gin')")
    shop.run_once()
    assert shop.captured() == shop.rows()


def test_tables_called_messages_or_transactions_have_topics_of_their_own(shop: Shop) -> None:
    shop.execute("CREATE TABLE messages (id int PRIMARY KEY)", "INSERT INTO messages VALUES (1)")
    shop.execute("CREATE TABLE transactions (id int PRIMARY KEY)")
    shop.define("messages", "transactions")
    shop.run_once()
    shop.execute("INSERT INTO transactions VALUES (2)")
    shop.execute("SELECT pg_logical_emit_message(true, 'hello', 'there')")
    shop.run_once()
    assert shop.captured("public.messages") == [{"id": 1}]
    assert shop.captured("public.transactions") == [{"id": 2}]


def test_two_tables_that_would_share_a_topic_are_refused(shop: Shop) -> None:
    shop.execute('CREATE TABLE "a b" (id int PRIMARY KEY)', "CREATE TABLE a_b (id int PRIMARY KEY)")
    shop.define("a b", "a_b")
    with pytest.raises(TopicShared, match=r"public\.a b and public\.a_b .* to .*\.a_b"):
        shop.run_once()
