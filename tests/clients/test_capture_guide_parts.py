"""docs/guides/capture.md, what needs no Spark: its outbox, what each kind of database needs, and
what a capture does when something is wrong. tests/spark/test_capture_guide.py has the rest."""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import psycopg
import pytest

from millstream import App
from millstream.capture.control import CaptureControl
from tests.clients.steps import unique_name
from tests.clients.test_cli_commands import Cli
from tests.support.committed_records import committed_records
from tests.support.mariadb_server import MariadbServer, NoMariadbServerError, mariadb_server
from tests.support.postgres_server import LOGICAL, PASSWORD, PostgresServer, postgres_server
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("bootstrap", ["millstream"], indirect=True, scope="session"),
]

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "capture.md").read_text(encoding="utf-8")
WITHIN_S = 120.0
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, item varchar(20))"
TEA = "INSERT INTO orders VALUES (1, 'tea')"


def row_of_guide(beginning: str) -> list[str]:
    """The cells of the row of a table in the guide."""
    (line,) = [line for line in GUIDE.splitlines() if line.startswith(f"| {beginning}")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.fixture
def name() -> str:
    return unique_name("shop")


@pytest.fixture
def app(bootstrap: str, tmp_path: Path) -> Iterator[App]:
    app = App(unique_name("shop"), data=tmp_path / "data", brokers=bootstrap)
    yield app
    app.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as server:
        yield server


@pytest.fixture
def url(server: PostgresServer, name: str) -> str:
    """Of a database of its own."""
    execute(server.url, f'CREATE DATABASE "{name}"')
    return server.url.replace("/postgres", f"/{name}")


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last one."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            done = connection.execute(statement.encode())
        return done.fetchall() if done.description else []


def items(app: App) -> list[Any]:
    with app.changes("orders", follow=False) as changes:
        return [(change.op, (change.after or {}).get("item")) for change in changes]


# --- an outbox --------------------------------------------------------------------------------


def test_rows_of_the_outbox_become_events_on_the_topics_that_they_name_and_are_deleted(
    app: App, url: str, bootstrap: str, name: str
) -> None:
    (declared,) = re.findall(r"`app\.(capture\(url[^`]*outbox=[^`]*\))`", GUIDE)
    (columns,) = re.findall(r"with columns (.*)\. Or", GUIDE)
    assert columns == "`id`, `topic`, `key` and `payload`"
    execute(
        url, ORDERS, "CREATE TABLE outbox (id int PRIMARY KEY, topic text, key text, payload text)"
    )
    eval(f"app.{declared}", {"app": app, "url": url})
    topic = f"{name}.mails"
    insert = f"INSERT INTO outbox VALUES (7, '{topic}', '42', '{{\"to\": \"ada\"}}')"
    execute(url, f"BEGIN; {TEA}; {insert}; COMMIT")
    app.run(once=True)
    assert items(app) == [("r", "tea")]
    assert events(bootstrap, topic) == [(b"42", b'{"to": "ada"}')]
    assert execute(url, "SELECT * FROM outbox") == []


def test_a_message_in_the_log_is_an_event_without_a_table(
    app: App, url: str, bootstrap: str, name: str
) -> None:
    (statement,) = re.findall(r"`(SELECT pg_logical_emit_message.*?)` is an event", GUIDE)
    assert "'outbox:mails:42'" in statement
    execute(url, ORDERS)
    app.capture(url, tables=["orders"], name=name)
    app.run(once=True)
    execute(url, statement.replace("outbox:mails:", f"outbox:{name}.mails:"))
    app.run(once=True)
    assert events(bootstrap, f"{name}.mails") == [(b"42", b'{"to": "ada"}')]


def events(bootstrap: str, topic: str) -> list[tuple[Any, Any]]:
    return [(one.key(), one.value()) for one in committed_records(bootstrap, topic)]


# --- which databases, and what they need ------------------------------------------------------


def test_the_log_of_postgresql_needs_what_the_guide_says(app: App, url: str, name: str) -> None:
    needs = row_of_guide("`postgresql://` |")[-1]
    assert needs == (
        "`wal_level=logical`, a user with REPLICATION that owns the tables and may CREATE in the "
        "database (a superuser also sees tables that are rewritten)"
    )
    role = f"{name}_role"
    execute(url, ORDERS, f"CREATE ROLE \"{role}\" LOGIN REPLICATION PASSWORD '{PASSWORD}'")
    execute(
        url,
        f'ALTER TABLE orders OWNER TO "{role}"',
        f'GRANT CREATE ON DATABASE "{name}" TO "{role}"',
    )
    execute(url, TEA)
    app.capture(url.replace("mill:", f"{role}:"), tables=["orders"], name=name)
    app.run(once=True)
    execute(url, "UPDATE orders SET item = 'rum'")
    app.run(once=True)
    assert items(app) == [("r", "tea"), ("u", "rum")]


def test_triggers_need_what_the_guide_says_and_no_logical_log(app: App, name: str) -> None:
    needs = row_of_guide('`postgresql://`, `mode="triggers"`')[-1]
    assert (
        needs
        == "the right to read the tables, to make triggers on them, and to CREATE in the database"
    )
    with postgres_server() as server:
        execute(server.url, ORDERS, f"CREATE ROLE plain LOGIN PASSWORD '{PASSWORD}'")
        execute(server.url, "GRANT SELECT, TRIGGER ON orders TO plain")
        execute(server.url, "GRANT CREATE ON DATABASE postgres TO plain", TEA)
        url = server.url.replace("mill:", "plain:")
        app.capture(url, tables=["orders"], name=name, mode="triggers")
        app.run(once=True)
        execute(server.url, "UPDATE orders SET item = 'rum'", "DELETE FROM orders")
        app.run(once=True)
    assert items(app) == [("r", "tea"), ("u", "rum"), ("d", None)]


@pytest.fixture
def mariadb() -> Iterator[MariadbServer]:
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(mariadb_server())
        except NoMariadbServerError as error:
            pytest.skip(str(error))
        yield server


def test_mariadb_needs_what_the_guide_says(app: App, mariadb: MariadbServer, name: str) -> None:
    needs = row_of_guide("`mariadb://`, `mysql://`")[-1]
    assert needs == (
        "`log_bin`, `binlog_format=ROW`, `binlog_row_metadata=FULL`; REPLICATION SLAVE, BINLOG "
        "MONITOR (MySQL: REPLICATION CLIENT), and SELECT on the tables"
    )
    assert mariadb.settings["binlog-format"] == "ROW"
    assert mariadb.settings["binlog-row-metadata"] == "FULL"
    with contextlib.closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(ORDERS)
        cursor.execute(TEA)
        cursor.execute(f"CREATE USER plain@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'")
        cursor.execute("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO plain@'127.0.0.1'")
        cursor.execute("GRANT SELECT ON shop.orders TO plain@'127.0.0.1'")
        url = mariadb.url.replace("mill:", "plain:")
        app.capture(url, tables=["orders"], name=name)
        app.run(once=True)
        cursor.execute("UPDATE orders SET item = 'rum'")
        cursor.execute("DELETE FROM orders")
    app.run(once=True)
    assert items(app) == [("r", "tea"), ("u", "rum"), ("d", None)]


# --- when something is wrong ------------------------------------------------------------------


class Captured:
    """A capture of `orders` that has caught up once, and runs in a process of its own."""

    def __init__(self, bootstrap: str, url: str, name: str) -> None:
        self.bootstrap, self.url, self.name = bootstrap, url, name
        self.cli = Cli(bootstrap)
        execute(url, ORDERS, TEA)
        kept = url.replace(f":{PASSWORD}@", ":${SHOP_PASSWORD}@")
        self.cli.run("capture", "add", name, kept, "--table", "orders")
        self.cli.run("capture", "run", name, "--once")

    @contextlib.contextmanager
    def running(self) -> Iterator["Popen[str]"]:
        command = [sys.executable, "-m", "millstream", "capture", "run", self.name]
        with Popen([*command, "--brokers", self.bootstrap], stderr=PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.terminate()
                process.communicate(timeout=WITHIN_S)

    def fail(self) -> str:
        """Its error, when it stops for good; `capture show` has it too."""
        with self.running() as process:
            process.wait(WITHIN_S)
        error = str(self.status()["error"])
        assert self.status()["state"] == "failed"
        assert " ".join(error.split()) in " ".join(
            self.cli.run("capture", "show", self.name).split()
        )
        return error

    def status(self) -> dict[str, Any]:
        control = CaptureControl({"bootstrap.servers": self.bootstrap})
        return control.capture(self.name).status or {}

    def wait_for(self, state: str) -> str:
        """Its error."""
        eventually(lambda: self.status()["state"] == state, what=state, within_s=WITHIN_S)
        return str(self.status()["error"])

    def wait_for_rows(self, count: int) -> None:
        topic = f"{self.name}.orders"
        eventually(
            lambda: len(committed_records(self.bootstrap, topic)) == count,
            what=f"{count} rows",
            within_s=WITHIN_S,
        )


@pytest.fixture
def captured(bootstrap: str, url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Captured:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    return Captured(bootstrap, url, name)


def test_a_slot_that_is_gone_stops_the_capture_with_its_position_and_the_next_command(
    captured: Captured,
) -> None:
    assert row_of_guide("the slot is gone")[1].startswith("stops, names the position, and what")
    slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
    execute(captured.url, f"{slots} WHERE database = current_database()")
    position = captured.status()["position"]
    told = captured.fail()
    assert f"cannot go on after {position}" in told
    assert f"`millstream capture reload {captured.name}`" in told
    assert execute(captured.url, slots.replace("pg_drop_replication_slot", "") +
                   " WHERE database = current_database()") == []  # fmt: skip


def test_a_publication_that_is_missing_stops_the_capture_and_a_reload_is_the_way_on(
    captured: Captured,
) -> None:
    assert row_of_guide("the publication is missing")[1].startswith("stops, and says to reload")
    ((publication,),) = execute(captured.url, "SELECT pubname FROM pg_publication")
    execute(captured.url, f'DROP PUBLICATION "{publication}"')
    told = captured.fail()
    assert "publication" in told
    captured.cli.run("capture", "reload", captured.name, "--yes")
    captured.cli.run("capture", "run", captured.name, "--once")
    captured.wait_for_rows(2)


def test_a_password_that_was_changed_is_tried_again_until_it_is_right(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert row_of_guide("the password was changed")[1].startswith("tries again slowly; set")
    with monkeypatch.context() as old:
        old.setenv("SHOP_PASSWORD", "old")
        with captured.running():
            assert "refuses the login" in captured.wait_for("waiting")
    execute(captured.url, "INSERT INTO orders VALUES (2, 'milk')")
    with captured.running():
        captured.wait_for_rows(2)


def test_a_server_that_was_restarted_is_followed_on(
    captured: Captured, server: PostgresServer
) -> None:
    assert row_of_guide("the database or the network is away")[1].startswith("goes on where it was")
    with captured.running():
        captured.wait_for("streaming")
        server.crash()
        try:
            captured.wait_for("waiting")
        finally:
            server.start()
        execute(captured.url, "INSERT INTO orders VALUES (2, 'milk')")
        captured.wait_for_rows(2)


def test_the_older_of_two_processes_stops_and_names_the_newer(captured: Captured) -> None:
    assert row_of_guide("another process runs")[1].startswith("the older one stops, with the name")
    with captured.running() as older:
        captured.wait_for("streaming")
        first = captured.status()["process"]
        with captured.running():
            _, told = older.communicate(timeout=WITHIN_S)
            eventually(
                lambda: captured.status()["process"] != first, what="a newer run", within_s=WITHIN_S
            )
            assert f"({captured.status()['process']} on " in told
