"""Databases that are captured by triggers, from the file or the server into topics.

What the sources promise is in tests/contracts; here the topics have the tables' rows in the end,
however the initial load, writers and changes of a table fall together.
"""

import contextlib
import json
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millstream.capture.control import CaptureControl
from millstream.capture.definition import CaptureDefinition
from millstream.capture.runner import CaptureRunner
from tests.clients.steps import unique_name
from tests.support.approvals import approved
from tests.support.committed_records import committed_records
from tests.support.postgres_server import PostgresServer, postgres_server
from tests.support.waiting import eventually

WITHIN_S = 90.0
ROWS = 3_000
WRITES = 300
ACCOUNTS = "CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner VARCHAR(20), amount INTEGER)"

Rows = dict[int, dict[str, Any]]


class Trial:
    """A capture of `accounts`, from this database into the broker."""

    def __init__(self, bootstrap: str, url: str) -> None:
        self.bootstrap, self.name = bootstrap, unique_name("bank")
        self.client, self.url = {"bootstrap.servers": bootstrap}, url
        kept = url if url.startswith("sqlite") else "postgresql://bank"
        CaptureControl(self.client).add(
            CaptureDefinition(name=self.name, url=kept, tables=("accounts",), mode="triggers")
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        runner = CaptureRunner(
            self.client, self.name, approval=approved(self.client, self.name), url=self.url
        )
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            yield
        finally:
            runner.stop()
            thread.join(WITHIN_S)
        assert not thread.is_alive()

    def newest(self) -> Rows:
        rows: Rows = {}
        for record in committed_records(self.bootstrap, f"{self.name}.accounts"):
            key = json.loads(record.key() or b"null").get("id")  # a truncate has none
            value = record.value()
            after = None if value is None else json.loads(value)["after"]
            rows.pop(key, None)
            if after is not None:
                rows[key] = after
        return rows

    def wait_for(self, rows: Rows) -> None:
        eventually(lambda: self.newest() == rows, what="the table's rows", within_s=WITHIN_S)


def a_write(chance: random.Random) -> str:
    key, amount = chance.randrange(ROWS + 50), chance.randrange(1000)
    return chance.choice(
        [
            f"UPDATE accounts SET amount = {amount} WHERE id = {key}",
            f"DELETE FROM accounts WHERE id = {key}",
            f"INSERT INTO accounts VALUES ({key}, 'new', {amount}) "
            "ON CONFLICT (id) DO UPDATE SET owner = 'again'",
            f"UPDATE accounts SET id = {key + ROWS * 2} WHERE id = {key}",
        ]
    )


def rows_of(columns: list[str], found: list[tuple[Any, ...]]) -> Rows:
    return {row[0]: dict(zip(columns, row, strict=True)) for row in found}


class TestSqlite:
    @pytest.fixture
    def db(self, tmp_path: Path) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(
            sqlite3.connect(tmp_path / "bank.db", isolation_level=None, timeout=60)
        ) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(ACCOUNTS)
            rows = [(number, "first", number) for number in range(ROWS)]
            with db:
                db.execute("BEGIN")
                db.executemany("INSERT INTO accounts VALUES (?, ?, ?)", rows)
            yield db

    @pytest.fixture
    def trial(self, bootstrap: str, tmp_path: Path, db: sqlite3.Connection) -> Trial:
        return Trial(bootstrap, f"sqlite:///{tmp_path / 'bank.db'}")

    def rows(self, db: sqlite3.Connection) -> Rows:
        found = db.execute("SELECT * FROM accounts ORDER BY id")
        return rows_of([column[0] for column in found.description], found.fetchall())

    def test_the_topic_has_the_rows_of_a_table_that_is_written_while_it_is_loaded(
        self, trial: Trial, db: sqlite3.Connection
    ) -> None:
        chance = random.Random(1)
        with trial.running():
            for _ in range(WRITES):
                db.execute(a_write(chance))
            trial.wait_for(self.rows(db))

    def test_a_column_that_is_added_comes_to_all_rows_that_have_a_value_in_it(
        self, trial: Trial, db: sqlite3.Connection
    ) -> None:
        with trial.running():
            trial.wait_for(self.rows(db))
            db.execute("BEGIN")
            db.execute("ALTER TABLE accounts ADD COLUMN note TEXT")
            db.execute("UPDATE accounts SET note = 'unseen' WHERE id < 5")
            db.execute("DELETE FROM accounts WHERE id = 7")
            db.execute("COMMIT")
            trial.wait_for(self.rows(db))

    @pytest.mark.parametrize("is_running", [True, False])
    def test_no_row_is_left_of_a_table_that_is_dropped(
        self, trial: Trial, db: sqlite3.Connection, is_running: bool
    ) -> None:
        with trial.running():
            trial.wait_for(self.rows(db))
            if is_running:
                db.execute("DROP TABLE accounts")
                trial.wait_for({})
        if not is_running:
            db.execute("DROP TABLE accounts")
            with trial.running():
                trial.wait_for({})


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.mark.full
class TestPostgres:
    def rows(self, db: psycopg.Connection[Any]) -> Rows:
        found = db.execute("SELECT * FROM accounts ORDER BY id").fetchall()
        return rows_of(["id", "owner", "amount"], found)

    def test_the_topic_has_the_rows_of_a_table_that_is_written_while_it_is_loaded(
        self, bootstrap: str, server: PostgresServer
    ) -> None:
        chance = random.Random(1)
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute("DROP TABLE IF EXISTS accounts")
            db.execute(ACCOUNTS.encode())
            db.execute(
                "INSERT INTO accounts SELECT i, 'first', i FROM generate_series(0, %s) i", [ROWS]
            )
            trial = Trial(bootstrap, server.url)
            with trial.running():
                for _ in range(WRITES):
                    db.execute(a_write(chance).encode())
                trial.wait_for(self.rows(db))
