"""A capture by triggers, its database and who writes there are killed at random, while it loads:
every change is in its topic once, and the last value of each key is the row."""

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millstream import Broker
from millstream.base.log_clients import Topics
from millstream.capture.captures_topic import CapturesTopic, make_run_topic
from millstream.capture.control import CaptureControl
from millstream.capture.definition import CaptureDefinition
from tests.support.committed_records import committed_records
from tests.support.postgres_server import postgres_server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SEED = 8
KILLS = 4
ROWS = 5_000
WITHIN_S = 120.0
SCHEMA = "CREATE TABLE ledger (id INTEGER PRIMARY KEY, amount INTEGER, note VARCHAR(20))"
# Writes until it is killed: transactions of several statements, some of them rolled back.
WRITE_SQLITE = """
import random, sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
while True:
    db.execute("BEGIN IMMEDIATE")
    (last,) = db.execute("SELECT max(id) FROM ledger").fetchone()
    db.executemany("INSERT INTO ledger VALUES (?, 1, 'written')",
                   [(last + number,) for number in range(1, random.choice([2, 10, 200]))])
    key = random.randrange(last)
    db.execute("UPDATE ledger SET amount = amount + 1 WHERE id BETWEEN ? AND ?", (key, key + 20))
    db.execute("DELETE FROM ledger WHERE id = ?", (random.randrange(last),))
    db.execute("ROLLBACK" if random.random() < 0.2 else "COMMIT")
    time.sleep(random.random() / 50)
"""
WRITE_POSTGRES = """
import random, psycopg, sys, time
while True:
    try:
        with psycopg.connect(sys.argv[1], connect_timeout=10) as db:
            while True:
                (last,) = db.execute("SELECT max(id) FROM ledger").fetchone()
                db.execute("INSERT INTO ledger SELECT i, 1, 'written' "
                           "FROM generate_series(%s::int, %s) i",
                           (last + 1, last + random.choice([1, 10, 200])))
                key = random.randrange(last)
                db.execute("UPDATE ledger SET amount = amount + 1 WHERE id BETWEEN %s AND %s",
                           (key, key + 20))
                db.execute("DELETE FROM ledger WHERE id = %s", (random.randrange(last),))
                db.rollback() if random.random() < 0.2 else db.commit()
                time.sleep(random.random() / 50)
    except psycopg.OperationalError:
        time.sleep(0.1)
"""


class Trial:
    """A capture and a writer in processes of their own."""

    def __init__(self, broker: Broker, url: str, writing: list[str], said: Path) -> None:
        self.broker, self.url, self.said = broker, url, said
        self.client = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        CaptureControl(self.client).add(
            CaptureDefinition(
                name="bank", url="${CAPTURED_URL}", tables=("ledger",), mode="triggers"
            )
        )
        make_run_topic(Topics(self.client), "bank")
        self._captures = CapturesTopic(self.client, "bank")
        capturing = ["-m", "tests.faults.killed_capture", broker.bootstrap, "bank"]
        self._commands = {"capture": capturing, "writer": ["-c", *writing]}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, who: str) -> None:
        environment = os.environ | {"CAPTURED_URL": self.url, "PYTHONPATH": str(ROOT)}
        with self.said.open("ab") as output:
            self._processes[who] = subprocess.Popen(
                [sys.executable, *self._commands[who]], env=environment, stderr=output
            )

    def end(self, who: str) -> None:
        process = self._processes.pop(who)
        assert process.poll() is None, self.said.read_text()
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill(self, who: str) -> None:
        self.end(who)
        self.start(who)

    def wait_for_progress(self) -> None:
        before = self._position()
        eventually(lambda: self._position() != before, what="progress", within_s=WITHIN_S)

    def _position(self) -> str:
        while self._captures.follow():
            pass
        position = self._captures.book.of("bank").position
        return position.resume if position is not None else ""

    def envelopes(self) -> list[tuple[int, Any]]:
        """Key, and what is said of it; None for a tombstone."""
        return [
            (json.loads(record.key() or b"{}")["id"], json.loads(record.value() or b"null"))
            for record in committed_records(self.broker.bootstrap, "bank.ledger")
        ]

    def close(self) -> None:
        for who in list(self._processes):
            self.end(who)
        self._captures.close()


def newest(envelopes: list[tuple[int, Any]]) -> dict[int, Any]:
    rows: dict[int, Any] = {}
    for key, envelope in envelopes:
        rows.pop(key, None)
        if envelope is not None and envelope["after"] is not None:
            rows[key] = envelope["after"]
    return rows


def survive(
    trial: Trial, victims: Mapping[str, Callable[[], None]], rows: Callable[[], list[Any]]
) -> None:
    chance = random.Random(SEED)
    trial.start("writer")
    trial.start("capture")
    order = [who for who in victims for _ in range(KILLS)]
    chance.shuffle(order)
    for who in order:
        trial.wait_for_progress()
        victims[who]()
    trial.wait_for_progress()
    trial.end("writer")
    wanted = {row[0]: dict(zip(("id", "amount", "note"), row, strict=True)) for row in rows()}
    eventually(
        lambda: newest(trial.envelopes()) == wanted, what="the table's rows", within_s=WITHIN_S
    )
    require_each_once([envelope for _, envelope in trial.envelopes() if envelope is not None])


def require_each_once(envelopes: list[Any]) -> None:
    changes = [one for one in envelopes if one["op"] in ("c", "u", "d")]
    named = Counter((one["source"]["commit"], one["source"]["seq"]) for one in changes)
    assert [name for name, count in named.items() if count > 1] == []
    for op in ("c", "r"):
        told = Counter(one["after"]["id"] for one in envelopes if one["op"] == op)
        assert [key for key, count in told.items() if count > 1] == [], f"{op} more than once"
    assert {one["op"] for one in envelopes} >= {"c", "u", "d", "r"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker") as broker:
        yield broker


def test_a_captured_sqlite_file_survives_kills(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(SCHEMA)
        db.execute("BEGIN")
        first = [(number, 0, "first") for number in range(ROWS)]
        db.executemany("INSERT INTO ledger VALUES (?, ?, ?)", first)
        db.execute("COMMIT")
        trial = Trial(broker, f"sqlite:///{path}", [WRITE_SQLITE, str(path)], tmp_path / "said.txt")
        with contextlib.closing(trial):
            victims = {who: partial(trial.kill, who) for who in ("capture", "writer")}
            survive(trial, victims, lambda: db.execute("SELECT * FROM ledger").fetchall())


def test_a_postgres_captured_by_triggers_survives_kills(broker: Broker, tmp_path: Path) -> None:
    with postgres_server() as server:

        def rows() -> list[Any]:
            with psycopg.connect(server.url) as db:
                return db.execute("SELECT id, amount, note FROM ledger").fetchall()

        def crash() -> None:
            server.crash()
            server.start()

        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(SCHEMA.encode())
            db.execute(
                "INSERT INTO ledger SELECT i, 0, 'first' FROM generate_series(0, %s) i", [ROWS]
            )
        trial = Trial(broker, server.url, [WRITE_POSTGRES, server.url], tmp_path / "said.txt")
        with contextlib.closing(trial):
            survive(trial, {"capture": partial(trial.kill, "capture"), "database": crash}, rows)
