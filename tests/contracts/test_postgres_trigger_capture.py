"""PostgreSQL by triggers, against a real server without logical replication."""

import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest
from psycopg import errors

from millstream.capture.change import CapturedTable, Change
from millstream.capture.postgres_triggers.source import PostgresTriggerSource
from millstream.capture.source import SourceInterrupted, SourceLost
from tests.contracts import test_postgres_capture
from tests.contracts.capture_source_contract import (
    CapturedDatabase,
    CaptureSourceContract,
    Followed,
    of_json,
    table_named,
)
from tests.support.postgres_server import PASSWORD, USER, PostgresServer, postgres_server

pytestmark = pytest.mark.full

ROLE = "trigger_owner"  # of its database; no superuser
SCHEMAS = (
    "DROP SCHEMA IF EXISTS millstream_shop CASCADE",
    "DROP SCHEMA public CASCADE",
    "CREATE SCHEMA public",
    "GRANT ALL ON SCHEMA public TO PUBLIC",
)
BY_LAST_CHANGE = (
    "the order of commits is not known: transactions that do not touch the same rows go by their "
    "last change"
)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'".encode())
            db.execute(f"CREATE DATABASE {ROLE} OWNER {ROLE}".encode())
        yield server


class CapturedPostgres:
    """The database of somebody who is no superuser, empty for each test."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._sessions: dict[str, psycopg.Connection[Any]] = {}
        self._sources: list[PostgresTriggerSource] = []
        self.execute(*SCHEMAS)

    @property
    def url(self) -> str:
        return self.url_of(ROLE, PASSWORD)

    def url_of(self, role: str, password: str) -> str:
        return f"postgresql://{role}:{password}@127.0.0.1:{self.server.port}/{ROLE}"

    def session(self, name: str = "main") -> psycopg.Connection[Any]:
        if name not in self._sessions:
            self._sessions[name] = psycopg.connect(self.url, autocommit=True)
        return self._sessions[name]

    def execute(self, *statements: str, session: str = "main") -> None:
        for statement in statements:
            self.session(session).execute(statement.encode())

    def forget_sessions(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.session().execute(query.encode()).fetchall()

    def source(self, *tables: str, known: Iterable[CapturedTable] = ()) -> PostgresTriggerSource:
        source = PostgresTriggerSource(
            self.url, capture="shop", tables=tables, topic_of=lambda name: name, known=known
        )
        self._sources.append(source)
        return source

    def close(self) -> None:
        for source in self._sources:
            source.close()
        self.forget_sessions()


@pytest.fixture
def database(server: PostgresServer) -> Iterator[CapturedPostgres]:
    with closing(CapturedPostgres(server)) as database:
        yield database


class TestPostgresTriggers(CaptureSourceContract):
    TYPES = test_postgres_capture.TestPostgres.TYPES

    @pytest.mark.xfail(strict=True, reason=BY_LAST_CHANGE)
    def test_transactions_come_in_the_order_of_their_commits(
        self, shop: CapturedDatabase, followed: Followed
    ) -> None:
        super().test_transactions_come_in_the_order_of_their_commits(shop, followed)


# --- order, and nothing lost ------------------------------------------------------------------

KEYS = 4
WRITERS = 4
TRANSACTIONS = 60
ACCOUNTS = "CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, amount INTEGER)"
MARKS = "CREATE TABLE marks (id INTEGER PRIMARY KEY)"


@pytest.fixture
def followed(database: CapturedPostgres) -> Iterator[Followed]:
    database.execute(ACCOUNTS, MARKS, "CREATE TABLE other (id INTEGER PRIMARY KEY)")
    source = database.source("accounts", "marks", "other")
    with closing(Followed(database, source, source.prepare())) as followed:
        yield followed


def followed_rows(changes: list[Change]) -> dict[str, Any]:
    """By key; every change must fit to what was there before."""
    rows: dict[str, Any] = {}
    for change in changes:
        key, before, after = str(change.key), of_json(change.before), of_json(change.after)
        assert (change.op == "c") == (key not in rows), (change.op, key)
        if change.op != "c":
            assert rows.pop(key) == before
        if change.op != "d":
            rows[key] = after
    return rows


def accounts_of(database: CapturedPostgres) -> list[dict[str, Any]]:
    rows = database.ask("SELECT id, owner, amount FROM accounts")
    return [{"id": id, "owner": owner, "amount": amount} for id, owner, amount in rows]


def by_id(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["id"]))


def changes_of(followed: Followed, table: str) -> list[Change]:
    return [one for one in followed.changes() if one.table.name == f"public.{table}"]


def a_write(chance: random.Random, writer: int) -> str:
    key, amount = chance.randrange(KEYS), chance.randrange(1000)
    return chance.choice(
        [
            f"INSERT INTO accounts VALUES ({key}, 'w{writer}', {amount})",
            f"INSERT INTO accounts VALUES ({key}, 'w{writer}', {amount}) ON CONFLICT (id) "
            f"DO UPDATE SET owner = excluded.owner, amount = excluded.amount",
            f"UPDATE accounts SET amount = {amount}, owner = 'w{writer}' WHERE id = {key}",
            f"UPDATE accounts SET id = (id + 1) % {KEYS} WHERE id = {key}",
            f"DELETE FROM accounts WHERE id = {key}",
        ]
    )


def write_at_random(url: str, writer: int) -> None:
    """Transactions of several statements; those that clash are rolled back, by somebody."""
    chance = random.Random(writer)
    with psycopg.connect(url, autocommit=True) as db:
        for number in range(TRANSACTIONS):
            with suppress(errors.UniqueViolation, errors.DeadlockDetected), db.transaction():
                if chance.random() < 0.5:  # an early number, long before the first change
                    db.execute("SELECT pg_current_xact_id()")
                for _ in range(chance.randrange(1, 4)):
                    db.execute(a_write(chance, writer).encode())
                    time.sleep(chance.random() / 300)
                if number % 7 == 0:
                    raise psycopg.Rollback


def test_racing_writers_lose_nothing_and_the_order_is_right_for_each_key(
    database: CapturedPostgres, followed: Followed
) -> None:
    writers = [
        threading.Thread(target=write_at_random, args=(database.url, writer))
        for writer in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    followed.read_until(lambda: not any(writer.is_alive() for writer in writers))
    followed.catch_up()
    assert by_id(followed_rows(changes_of(followed, "accounts")).values()) == by_id(
        accounts_of(database)
    )
    assert len(changes_of(followed, "accounts")) > WRITERS * TRANSACTIONS / 2


def test_a_transaction_that_ends_late_is_not_lost_as_it_is_to_who_asks_for_higher_numbers(
    database: CapturedPostgres, followed: Followed
) -> None:
    database.execute("BEGIN", "INSERT INTO accounts VALUES (1, 'late', 1)", session="late")
    database.execute("INSERT INTO accounts VALUES (2, 'soon', 2)")
    followed.catch_up()
    asked = "SELECT coalesce(max(seq), 0) FROM millstream_shop.changes WHERE seq > {}"
    ((highest,),) = database.ask(asked.format(0))
    database.execute("COMMIT", session="late")
    assert [one.key["id"] for one in followed.catch_up()] == [2, 1]
    seqs = "SELECT seq FROM millstream_shop.changes WHERE new LIKE '%late%'"
    ((late,),) = database.ask(seqs)
    assert late < highest, "who goes on after the highest number misses this one"


def test_two_that_changed_one_row_come_in_their_order_while_a_third_still_runs(
    database: CapturedPostgres, followed: Followed
) -> None:
    """By numbers of transactions alone, the later change would come first: below the horizon of
    the one that runs there is only the second of the two."""
    database.execute("INSERT INTO accounts VALUES (1, 'nobody', 0)")
    for session in ("second", "running", "first"):
        database.execute("BEGIN", "SELECT pg_current_xact_id()", session=session)
    database.execute("INSERT INTO other VALUES (1)", session="running")
    for session in ("first", "second"):
        change = f"UPDATE accounts SET owner = '{session}', amount = amount + 1 WHERE id = 1"
        database.execute(change, "COMMIT", session=session)
    followed.catch_up()
    owners = [of_json(one.after)["owner"] for one in changes_of(followed, "accounts")]
    assert owners == ["nobody", "first", "second"]
    database.execute("COMMIT", session="running")
    followed.catch_up()
    assert [one.key for one in changes_of(followed, "other")] == [b'{"id":1}']


# --- what only PostgreSQL has -----------------------------------------------------------------


def reloads(followed: Followed) -> list[str]:
    return [table for transaction, _ in followed.transactions for table in transaction.reloads]


def test_in_the_midst_of_a_batch_not_all_is_there_that_an_older_snapshot_saw(
    database: CapturedPostgres, followed: Followed
) -> None:
    for number in (1, 2):
        database.execute(f"INSERT INTO accounts VALUES ({number}, 'tea', 1)")
    with closing(followed.source.loader()) as loader:
        chunk = loader.read(table_named(followed.source, "accounts"), None, None, 10)
    database.execute("INSERT INTO accounts VALUES (3, 'rye', 1)")
    is_past = followed.source.is_past
    followed.read_until(lambda: len(followed.seen()) == 1)
    assert not is_past(followed.position, chunk.closes_at)
    followed.read_until(lambda: is_past(followed.position, chunk.closes_at))
    assert len(followed.seen()) == 3


def test_a_truncated_table_is_told(database: CapturedPostgres, followed: Followed) -> None:
    database.execute("INSERT INTO accounts VALUES (1, 'a', 1)", "TRUNCATE accounts")
    assert [(one.op, one.key) for one in followed.catch_up()] == [("c", {"id": 1}), ("t", None)]


def test_rows_of_one_statement_are_told_each_with_what_it_was(
    database: CapturedPostgres, followed: Followed
) -> None:
    database.execute(
        "INSERT INTO accounts SELECT i, 'a', i FROM generate_series(1, 50) i",
        "UPDATE accounts SET amount = amount * 10 WHERE id % 2 = 0",
        "UPDATE accounts SET id = id + 100 WHERE id <= 10",
        "DELETE FROM accounts WHERE id > 100",
    )
    followed.catch_up()
    rows = followed_rows(changes_of(followed, "accounts"))
    assert by_id(rows.values()) == by_id(accounts_of(database))


def test_an_upsert_tells_what_it_created_and_what_it_updated(
    database: CapturedPostgres, followed: Followed
) -> None:
    database.execute("INSERT INTO accounts VALUES (1, 'a', 1)")
    database.execute(
        "INSERT INTO accounts VALUES (1, 'b', 2), (2, 'b', 2) "
        "ON CONFLICT (id) DO UPDATE SET owner = excluded.owner"
    )
    assert sorted((one.op, one.key["id"]) for one in followed.catch_up()[1:]) == [
        ("c", 2),
        ("u", 1),
    ]


def test_values_do_not_depend_on_the_session_that_writes_them(database: CapturedPostgres) -> None:
    database.execute(MARKS, "CREATE TABLE t (id INTEGER PRIMARY KEY, at TIMESTAMPTZ, b BYTEA)")
    source = database.source("t", "marks")
    with closing(Followed(database, source, source.prepare())) as followed:
        database.execute(
            "SET DateStyle = 'German'", "SET TimeZone = 'Asia/Tokyo'", "SET bytea_output = 'escape'"
        )
        database.execute("INSERT INTO t VALUES (1, '01.02.2026 12:00:00+00', '\\x00ff')")
        (found,) = followed.catch_up()
    assert found.after == {"id": 1, "at": "2026-02-01T12:00:00Z", "b": "AP8="}


def test_who_writes_needs_no_rights_of_the_capture(
    database: CapturedPostgres, followed: Followed
) -> None:
    database.execute("GRANT INSERT ON accounts TO PUBLIC")
    with psycopg.connect(database.server.url, autocommit=True) as db:
        db.execute("CREATE ROLE writer LOGIN PASSWORD 'w'")
    with psycopg.connect(database.url_of("writer", "w"), autocommit=True) as db:
        db.execute("INSERT INTO accounts VALUES (1, 'a', 1)")
    assert [one.op for one in followed.catch_up()] == ["c"]


def test_a_table_that_is_made_anew_is_loaded_anew_and_captured_again(
    database: CapturedPostgres, followed: Followed
) -> None:
    database.execute("DROP TABLE accounts", ACCOUNTS, "INSERT INTO accounts VALUES (1, 'a', 1)")
    followed.read_until(lambda: reloads(followed) == ["public.accounts"])
    database.execute("INSERT INTO accounts VALUES (2, 'b', 2)")
    assert [one.key for one in followed.catch_up()] == [{"id": 2}]


def test_a_table_that_was_rewritten_is_loaded_anew(
    database: CapturedPostgres, followed: Followed
) -> None:
    database.execute("INSERT INTO accounts VALUES (1, 'a', 1)")
    database.execute("ALTER TABLE accounts ALTER COLUMN amount TYPE NUMERIC(10, 2)")
    followed.read_until(lambda: reloads(followed) == ["public.accounts"])


def test_a_column_that_is_added_or_rows_that_are_truncated_need_no_load(
    database: CapturedPostgres, followed: Followed
) -> None:
    for change in ("TRUNCATE accounts", "ALTER TABLE accounts ADD COLUMN note TEXT"):
        database.execute(change)
        quiets = len(followed.quiets)
        followed.read_until(lambda: len(followed.quiets) > quiets + 2)  # noqa: B023
    assert reloads(followed) == []


def test_what_was_confirmed_is_deleted_and_nothing_else(
    database: CapturedPostgres, followed: Followed
) -> None:
    database.execute("INSERT INTO accounts VALUES (1, 'a', 1)")
    followed.catch_up()
    followed.source.confirm(followed.position)
    database.execute("BEGIN", "INSERT INTO accounts VALUES (2, 'b', 2)", session="late")
    kept = "SELECT count(*) FROM millstream_shop.changes WHERE new LIKE '%a%'"
    followed.read_until(lambda: followed.step() is not None and database.ask(kept) == [(0,)])
    database.execute("COMMIT", session="late")
    assert [one.key["id"] for one in followed.catch_up()] == [1, 2]


def test_what_a_dropped_capture_leaves_is_nothing(
    database: CapturedPostgres, followed: Followed
) -> None:
    followed.catch_up()
    followed.source.drop()
    assert database.ask("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal") == []
    assert database.ask("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'millstream%'") == []
    with pytest.raises(SourceLost, match="millstream capture drop shop"):
        next(followed.source.stream(followed.position))


def test_a_position_of_a_later_time_than_the_database_is_refused(
    followed: Followed,
) -> None:
    with pytest.raises(SourceLost, match="does not know this position"):
        next(followed.source.stream("999999999-0"))


def test_a_server_that_crashed_is_followed_again(
    database: CapturedPostgres, followed: Followed, server: PostgresServer
) -> None:
    database.execute("INSERT INTO accounts VALUES (1, 'a', 1)")
    followed.catch_up()
    position = followed.position
    server.crash()
    with pytest.raises(SourceInterrupted):
        followed.read_until(lambda: False)
    server.start()
    database.forget_sessions()
    database.execute("INSERT INTO accounts VALUES (2, 'b', 2)")
    with closing(Followed(database, database.source("accounts", "marks"), position)) as again:
        assert [one.key for one in again.catch_up()] == [{"id": 2}]


def test_rows_of_an_outbox_are_deleted_by_their_keys(
    database: CapturedPostgres, followed: Followed
) -> None:
    database.execute("INSERT INTO accounts VALUES (1, 'a', 1), (2, 'b', 2)")
    followed.catch_up()
    first, _ = changes_of(followed, "accounts")
    source = followed.source
    assert isinstance(source, PostgresTriggerSource)
    source.delete_rows(first.table, [first.key or b""])
    assert [row["id"] for row in accounts_of(database)] == [2]


def test_what_waits_has_a_size(followed: Followed) -> None:
    assert followed.source.lag(followed.position).retained_bytes is not None


def test_who_captures_need_not_own_the_tables(database: CapturedPostgres) -> None:
    with psycopg.connect(database.url_of(USER, PASSWORD), autocommit=True) as owner:
        owner.execute(ACCOUNTS.encode())
        owner.execute(MARKS.encode())
        with closing(database.source("accounts", "marks")) as source:
            missing = [found.mend for found in source.check() if found.is_fatal]
            for statement in missing:
                owner.execute(statement.encode())
            assert any("GRANT TRIGGER" in statement for statement in missing)
        source = database.source("accounts", "marks")
        with closing(Followed(database, source, source.prepare())) as followed:
            owner.execute("INSERT INTO accounts VALUES (1, 'a', 1)")
            owner.execute("INSERT INTO marks VALUES (0)")
            followed.read_until(lambda: len(followed.transactions) == 2)
            assert [change.op for change in followed.changes()] == ["c"]
            source.drop()
        owner.execute("DELETE FROM accounts")


def test_rows_that_move_between_partitions_are_updates_of_their_table(
    database: CapturedPostgres,
) -> None:
    database.execute(
        MARKS,
        "CREATE TABLE parted (id INTEGER PRIMARY KEY, v TEXT) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high PARTITION OF parted FOR VALUES FROM (100) TO (200)",
    )
    source = database.source("parted", "marks")
    with closing(Followed(database, source, source.prepare())) as followed:
        database.execute(
            "INSERT INTO parted SELECT i, 'x' || i FROM generate_series(90, 110) i",
            "UPDATE parted SET id = id + 50, v = v || '+' WHERE id BETWEEN 92 AND 97",
            "UPDATE parted SET v = v || '!'",
            "DELETE FROM parted WHERE id < 92",
        )
        followed.catch_up()
        rows = followed_rows(changes_of(followed, "parted"))
    found = [{"id": id, "v": v} for id, v in database.ask("SELECT id, v FROM parted")]
    assert by_id(rows.values()) == by_id(found)


def test_whatever_writes_is_told(database: CapturedPostgres) -> None:
    """COPY, MERGE, foreign keys, generated columns, triggers of the application."""
    database.execute(
        MARKS,
        "CREATE TABLE owners (id INTEGER PRIMARY KEY)",
        "CREATE TABLE things (id INTEGER PRIMARY KEY, "
        "owner INTEGER REFERENCES owners ON DELETE CASCADE, "
        "twice INTEGER GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN UPDATE things SET owner = owner WHERE id = NEW.id; RETURN NULL; END'",
        "CREATE TRIGGER again AFTER INSERT ON things FOR EACH ROW EXECUTE FUNCTION again()",
    )
    source = database.source("owners", "things", "marks")
    with closing(Followed(database, source, source.prepare())) as followed:
        with database.session().cursor().copy("COPY owners FROM STDIN") as copy:
            copy.write("1\n2\n3\n")
        database.execute(
            "INSERT INTO things SELECT i, 1 + i % 3 FROM generate_series(1, 9) i",
            "MERGE INTO things USING (VALUES (8), (9), (10)) v (id) ON things.id = v.id "
            "WHEN MATCHED AND things.id = 8 THEN DELETE WHEN MATCHED THEN UPDATE SET owner = 3 "
            "WHEN NOT MATCHED THEN INSERT VALUES (v.id, 2)",
            "DELETE FROM owners WHERE id = 1",
        )
        followed.catch_up()
        newest: dict[int, Any] = {}
        for change in changes_of(followed, "things"):
            newest[of_json(change.key)["id"]] = of_json(change.after)
    kept = sorted((row["id"], row["owner"]) for row in newest.values() if row is not None)
    assert kept == sorted(database.ask("SELECT id, owner FROM things"))
    assert {change.key for change in changes_of(followed, "owners")} == {
        b'{"id":%d}' % number for number in (1, 2, 3)
    }
