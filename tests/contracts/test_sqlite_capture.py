"""SQLite by triggers keeps the promises of every change source."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from millstream.base.schema import Scalar
from millstream.capture.change import CapturedTable, Quiet, Transaction
from millstream.capture.source import SourceInterrupted, SourceLost
from millstream.capture.sqlite.source import SqliteSource
from tests.contracts.capture_source_contract import (
    MARKS,
    ORDERS,
    CapturedDatabase,
    CaptureSourceContract,
    Followed,
    Seen,
    TypeCase,
    order,
)

ONE_WRITER = "SQLite lets one transaction write at a time"
TRIGGERS_NAME_COLUMNS = (
    "a trigger knows the columns that were there when it was made: rows that are written before "
    "the capture has looked again are loaded anew; no column is dropped that a trigger names"
)


class SqliteDatabase:
    def __init__(self, path: Path, journal: str) -> None:
        self.path = path
        self._sessions: dict[str, sqlite3.Connection] = {}
        self.execute(f"PRAGMA journal_mode = {journal}")

    def execute(self, *statements: str, session: str = "main") -> None:
        if session not in self._sessions:
            patience_s = 30 if session == "main" else 1  # others wait for one another in vain
            self._sessions[session] = sqlite3.connect(
                self.path, timeout=patience_s, isolation_level=None
            )
        for statement in statements:
            self._sessions[session].execute(statement)

    def source(
        self, *tables: str, known: Iterable[CapturedTable] = (), capture: str = "shop"
    ) -> SqliteSource:
        return SqliteSource(
            self.path,
            capture=capture,
            tables=tables,
            topic_of=lambda table: f"shop.{table.partition('.')[2]}",
            known=known,
        )

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()


@pytest.fixture(params=["WAL", pytest.param("DELETE", marks=pytest.mark.full)])
def database(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SqliteDatabase]:
    with closing(SqliteDatabase(tmp_path / "shop.db", request.param)) as database:
        yield database


class TestSqliteCapture(CaptureSourceContract):
    TYPES: ClassVar[Sequence[TypeCase]] = [
        TypeCase("INTEGER", "9223372036854775807", 2**63 - 1, Scalar.BIGINT),
        TypeCase("BIGINT", "-9223372036854775808", -(2**63), Scalar.BIGINT),
        TypeCase("INTEGER", "NULL", None, Scalar.BIGINT),
        TypeCase("REAL", "0.1", 0.1, Scalar.DOUBLE),
        TypeCase("DOUBLE", "1.7976931348623157e308", 1.7976931348623157e308, Scalar.DOUBLE),
        TypeCase("FLOAT", "5e-324", 5e-324, Scalar.DOUBLE),
        TypeCase("REAL", "3", 3.0, Scalar.DOUBLE),
        TypeCase("REAL", "9e999", "Infinity", Scalar.DOUBLE),
        TypeCase("REAL", "-9e999", "-Infinity", Scalar.DOUBLE),
        TypeCase("TEXT", "'it''s'", "it's", Scalar.STRING),
        TypeCase("TEXT", "'a' || char(0) || 'b'", "a\0b", Scalar.STRING),
        TypeCase("TEXT", "''", "", Scalar.STRING),
        TypeCase("VARCHAR(3)", "12345", "12345", Scalar.STRING),
        TypeCase("BLOB", "x'00ff80'", "AP+A", Scalar.BINARY),
        TypeCase("BLOB", "x''", "", Scalar.BINARY),
        TypeCase("BOOLEAN", "TRUE", True, Scalar.BOOLEAN),
        TypeCase("BOOLEAN", "0", False, Scalar.BOOLEAN),
        TypeCase("DECIMAL(10,2)", "12.50", "12.5", Scalar.STRING),
        TypeCase("NUMERIC", "9007199254740993", "9007199254740993", Scalar.STRING),
        TypeCase("DATE", "'2026-12-31'", "2026-12-31", Scalar.STRING),
        TypeCase("DATETIME", "'2026-12-31 23:59:59.123'", "2026-12-31 23:59:59.123", Scalar.STRING),
        TypeCase("JSON", """'{"a": 1}'""", '{"a": 1}', Scalar.STRING),
        TypeCase("", "'untyped'", "untyped", Scalar.STRING),
        TypeCase("", "7", "7", Scalar.STRING),
    ]

    @pytest.mark.xfail(strict=True, raises=sqlite3.OperationalError, reason=ONE_WRITER)
    def test_transactions_side_by_side_are_not_mixed(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        super().test_transactions_side_by_side_are_not_mixed(shop, followed)

    @pytest.mark.xfail(strict=True, raises=sqlite3.OperationalError, reason=ONE_WRITER)
    def test_transactions_come_in_the_order_of_their_commits(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        super().test_transactions_come_in_the_order_of_their_commits(shop, followed)

    @pytest.mark.xfail(strict=True, reason=TRIGGERS_NAME_COLUMNS)
    def test_a_column_more_or_less_is_a_new_version(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        super().test_a_column_more_or_less_is_a_new_version(shop, followed)

    @pytest.mark.xfail(strict=True, reason=TRIGGERS_NAME_COLUMNS)
    def test_versions_go_on_where_an_earlier_run_ended(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        super().test_versions_go_on_where_an_earlier_run_ended(shop, followed)


# --- what only SQLite has ---------------------------------------------------------------------

WRITERS = 3
# A process that writes transactions of several statements; every fifth is rolled back.
WRITE_AT_RANDOM = """
import random, sqlite3, sys
path, number = sys.argv[1], int(sys.argv[2])
chance = random.Random(number)
db = sqlite3.connect(path, isolation_level=None, timeout=60)
for round in range(80):
    db.execute("BEGIN IMMEDIATE")
    for _ in range(chance.randrange(1, 5)):
        key, amount = chance.randrange(10), chance.randrange(1000)
        db.execute(chance.choice([
            "REPLACE INTO orders VALUES (:key, 'tea', :amount)",
            "UPDATE orders SET amount = :amount WHERE id = :key",
            "DELETE FROM orders WHERE id = :key",
            "UPDATE OR REPLACE orders SET id = :key WHERE amount > :amount AND id = :key - 1",
        ]), {"key": key, "amount": amount})
    db.execute("ROLLBACK" if round % 5 == 0 else "COMMIT")
"""


def test_writers_in_other_processes_are_followed_while_all_is_confirmed_and_forgotten(
    database: SqliteDatabase,
) -> None:
    database.execute(ORDERS, MARKS)
    source = database.source("orders", "marks")
    with closing(Followed(database, source, source.prepare())) as followed:
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITE_AT_RANDOM, database.path, str(number)])
            for number in range(WRITERS)
        ]

        def is_done() -> bool:
            source.confirm(followed.position)
            return all(writer.poll() is not None for writer in writers)

        followed.read_until(is_done)
        followed.catch_up()
        assert [writer.returncode for writer in writers] == [0] * WRITERS
    rows: dict[int, Any] = {}
    for _, op, key, after in followed.seen():
        assert (op == "c") == (key["id"] not in rows), f"{op} of {key}"
        rows.pop(key["id"], None)
        if after is not None:
            rows[key["id"]] = after
    with closing(sqlite3.connect(database.path)) as db:
        found = db.execute("SELECT id, item, amount FROM orders").fetchall()
        kept = db.execute("SELECT count(*) FROM _millstream_shop_changes").fetchone()[0]
    assert sorted(tuple(row.values()) for row in rows.values()) == sorted(found)
    assert kept < len(followed.seen())


def test_a_file_of_an_older_time_than_the_position_is_refused(database: SqliteDatabase) -> None:
    database.execute(ORDERS)
    with closing(database.source("orders")) as source:
        source.prepare()
        with pytest.raises(SourceLost, match="older than that, or another"):
            next(source.stream("1000"))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceInterrupted, match=r"nowhere\.db"):
        SqliteSource(
            tmp_path / "nowhere.db", capture="shop", tables=["t"], topic_of=lambda table: table
        )


def test_a_long_transaction_of_another_does_not_stop_the_stream_from_saying_quiet(
    database: SqliteDatabase,
) -> None:
    database.execute(ORDERS)
    with closing(database.source("orders")) as source:
        stream = source.stream(source.prepare())
        database.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        database.execute("BEGIN IMMEDIATE", "INSERT INTO orders VALUES (2, 'rye', 1)")
        assert isinstance(next(stream), Quiet)
        database.execute("COMMIT")
        items = (item for item in stream if isinstance(item, Transaction))
        assert len(list(next(items).changes)) == 2


def test_captures_of_one_file_leave_the_triggers_of_others_alone(database: SqliteDatabase) -> None:
    database.execute(ORDERS, MARKS)
    shop, other = (database.source("orders", "marks", capture=name) for name in ("shop", "shop_eu"))
    with (
        closing(Followed(database, shop, shop.prepare())) as followed,
        closing(Followed(database, other, other.prepare())) as beside,
    ):
        database.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        assert followed.catch_up() == beside.catch_up() == [order("c", 1, "tea", 1)]
        assert not any(item.reloads for item, _ in followed.transactions + beside.transactions)
        shop.drop()
        database.execute("INSERT INTO orders VALUES (2, 'rye', 1)")
        assert beside.catch_up()[1:] == [order("c", 2, "rye", 1)]


def test_a_table_that_is_put_aside_and_made_anew_is_loaded_anew_and_captured_again(
    database: SqliteDatabase,
) -> None:
    database.execute(ORDERS, MARKS)
    source = database.source("orders", "marks")
    with closing(Followed(database, source, source.prepare())) as followed:
        database.execute("ALTER TABLE orders RENAME TO old_orders")
        followed.catch_up()
        database.execute("INSERT INTO old_orders VALUES (1, 'tea', 1)")
        assert followed.catch_up() == [Seen("orders", "t", None, None)]
        database.execute(ORDERS, "INSERT INTO orders VALUES (2, 'rye', 1)")
        followed.read_until(lambda: followed.transactions[-1][0].reloads == ("main.orders",))
        database.execute("INSERT INTO orders VALUES (3, 'oat', 1)")
        assert followed.catch_up()[1:] == [order("c", 3, "oat", 1)]
