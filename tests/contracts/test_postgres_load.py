"""The initial load of a real PostgreSQL, between changes of many sessions. What is hard about it:
a commit that waits for a synchronous standby is in the log before any query sees it."""

import json
import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from typing import Any

import psycopg
import pytest

from millstream.capture.load.loading import Loading
from millstream.capture.postgres.source import PostgresSource
from tests.support.load_runner import LoadRunner
from tests.support.postgres_server import LOGICAL, PASSWORD, USER, PostgresServer, postgres_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.full

CAPTURES = count(1)
ROWS = 3_000


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as server:
        yield server


class Shop:
    """One database with a captured table `orders` of so many rows."""

    def __init__(self, server: PostgresServer) -> None:
        self.name = f"load{next(CAPTURES)}"
        self.url = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{server.port}/{self.name}"
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(f"CREATE DATABASE {self.name}".encode())
        self.db = psycopg.connect(self.url, autocommit=True)
        self.db.execute("CREATE TABLE orders (id int PRIMARY KEY, amount int)")
        self.db.execute("INSERT INTO orders SELECT g, 0 FROM generate_series(1, %s) g", [ROWS])

    def source(self, *more: str) -> PostgresSource:
        return PostgresSource(
            self.url, capture=self.name, tables=["orders", *more], topic_of=lambda name: name
        )

    def runner(self, *, chunk_rows: int = 100) -> LoadRunner:
        with closing(self.source()) as source:
            position = source.prepare()
        return LoadRunner(self.source, position=position, chunk_rows=chunk_rows)

    def rows(self) -> dict[int, int]:
        return dict(self.db.execute("SELECT id, amount FROM orders").fetchall())


@pytest.fixture
def shop(server: PostgresServer) -> Iterator[Shop]:
    shop = Shop(server)
    yield shop
    with closing(shop.source()) as source:
        source.drop()
    shop.db.close()


def rows_in(runner: LoadRunner) -> dict[int, int]:
    rows = (json.loads(row) for row in runner.topics.rows().values())
    return {row["id"]: row["amount"] for row in rows}


class Writers:
    """Sessions that insert, update and delete until they are told to stop."""

    def __init__(self, url: str, count: int) -> None:
        self._url, self._is_over = url, threading.Event()
        self.transactions = 0
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(count)]

    def __enter__(self) -> "Writers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(self._url, autocommit=True) as db:
            while not self._is_over.is_set():
                with db.transaction(force_rollback=chance.random() < 0.1):
                    for _ in range(chance.randint(1, 3)):
                        self._change(db, chance)
                self.transactions += 1

    def _change(self, db: psycopg.Connection[Any], chance: random.Random) -> None:
        key = chance.randint(1, ROWS + 50)
        if chance.random() < 0.2:
            db.execute("DELETE FROM orders WHERE id = %s", [key])
        else:
            db.execute(
                "INSERT INTO orders VALUES (%s, 1) ON CONFLICT (id)"
                " DO UPDATE SET amount = orders.amount + 1",
                [key],
            )


def until_followed(runner: LoadRunner, loading: Loading, changes: int) -> None:
    runner.until(lambda: len(runner.topics.changes) > changes, loading)


def settle_down(runner: LoadRunner, loading: Loading, shop: Shop) -> None:
    """Nobody writes any more: what was followed is to be what is there."""
    expected = shop.rows()
    runner.until(lambda: loading.is_done and rows_in(runner) == expected, loading)


def test_every_row_is_loaded_once(shop: Shop) -> None:
    runner = shop.runner()
    with runner.run() as loading:
        runner.until_done(loading)
    loaded = [json.loads(change.key or b"")["id"] for change in runner.topics.changes]
    assert sorted(loaded) == list(range(1, ROWS + 1))


def test_the_topic_equals_the_table_after_a_load_between_the_changes_of_many(shop: Shop) -> None:
    runner = shop.runner()
    with Writers(shop.url, 4) as writers:
        eventually(lambda: writers.transactions > 20, what="they write", within_s=60)
        for changes in (300, 600, 900):  # runs that end anywhere, before one that goes on
            with runner.run() as loading:
                until_followed(runner, loading, changes)
        with runner.run() as loading:
            runner.until_done(loading)
            written = writers.transactions
            loading.reload("public.orders")
            runner.until_done(loading)
            assert writers.transactions > written
    with runner.run() as loading:
        settle_down(runner, loading, shop)


@contextmanager
def standby_that_is_away(shop: Shop) -> Iterator[None]:
    """Commits are in the log and wait; other sessions do not see them."""
    with psycopg.connect(shop.url, autocommit=True) as db:
        db.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        db.execute("SELECT pg_reload_conf()")
        setting = "SHOW synchronous_standby_names"
        eventually(lambda: db.execute(setting).fetchall() == [("nobody",)], what="it is set")
        try:
            yield
        finally:
            db.execute("ALTER SYSTEM RESET synchronous_standby_names")
            db.execute("SELECT pg_reload_conf()")


@contextmanager
def update_that_waits(shop: Shop, key: int) -> Iterator[None]:
    def update() -> None:
        with psycopg.connect(shop.url, autocommit=True) as db:
            db.execute("UPDATE orders SET amount = 77 WHERE id = %s", [key])

    thread = threading.Thread(target=update)
    thread.start()
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    eventually(lambda: bool(shop.db.execute(waiting).fetchall()), what="it waits", within_s=60)
    yield
    thread.join()


def let_it_commit(shop: Shop) -> None:
    shop.db.execute("ALTER SYSTEM RESET synchronous_standby_names")
    shop.db.execute("SELECT pg_reload_conf()")
    eventually(lambda: shop.rows()[ROWS] == 77, what="all see it", within_s=60)


def test_a_commit_that_waits_for_its_standby_is_not_written_over(shop: Shop) -> None:
    runner = shop.runner()
    with runner.run() as loading:
        runner.until(lambda: loading.progress().rows_expected > 0, loading)  # it has begun
        with standby_that_is_away(shop), update_that_waits(shop, ROWS):
            runner.until_done(loading)
            assert shop.rows()[ROWS] == 0  # nobody sees it
            assert rows_in(runner)[ROWS] == 77
            let_it_commit(shop)
        settle_down(runner, loading, shop)


def test_nor_is_one_that_an_earlier_run_has_handed_over(shop: Shop) -> None:
    runner = shop.runner()
    with runner.run() as loading:
        runner.until(lambda: loading.progress().rows > 0, loading)
    begun = dict(runner.states)
    with standby_that_is_away(shop), update_that_waits(shop, ROWS):
        with runner.run() as loading:
            runner.until(lambda: rows_in(runner).get(ROWS) == 77, loading)
        runner.states = begun  # that run was killed before it kept more of the load
        with runner.run() as loading:
            for _ in range(300):  # a read of it would be back by then
                runner.step(loading)
            assert rows_in(runner)[ROWS] == 77
            assert not loading.is_done
            let_it_commit(shop)
            settle_down(runner, loading, shop)


def test_what_an_open_transaction_wrote_to_a_table_before_it_was_added_is_loaded(
    shop: Shop,
) -> None:
    shop.db.execute("CREATE TABLE extra (id int PRIMARY KEY, amount int)")
    runner = shop.runner()
    with runner.run() as loading, psycopg.connect(shop.url) as writer:
        runner.until_done(loading)
        writer.execute("INSERT INTO extra VALUES (-1, 5)")
        with closing(shop.source("extra")) as source:
            source.add_tables(["extra"])
            loading.add(source.tables())
        for _ in range(300):
            runner.step(loading)
        assert not loading.is_done
        writer.commit()
        runner.until_done(loading)
        assert rows_in(runner)[-1] == 5
