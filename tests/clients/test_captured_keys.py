"""A captured table of PostgreSQL that loses its primary key, or gets one: its topic is of rows with
keys or without, so the capture stops, and the commands that it names are the way on."""

import contextlib
import json
import re
import shlex
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from millstream.capture.change_writer import KeyGained, KeyLost
from millstream.capture.control import CaptureControl
from millstream.capture.runner import CaptureRunner
from tests.clients.steps import unique_name
from tests.clients.test_cli_commands import Cli
from tests.support.approvals import approved
from tests.support.committed_records import committed_records
from tests.support.postgres_server import LOGICAL, PASSWORD, PostgresServer, postgres_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.full

WITHIN_S = 120.0
COMMAND = re.compile(r"`millstream ([^`]+)`")


class Shop:
    """A table `orders`, captured under a name of its own, by commands as people give them."""

    def __init__(self, bootstrap: str, server: PostgresServer) -> None:
        self.bootstrap, self.server, self.name = bootstrap, server, unique_name("shop")
        self.client = {"bootstrap.servers": bootstrap}
        self.topic = f"{self.name}.orders"
        self.cli = Cli(bootstrap)
        self.errors: list[Exception] = []

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def add(self) -> None:
        url = self.server.url_of("${SHOP_PASSWORD}")
        self.cli.run("capture", "add", self.name, url, "--table", "orders")

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

    def status(self) -> dict[str, Any]:
        return CaptureControl(self.client).capture(self.name).status or {}

    def rows(self) -> list[Any]:
        """What each record tells of its row, in order; tombstones tell nothing."""
        values = [one.value() for one in committed_records(self.bootstrap, self.topic)]
        return [json.loads(value)["after"] for value in values if value]

    def record_keys(self) -> list[bytes | str | None]:
        return [one.key() for one in committed_records(self.bootstrap, self.topic)]

    def obey(self, error: str) -> None:
        """Gives the commands that the error names, but those with a part to be filled in."""
        for command in COMMAND.findall(error):
            if "URL" not in command and "reload" not in command:
                self.cli.run(*shlex.split(command), "--yes")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as server:
        yield server


@pytest.fixture
def shop(bootstrap: str, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    shop = Shop(bootstrap, server)
    yield shop
    if shop.name in CaptureControl(shop.client).captures():
        shop.cli.run("capture", "drop", shop.name, "--yes")
    shop.execute("DROP TABLE orders")


def order(number: int) -> dict[str, Any]:
    return {"id": number, "item": "tea"}


def test_a_table_that_loses_its_key_stops_its_capture_which_goes_on_when_it_has_it_again(
    shop: Shop,
) -> None:
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    shop.execute("INSERT INTO orders VALUES (1, 'tea')")
    shop.add()
    with shop.running():
        eventually(lambda: shop.rows() == [order(1)], what="the first row", within_s=WITHIN_S)
        shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
        shop.execute("INSERT INTO orders VALUES (2, 'tea')")
        eventually(lambda: bool(shop.errors), what="the end of the capture", within_s=WITHIN_S)
    assert isinstance(shop.errors[0], KeyLost)
    told = str(shop.errors[0])
    assert f"public.orders (capture {shop.name}) has lost its primary key" in told
    assert f"`millstream capture reload {shop.name}`" in told
    assert (shop.status()["state"], shop.status()["error"]) == ("failed", told)
    assert shop.rows() == [order(1)]

    shop.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
    with pytest.raises(KeyLost):  # what was written meanwhile is in the log, without a key
        shop.run_once()
    shop.cli.run("capture", "reload", shop.name, "--yes")
    shop.run_once()
    assert sorted(shop.rows()[1:], key=lambda row: row["id"]) == [order(1), order(2)]
    assert None not in shop.record_keys()


def test_a_table_that_has_lost_its_key_is_captured_without_one_in_a_topic_that_is_made_anew(
    shop: Shop,
) -> None:
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    shop.execute("INSERT INTO orders VALUES (1, 'tea')")
    shop.add()
    shop.run_once()
    shop.execute("ALTER TABLE orders DROP CONSTRAINT orders_pkey")
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    with pytest.raises(KeyLost) as lost:
        shop.run_once()
    shop.obey(str(lost.value))
    shop.add()
    shop.run_once()
    assert order(1) in shop.rows()
    assert set(shop.record_keys()) == {None}


def test_a_table_that_gets_a_key_stops_its_capture_until_its_topic_is_made_anew(
    shop: Shop,
) -> None:
    shop.execute("CREATE TABLE orders (id int, item text)")
    shop.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.add()
    with shop.running():
        shop.execute("INSERT INTO orders VALUES (1, 'tea')")
        eventually(lambda: order(1) in shop.rows(), what="the first row", within_s=WITHIN_S)
        shop.execute("ALTER TABLE orders ADD PRIMARY KEY (id)")
        shop.execute("INSERT INTO orders VALUES (2, 'tea')")
        eventually(lambda: bool(shop.errors), what="the end of the capture", within_s=WITHIN_S)
    assert isinstance(shop.errors[0], KeyGained)
    told = str(shop.errors[0])
    assert f"public.orders (capture {shop.name}) has a primary key now" in told
    assert (shop.status()["state"], shop.status()["error"]) == ("failed", told)

    shop.obey(told)
    shop.add()
    shop.run_once()
    assert sorted(shop.rows(), key=lambda row: row["id"]) == [order(1), order(2)]
    assert set(shop.record_keys()) == {b'{"id":1}', b'{"id":2}'}
