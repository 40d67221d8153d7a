"""A capture of MariaDB, its broker and its server are killed at random, under load and while it
loads: in the end every change is in its topic once, and the last value of each key is the row.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from millstream import Broker
from millstream.capture.control import CaptureControl
from millstream.capture.definition import CaptureDefinition
from millstream.capture.runner import CaptureRunner
from tests.faults.test_capture_kills import (
    newest,
    require_each_change_once,
    require_rows_loaded_once,
)
from tests.support.committed_records import committed_records
from tests.support.mariadb_server import MariadbServer, NoMariadbServerError, mariadb_server
from tests.support.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
SEED = 8
KILLS_OF_EACH = 4
ACCOUNTS = 20_000
WITHIN_S = 120.0
TABLES = ("accounts", "ledger")
SCHEMA = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, owner VARCHAR(50), balance INT)",
    "CREATE TABLE ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT, note TEXT)",
    f"INSERT INTO accounts SELECT seq, CONCAT('owner ', seq), 0 FROM seq_1_to_{ACCOUNTS}",
)
FILL = "INSERT INTO ledger (account, note) SELECT seq, 'several' FROM seq_1_to_{count}"


class Writer:
    """Changes the tables in a thread of its own, and goes on when the server is back."""

    def __init__(self, server: MariadbServer) -> None:
        self._server, self._dice = server, random.Random(SEED)
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
                contextlib.suppress(pymysql.err.Error, OSError),
                contextlib.closing(self._server.connect(autocommit=False)) as connection,
            ):
                self._write_on(connection)
            time.sleep(0.02)

    def _write_on(self, connection: "pymysql.Connection[Any]") -> None:
        while not self._ending.is_set():
            with connection.cursor() as cursor:
                for statement in self._statements():
                    cursor.execute(statement)
            if self._dice.random() < 0.1:
                connection.rollback()
            else:
                connection.commit()
            self.commits += 1
            time.sleep(self._dice.uniform(0, 0.05))

    def _statements(self) -> list[str]:
        first = self._dice.randrange(1, ACCOUNTS)
        update = "UPDATE accounts SET balance = balance + 1 WHERE id BETWEEN {} AND {}"
        ways = [
            [FILL.format(count=self._dice.choice([3, 50, 1000]))],
            [update.format(first, first + self._dice.choice([0, 20, 300]))],
            [f"DELETE FROM accounts WHERE id = {first}", FILL.format(count=2)],
            [f"UPDATE IGNORE accounts SET id = id + {ACCOUNTS} WHERE id = {first}"],
            [
                FILL.format(count=5),
                "SAVEPOINT here",
                update.format(first, first + 5),
                "ROLLBACK TO here",
            ],
        ]
        return self._dice.choice(ways)


class Trial:
    """A capture in a process of its own, its broker and its server; each can be killed."""

    def __init__(self, broker: Broker, server: MariadbServer, said: Path) -> None:
        self.broker, self.server, self.said = broker, server, said
        self.client = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        self.capture: subprocess.Popen[bytes]
        with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
            for statement in SCHEMA:
                cursor.execute(statement)
        CaptureControl(self.client).add(
            CaptureDefinition(name="bank", url="${CAPTURED_URL}", tables=TABLES)
        )

    def start_capture(self) -> None:
        environment = os.environ | {"CAPTURED_URL": self.server.url, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.faults.killed_capture"]
        with self.said.open("ab") as output:
            self.capture = subprocess.Popen(
                [*command, self.broker.bootstrap, "bank"], env=environment, stderr=output
            )

    def kill(self, victim: str) -> None:
        match victim:
            case "capture":
                self.end_capture()
                self.start_capture()
            case "broker":
                self.broker.kill()
                self.broker.start()
            case "server":
                self.server.crash()
                self.server.start()

    def end_capture(self) -> None:
        assert self.capture.poll() is None, self.said.read_text()
        self.capture.send_signal(signal.SIGKILL)
        self.capture.wait()

    def wait_for_progress(self) -> None:
        """It goes on by itself, whoever was killed."""
        before = len(self.records("transactions"))
        eventually(
            lambda: len(self.records("transactions")) > before,
            what=f"another transaction in the topics: {self.said.read_text()[-2000:]}",
            within_s=WITHIN_S,
        )

    def catch_up(self) -> None:
        CaptureRunner(self.client, "bank", url=self.server.url).run(once=True)

    def rows(self, table: str) -> dict[int, Any]:
        connection = self.server.connect(cursorclass=pymysql.cursors.DictCursor)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return {row["id"]: row for row in cursor.fetchall()}

    def records(self, table: str) -> list[tuple[Any, Any]]:
        found = committed_records(self.broker.bootstrap, f"bank.{table}")
        return [(json.loads(one.key() or b""), json.loads(one.value() or b"null")) for one in found]


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    try:
        with Broker(tmp_path / "broker") as broker, mariadb_server() as server:
            trial = Trial(broker, server, tmp_path / "capture.txt")
            trial.start_capture()
            yield trial
            if trial.capture.poll() is None:
                trial.end_capture()
    except NoMariadbServerError as error:
        pytest.skip(str(error))


def test_no_kill_loses_or_repeats_a_change(trial: Trial) -> None:
    dice = random.Random(SEED)
    victims = ["capture", "broker", "server"] * KILLS_OF_EACH
    dice.shuffle(victims)
    with Writer(trial.server) as writer:
        for victim in victims:
            if dice.random() < 0.5:
                trial.wait_for_progress()
            time.sleep(dice.uniform(0, 0.5))
            trial.kill(victim)
        trial.wait_for_progress()
    assert writer.commits > 50
    trial.end_capture()
    trial.catch_up()
    records = {table: trial.records(table) for table in TABLES}
    require_each_change_once(records)
    for table in TABLES:
        require_rows_loaded_once(records[table])
        assert newest(records[table]) == trial.rows(table), table
