"""A capture, its broker and its database are killed at random, under load and while it loads: in
the end every change is in its topic once, and the last value of each key is the row.

`ledger` is only appended to, by COPY and by inserts of several rows: all rows of a transaction must
be told, each once. Rows of one COPY share a position in PostgreSQL's log; who goes on from such a
position alone loses some of them. `accounts` has many rows from the start, which are loaded while
they are changed and deleted.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millstream import Broker
from millstream.base.log_clients import Topics
from millstream.capture.captures_topic import CapturesTopic, make_run_topic
from millstream.capture.control import CaptureControl
from millstream.capture.definition import CaptureDefinition
from millstream.capture.runner import CaptureRunner
from tests.support.committed_records import committed_records
from tests.support.postgres_server import LOGICAL, PostgresServer, postgres_server
from tests.support.thread_dumps import ask_for_threads
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
SEED = 8
KILLS_OF_EACH = 11
ACCOUNTS = 40_000
WITHIN_S = 90.0
PAUSE_SECONDS_MAX = 0.06  # between two transactions: what is written must be read again in the end
TABLES = ("accounts", "ledger")
SCHEMA = """
CREATE TABLE accounts (id integer PRIMARY KEY, owner text NOT NULL, balance numeric NOT NULL);
CREATE TABLE ledger (id bigserial PRIMARY KEY, account integer, amount numeric, note text,
                     made_by text DEFAULT pg_current_xact_id()::text);
INSERT INTO accounts SELECT n, 'owner ' || n, 0 FROM generate_series(1, {accounts}) AS n;
"""


class Writer:
    """Changes the tables in a thread of its own, and goes on when the database is back."""

    def __init__(self, url: str, random: random.Random) -> None:
        self._url, self._random = url, random
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.commits = 0

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._ending.is_set():
            with (
                contextlib.suppress(psycopg.OperationalError),
                psycopg.connect(self._url, connect_timeout=10) as connection,
            ):
                self._write_on(connection)
            time.sleep(0.02)

    def _write_on(self, connection: "psycopg.Connection[Any]") -> None:
        ways = [self._copy, self._insert, self._update, self._delete, self._give_up, self._move]
        while not self._ending.is_set():
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


class Trial:
    """A capture in a process of its own, its broker and its database; each can be killed."""

    def __init__(self, broker: Broker, database: PostgresServer, said: Path) -> None:
        self.broker, self.database, self.said = broker, database, said
        self.client = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        self.kills: Counter[str] = Counter()
        self.capture: subprocess.Popen[bytes]
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute(SCHEMA.format(accounts=ACCOUNTS))
        CaptureControl(self.client).add(
            CaptureDefinition(name="bank", url="${CAPTURED_URL}", tables=TABLES)
        )
        make_run_topic(Topics(self.client), "bank")
        self._captures = CapturesTopic(self.client, "bank")

    def start_capture(self) -> None:
        environment = os.environ | {"CAPTURED_URL": self.database.url, "PYTHONPATH": str(ROOT)}
        with self.said.open("ab") as output:
            self.capture = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.faults.killed_capture",
                    self.broker.bootstrap,
                    "bank",
                ],
                env=environment,
                stderr=output,
            )

    def kill(self, victim: str) -> None:
        self.kills[victim] += 1
        match victim:
            case "capture":
                self.end_capture()
                self.start_capture()
            case "broker":
                self.broker.kill()
                self.broker.start()
            case "database":
                self.database.crash()
                self.database.start()

    def end_capture(self) -> None:
        assert self.capture.poll() is None, self.said.read_text()
        self.capture.send_signal(signal.SIGKILL)
        self.capture.wait()

    def position(self) -> str:
        while self._captures.follow():
            pass
        position = self._captures.book.of("bank").position
        return position.resume if position is not None else ""

    def close(self) -> None:
        self._captures.close()

    def wait_for_progress(self) -> None:
        """It goes on by itself, whoever was killed."""
        before = self.position()
        try:
            eventually(
                lambda: self.position() != before, what="another position", within_s=WITHIN_S
            )
        except AssertionError:
            ask_for_threads(self.capture.pid)
            print(self.said.read_text())
            raise

    def catch_up(self) -> None:
        CaptureRunner(self.client, "bank", url=self.database.url).run(once=True)

    def rows(self, table: str) -> dict[int, Any]:
        with psycopg.connect(self.database.url) as connection:
            found = connection.execute(f"SELECT id, row_to_json(t)::text FROM {table} AS t")
            return {number: json.loads(text, parse_float=str) for number, text in found}

    def records(self, table: str) -> list[tuple[Any, Any]]:
        found = committed_records(self.broker.bootstrap, f"bank.{table}")
        return [(json.loads(one.key() or b""), json.loads(one.value() or b"null")) for one in found]


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    with Broker(tmp_path / "broker") as broker, postgres_server(LOGICAL) as database:
        trial = Trial(broker, database, tmp_path / "capture.txt")
        trial.start_capture()
        yield trial
        if trial.capture.poll() is None:
            trial.end_capture()
        trial.close()


def test_no_kill_loses_or_repeats_a_change(trial: Trial) -> None:
    dice = random.Random(SEED)
    victims = ["capture", "broker", "database"] * KILLS_OF_EACH
    dice.shuffle(victims)
    with Writer(trial.database.url, random.Random(SEED)) as writer:
        for victim in victims:
            if dice.random() < 0.7:
                trial.wait_for_progress()
            time.sleep(dice.uniform(0, 0.5))
            trial.kill(victim)
        trial.wait_for_progress()
    assert sum(trial.kills.values()) >= 30
    assert writer.commits > 100
    trial.end_capture()
    trial.catch_up()
    records = {table: trial.records(table) for table in TABLES}
    require_each_change_once(records)
    require_whole_transactions(trial, records)
    require_each_row_told(records["ledger"], trial.rows("ledger"))
    for table in TABLES:
        require_rows_loaded_once(records[table])
    for table in TABLES:
        assert as_comparable(newest(records[table])) == as_comparable(trial.rows(table)), table


def changes_in(records: list[tuple[Any, Any]]) -> list[dict[str, Any]]:
    """What the database logged: not tombstones, and not what was loaded."""
    return [value for _, value in records if value and value["source"]["txId"] is not None]


def require_each_change_once(records: dict[str, list[tuple[Any, Any]]]) -> None:
    found = [change["source"] for table in records.values() for change in changes_in(table)]
    counted = Counter((one["commit"], one["seq"]) for one in found)
    assert [one for one, count in counted.items() if count > 1] == []


def require_whole_transactions(trial: Trial, records: dict[str, list[tuple[Any, Any]]]) -> None:
    """Every transaction has as many changes as its end tells, without a gap, and one end."""
    places: dict[str, set[int]] = {}
    for table in records.values():
        for change in changes_in(table):
            places.setdefault(change["source"]["commit"], set()).add(change["source"]["seq"])
    boundaries = trial.records("transactions")
    ends = [value for _, value in boundaries if value["status"] == "END"]
    counts = {end["commit"]: end["event_count"] for end in ends}
    assert len(counts) == len(ends) == len(boundaries) // 2
    assert {commit: set(range(count)) for commit, count in counts.items()} == places


def require_each_row_told(records: list[tuple[Any, Any]], rows: dict[int, Any]) -> None:
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


def require_rows_loaded_once(records: list[tuple[Any, Any]]) -> None:
    loaded = Counter(key["id"] for key, value in records if value and value["op"] == "r")
    assert [key for key, count in loaded.items() if count > 1] == []


def newest(records: list[tuple[Any, Any]]) -> dict[int, Any]:
    rows: dict[int, Any] = {}
    for key, value in records:
        if value is None or value["after"] is None:
            rows.pop(key["id"], None)
        else:
            rows[key["id"]] = value["after"]
    return rows


def as_comparable(rows: dict[int, Any]) -> dict[int, Any]:
    """Numerics are text in the topic, and numbers with the same digits in PostgreSQL's JSON."""
    return {
        number: {name: str(value) for name, value in row.items()} for number, row in rows.items()
    }
