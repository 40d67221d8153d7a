"""A capture, its broker and its database are killed at random, under load and while it loads: in
the end every change is in its topic once, and the last value of each key is the row.

`ledger` is only appended to, by COPY and by inserts of several rows: all rows of a transaction must
be told, each once. Rows of one COPY share a position in PostgreSQL's log; who goes on from such a
position alone loses some of them. `accounts` has many rows from the start, which are loaded while
they are changed and deleted.
"""

import contextlib
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millstream import Broker
from tests.support.capture_kills import (
    KilledCapture,
    Records,
    SteadyWriter,
    changes_in,
    newest,
    require_each_change_once,
    require_rows_loaded_once,
)
from tests.support.postgres_server import LOGICAL, PostgresServer, postgres_server

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

SEED = 8
KILLS_OF_EACH = 11
ACCOUNTS = 40_000
PAUSE_SECONDS_MAX = 0.06  # between two transactions: what is written must be read again in the end
TABLES = ("accounts", "ledger")
SCHEMA = """
CREATE TABLE accounts (id integer PRIMARY KEY, owner text NOT NULL, balance numeric NOT NULL);
CREATE TABLE ledger (id bigserial PRIMARY KEY, account integer, amount numeric, note text,
                     made_by text DEFAULT pg_current_xact_id()::text);
INSERT INTO accounts SELECT n, 'owner ' || n, 0 FROM generate_series(1, {accounts}) AS n;
"""


class Writes:
    """Transactions of all kinds, one after the other."""

    def __init__(self, url: str) -> None:
        self._url, self._random = url, random.Random(SEED)
        self.commits = 0

    def write_on(self, is_over: Callable[[], bool]) -> None:
        """Until the database is gone."""
        ways = [self._copy, self._insert, self._update, self._delete, self._give_up, self._move]
        with (
            contextlib.suppress(psycopg.OperationalError),
            psycopg.connect(self._url, connect_timeout=10) as connection,
        ):
            while not is_over():
                with contextlib.suppress(Undone), connection.transaction():
                    self._random.choice(ways)(connection)
                self.commits += 1
                time.sleep(self._random.uniform(0, PAUSE_SECONDS_MAX))

    def _copy(self, connection: "psycopg.Connection[Any]") -> None:
        rows = self._random.choice([3, 50, 1_000])
        with connection.cursor().copy("COPY ledger (account, amount, note) FROM STDIN") as copy:
            for number in range(rows):
                copy.write_row((number, f"{number}.50", "copied"))

    def _insert(self, connection: "psycopg.Connection[Any]") -> None:
        connection.execute(
            "INSERT INTO ledger (account, amount, note) "
            "SELECT n, n, 'inserted' FROM generate_series(1, 50) AS n"
        )

    def _update(self, connection: "psycopg.Connection[Any]") -> None:
        first = self._account()
        connection.execute(
            "UPDATE accounts SET balance = balance + 1 WHERE id BETWEEN %s AND %s",
            (first, first + self._random.choice([0, 20, 300])),
        )

    def _delete(self, connection: "psycopg.Connection[Any]") -> None:
        connection.execute("DELETE FROM accounts WHERE id = %s", (self._account(),))

    def _move(self, connection: "psycopg.Connection[Any]") -> None:
        """Another key: the row is deleted and another created, for those who follow."""
        new = ACCOUNTS + self._random.randrange(1_000_000)
        connection.execute(
            "UPDATE accounts SET id = %s WHERE id = %s "
            "AND NOT EXISTS (SELECT 1 FROM accounts WHERE id = %s)",
            (new, self._account(), new),
        )

    def _give_up(self, connection: "psycopg.Connection[Any]") -> None:
        self._insert(connection)
        with contextlib.suppress(Undone), connection.transaction():
            self._update(connection)
            raise Undone
        if self._random.random() < 0.5:
            raise Undone

    def _account(self) -> int:
        return self._random.randrange(1, ACCOUNTS + 1)


class Undone(Exception):
    """The transaction is to be rolled back."""


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as database:
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute(SCHEMA.format(accounts=ACCOUNTS))
        yield database


@pytest.fixture
def capture(database: PostgresServer, tmp_path: Path) -> Iterator[KilledCapture]:
    with Broker(tmp_path / "broker") as broker:
        capture = KilledCapture(broker, database, tmp_path / "capture.txt", tables=TABLES)
        capture.start()
        yield capture
        capture.close()


def test_no_kill_loses_or_repeats_a_change(
    capture: KilledCapture, database: PostgresServer
) -> None:
    writes = Writes(database.url)
    with SteadyWriter(writes.write_on):
        capture.kill_at_random(random.Random(SEED), of_each=KILLS_OF_EACH, waits=0.7)
    assert sum(capture.kills.values()) >= 30
    assert writes.commits > 100
    capture.end()
    capture.catch_up()
    records = {table: capture.records(table) for table in TABLES}
    require_each_change_once(records)
    require_whole_transactions(capture.records("transactions"), records)
    require_each_row_told(records["ledger"], rows(database, "ledger"))
    for table in TABLES:
        require_rows_loaded_once(records[table])
    for table in TABLES:
        assert as_comparable(newest(records[table])) == as_comparable(rows(database, table)), table


def rows(database: PostgresServer, table: str) -> dict[int, Any]:
    with psycopg.connect(database.url) as connection:
        found = connection.execute(f"SELECT id, row_to_json(t)::text FROM {table} AS t")
        return {number: json.loads(text, parse_float=str) for number, text in found}


def require_whole_transactions(boundaries: Records, records: dict[str, Records]) -> None:
    """Every transaction has as many changes as its end tells, without a gap, and one end."""
    places: dict[str, set[int]] = {}
    for table in records.values():
        for change in changes_in(table):
            places.setdefault(change["source"]["commit"], set()).add(change["source"]["seq"])
    ends = [value for _, value in boundaries if value["status"] == "END"]
    counts = {end["commit"]: end["event_count"] for end in ends}
    assert len(counts) == len(ends) == len(boundaries) // 2
    assert {commit: set(range(count)) for commit, count in counts.items()} == places


def require_each_row_told(records: Records, rows: dict[int, Any]) -> None:
    """All rows of a transaction as they were created; or none, if it was before the capture: then
    all were loaded."""
    created = {key["id"] for key, value in records if value["op"] == "c"}
    loaded = {key["id"] for key, value in records if value["op"] == "r"}
    assert created | loaded == set(rows)
    made: dict[int, set[int]] = {}
    for number, row in rows.items():
        made.setdefault(int(row["made_by"]), set()).add(number)
    before = [transaction for transaction, numbers in made.items() if numbers <= loaded - created]
    streamed = [transaction for transaction, numbers in made.items() if numbers <= created]
    assert len(before) + len(streamed) == len(made), "a transaction was told in part"
    assert max(before, default=0) < min(streamed), "a transaction was not told"


def as_comparable(rows: dict[int, Any]) -> dict[int, Any]:
    """Numerics are text in the topic, and numbers with the same digits in PostgreSQL's JSON."""
    return {
        number: {name: str(value) for name, value in row.items()} for number, row in rows.items()
    }
