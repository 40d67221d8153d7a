"""A capture of MariaDB, its broker and its server are killed at random, under load and while it
loads: in the end every change is in its topic once, and the last value of each key is the row.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from millstream import Broker
from tests.support.capture_kills import (
    KilledCapture,
    SteadyWriter,
    newest,
    require_each_change_once,
    require_rows_loaded_once,
)
from tests.support.mariadb_server import MariadbServer, NoMariadbServerError, mariadb_server

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

SEED = 8
KILLS_OF_EACH = 4
ACCOUNTS = 20_000
TABLES = ("accounts", "ledger")
SCHEMA = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, owner VARCHAR(50), balance INT)",
    "CREATE TABLE ledger (id BIGINT AUTO_INCREMENT PRIMARY KEY, account INT, note TEXT)",
    f"INSERT INTO accounts SELECT seq, CONCAT('owner ', seq), 0 FROM seq_1_to_{ACCOUNTS}",
)
FILL = "INSERT INTO ledger (account, note) SELECT seq, 'several' FROM seq_1_to_{count}"


class Writes:
    """Transactions of all kinds, one after the other."""

    def __init__(self, database: MariadbServer) -> None:
        self._database, self._dice = database, random.Random(SEED)
        self.commits = 0

    def write_on(self, is_over: Callable[[], bool]) -> None:
        """Until the database is gone."""
        with (
            contextlib.suppress(pymysql.err.Error, OSError),
            contextlib.closing(self._database.connect(autocommit=False)) as connection,
        ):
            while not is_over():
                self._write(connection)
                self.commits += 1
                time.sleep(self._dice.uniform(0, 0.05))

    def _write(self, connection: "pymysql.Connection[Any]") -> None:
        with connection.cursor() as cursor:
            for statement in self._statements():
                cursor.execute(statement)
        if self._dice.random() < 0.1:
            connection.rollback()
        else:
            connection.commit()

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


@pytest.fixture
def database() -> Iterator[MariadbServer]:
    with contextlib.ExitStack() as stack:
        try:
            database = stack.enter_context(mariadb_server())
        except NoMariadbServerError as error:
            pytest.skip(str(error))
        with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
            for statement in SCHEMA:
                cursor.execute(statement)
        yield database


@pytest.fixture
def capture(database: MariadbServer, tmp_path: Path) -> Iterator[KilledCapture]:
    with Broker(tmp_path / "broker") as broker:
        capture = KilledCapture(broker, database, tmp_path / "capture.txt", tables=TABLES)
        capture.start()
        yield capture
        capture.close()


def test_no_kill_loses_or_repeats_a_change(capture: KilledCapture, database: MariadbServer) -> None:
    writes = Writes(database)
    with SteadyWriter(writes.write_on):
        capture.kill_at_random(random.Random(SEED), of_each=KILLS_OF_EACH, waits=0.5)
    assert writes.commits > 50
    capture.end()
    capture.catch_up()
    records = {table: capture.records(table) for table in TABLES}
    require_each_change_once(records)
    for table in TABLES:
        require_rows_loaded_once(records[table])
        assert newest(records[table]) == rows(database, table), table


def rows(database: MariadbServer, table: str) -> dict[int, Any]:
    connection = database.connect(cursorclass=pymysql.cursors.DictCursor)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        return {row["id"]: row for row in cursor.fetchall()}
