"""PostgreSQL's log as a source of changes, against a real server: the contract, and what only
PostgreSQL has."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from typing import Any, NoReturn

import psycopg
import pytest
from psycopg import sql

from millstream.base.schema import DecimalOf, ListOf, Scalar
from millstream.capture.change import CapturedTable, Message
from millstream.capture.postgres import source as source_module
from millstream.capture.postgres.refusals import LoginRefused, SlotBusy, SlotLost
from millstream.capture.postgres.slot import slot_name
from millstream.capture.postgres.source import PostgresSource
from millstream.capture.source import CannotCapture, SourceInterrupted
from tests.contracts.capture_source_contract import (
    WAIT_S,
    CaptureSourceContract,
    Followed,
    Seen,
    TypeCase,
    chunks_of,
    of_json,
    rows_of,
    table_named,
)
from tests.support.breaking_proxy import BreakingProxy
from tests.support.postgres_server import LOGICAL, PASSWORD, USER, PostgresServer, postgres_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.full

ROLES = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as server:
        yield server


class CapturedPostgres:
    """A database in the server, and a capture of it. It is left empty for the next test."""

    name = "shop"

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self._sessions: dict[str, psycopg.Connection[Any]] = {}
        self._sources: list[PostgresSource] = []
        with psycopg.connect(server.url, autocommit=True) as db:
            if not db.execute("SELECT FROM pg_database WHERE datname = 'shop'").fetchall():
                db.execute("CREATE DATABASE shop")

    def url(self, user: str = USER, password: str = PASSWORD, port: int | None = None) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{port or self.server.port}/{self.name}"

    def execute(self, *statements: str, session: str = "main") -> None:
        if session not in self._sessions or self._sessions[session].closed:
            self._sessions[session] = psycopg.connect(self.url(), autocommit=True)
        for statement in statements:
            self._sessions[session].execute(statement.encode())

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url(), autocommit=True) as db:
            return db.execute(query.encode()).fetchall()

    def source(self, *tables: str, known: Iterable[CapturedTable] = ()) -> PostgresSource:
        return self.source_at(self.url(), *tables, known=known)

    def source_at(
        self, url: str, *tables: str, known: Iterable[CapturedTable] = ()
    ) -> PostgresSource:
        source = PostgresSource(
            url, capture=self.name, tables=tables, topic_of=lambda name: name, known=known
        )
        self._sources.append(source)
        return source

    def require(self, version: int, what: str) -> None:
        """Skips the test where the server is older."""
        found = int(self.ask("SHOW server_version_num")[0][0]) // 10000
        if found < version:
            pytest.skip(f"PostgreSQL {found} has not: {what}")

    def forget_sessions(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def close(self) -> None:
        for source in self._sources:
            source.close()
        self.forget_sessions()
        with psycopg.connect(self.url(), autocommit=True) as db:
            _empty(db)


def _empty(db: psycopg.Connection[Any]) -> None:
    """Takes away all that a test has left."""
    for (slot,) in db.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    ).fetchall():
        _drop_slot(db, slot)
    db.execute("DROP EVENT TRIGGER IF EXISTS millstream_rewrites")
    for (publication,) in db.execute("SELECT pubname FROM pg_publication").fetchall():
        db.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(publication)))
    for (schema,) in db.execute(
        "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'"
    ).fetchall():
        db.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))
    db.execute("CREATE SCHEMA public")
    db.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")


def _drop_slot(db: psycopg.Connection[Any], slot: str) -> None:
    """As soon as the server knows that nobody uses it."""

    def is_dropped() -> bool:
        try:
            db.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        except psycopg.errors.ObjectInUse:
            return False
        return True

    eventually(is_dropped, what=f"{slot} to be free", within_s=WAIT_S)


@pytest.fixture
def database(server: PostgresServer) -> Iterator[CapturedPostgres]:
    with closing(CapturedPostgres(server)) as database:
        yield database


class TestPostgres(CaptureSourceContract):
    WITHOUT_KEY = ("ALTER TABLE notes REPLICA IDENTITY FULL",)
    TYPES = (
        TypeCase("smallint", "-32768", -32768, Scalar.SMALLINT),
        TypeCase("integer", "2147483647", 2147483647, Scalar.INT),
        TypeCase("bigint", "-9223372036854775808", -9223372036854775808, Scalar.BIGINT),
        TypeCase("boolean", "true", True, Scalar.BOOLEAN),
        TypeCase("boolean", "false", False, Scalar.BOOLEAN),
        TypeCase("integer", "NULL", None, Scalar.INT),
        TypeCase("numeric(10,2)", "12345678.90", "12345678.90", DecimalOf(10, 2)),
        TypeCase("numeric", "1e-30", "0.000000000000000000000000000001", Scalar.STRING),
        TypeCase("numeric", "'NaN'", "NaN", Scalar.STRING),
        TypeCase("numeric(40,2)", "1", "1.00", Scalar.STRING),
        TypeCase("real", "1e-7", 1e-07, Scalar.FLOAT),
        TypeCase("double precision", "0.1", 0.1, Scalar.DOUBLE),
        TypeCase("double precision", "5e-324", 5e-324, Scalar.DOUBLE),
        TypeCase("double precision", "'NaN'", "NaN", Scalar.DOUBLE),
        TypeCase("double precision", "'-Infinity'", "-Infinity", Scalar.DOUBLE),
        TypeCase(
            "text",
            "E'tab\\t new\\n back\\\\ \"quote\"'",
            'tab\t new\n back\\ "quote"',
            Scalar.STRING,
        ),
        TypeCase("text", "''", "", Scalar.STRING),
        TypeCase("text", "E'\\\\N'", "\\N", Scalar.STRING),
        TypeCase("varchar(5)", "'NULL'", "NULL", Scalar.STRING),
        TypeCase("char(5)", "'ab'", "ab   ", Scalar.STRING),
        TypeCase("name", "'a name'", "a name", Scalar.STRING),
        TypeCase('"char"', "'x'", "x", Scalar.STRING),
        TypeCase("bytea", "'\\x00ff10'", "AP8Q", Scalar.BINARY),
        TypeCase("bytea", "''", "", Scalar.BINARY),
        TypeCase("date", "'2026-02-28'", "2026-02-28", Scalar.DATE),
        TypeCase("date", "'infinity'", "infinity", Scalar.DATE),
        TypeCase("time", "'12:34:56.789'", "12:34:56.789", Scalar.STRING),
        TypeCase("timetz", "'12:34:56+02'", "12:34:56+02", Scalar.STRING),
        TypeCase(
            "timestamp",
            "'2026-01-01 12:00:00.123456'",
            "2026-01-01T12:00:00.123456",
            Scalar.TIMESTAMP_NTZ,
        ),
        TypeCase(
            "timestamptz", "'2026-01-01 13:00:00.5+01'", "2026-01-01T12:00:00.5Z", Scalar.TIMESTAMP
        ),
        TypeCase("timestamptz", "'infinity'", "infinity", Scalar.TIMESTAMP),
        TypeCase("timestamp", "'-infinity'", "-infinity", Scalar.TIMESTAMP_NTZ),
        TypeCase(
            "interval",
            "'1 year 2 mons -3 days 04:05:06.7'",
            "1 year 2 mons -3 days +04:05:06.7",
            Scalar.STRING,
        ),
        TypeCase(
            "uuid",
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            Scalar.STRING,
        ),
        TypeCase("json", "'{\"a\":  1}'", '{"a":  1}', Scalar.STRING),
        TypeCase("jsonb", "'{\"a\":[1.10,null]}'", '{"a": [1.10, null]}', Scalar.STRING),
        TypeCase("pg_lsn", "'16/B374D848'", "16/B374D848", Scalar.STRING),
        TypeCase("oid", "4294967295", 4294967295, Scalar.BIGINT),
        TypeCase("inet", "'192.168.0.1/24'", "192.168.0.1/24", Scalar.STRING),
        TypeCase("money", "'1234.5'", "$1,234.50", Scalar.STRING),
        TypeCase("bit varying", "B'0101'", "0101", Scalar.STRING),
        TypeCase("point", "'(1,2)'", "(1,2)", Scalar.STRING),
        TypeCase("box", "'(1,2),(0,0)'", "(1,2),(0,0)", Scalar.STRING),
        TypeCase("path", "'[(0,0),(1,1)]'", "[(0,0),(1,1)]", Scalar.STRING),
        TypeCase("tsvector", "'a:1 b:2'", "'a':1 'b':2", Scalar.STRING),
        TypeCase("int4range", "'[1,5)'", "[1,5)", Scalar.STRING),
        TypeCase("integer[]", "'{1,NULL,3}'", [1, None, 3], ListOf(Scalar.INT)),
        TypeCase("integer[]", "'{}'", [], ListOf(Scalar.INT)),
        TypeCase(
            "text[]",
            """'{a,"b,c","q\\"x","back\\\\",NULL,"NULL",""}'""",
            ["a", "b,c", 'q"x', "back\\", None, "NULL", ""],
            ListOf(Scalar.STRING),
        ),
        TypeCase("numeric(5,1)[]", "'{1.5,2}'", ["1.5", "2.0"], ListOf(DecimalOf(5, 1))),
        TypeCase(
            "timestamptz[]",
            "'{2026-01-01 00:00:00+00}'",
            ["2026-01-01T00:00:00Z"],
            ListOf(Scalar.TIMESTAMP),
        ),
        TypeCase("bytea[]", "ARRAY['\\x00ff'::bytea]", ["AP8="], ListOf(Scalar.BINARY)),
        TypeCase("boolean[]", "'{t,f}'", [True, False], ListOf(Scalar.BOOLEAN)),
        TypeCase("int4range[]", """'{"[1,5)"}'""", '{"[1,5)"}', Scalar.STRING),
        TypeCase("box[]", "'{(1,1),(0,0)}'", "{(1,1),(0,0)}", Scalar.STRING),
        TypeCase("int2vector", "'1 2'", "1 2", Scalar.STRING),
    )


# --- what only PostgreSQL has -----------------------------------------------------------------


@pytest.fixture
def follow(database: CapturedPostgres) -> Iterator[Callable[..., Followed]]:
    """Prepares a capture of these tables and follows it."""
    opened: list[Followed] = []

    def open_one(*tables: str) -> Followed:
        source = database.source(*tables, "marks")
        opened.append(Followed(database, source, source.prepare()))
        return opened[-1]

    database.execute("CREATE TABLE marks (id INTEGER PRIMARY KEY)")
    yield open_one
    for one in opened:
        one.close()


Follow = Callable[..., Followed]
ITEMS = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT, notes TEXT)"
LONG = "string_agg(md5(n::text), '') FROM generate_series(1, 400) n"  # beyond a page: out of line


def unavailable(followed: Followed) -> list[tuple[str, ...]]:
    return [change.unavailable for change in followed.changes()]


def before(followed: Followed) -> list[Any]:
    return [of_json(change.before) for change in followed.changes()]


def test_a_truncated_table_is_one_change(database: CapturedPostgres, follow: Follow) -> None:
    database.execute(ITEMS, "CREATE TABLE parts (id INTEGER PRIMARY KEY, item INTEGER)")
    followed = follow("items", "parts")
    database.execute("INSERT INTO items VALUES (1, 'tea', '')", "TRUNCATE items, parts")
    assert followed.catch_up()[1:] == [
        Seen("items", "t", None, None),
        Seen("parts", "t", None, None),
    ]


def test_a_long_value_that_did_not_change_is_named_and_left_out(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute(ITEMS, "ALTER TABLE items ALTER notes SET STORAGE EXTERNAL")
    followed = follow("items")
    database.execute(
        f"INSERT INTO items SELECT 1, 'tea', {LONG}",
        "UPDATE items SET name = 'rye'",
        "UPDATE items SET notes = 'short'",
    )
    created, renamed, shortened = followed.catch_up()
    assert len(created.after["notes"]) > 8192
    assert renamed.after == {"id": 1, "name": "rye"}
    assert shortened.after == {"id": 1, "name": "rye", "notes": "short"}
    assert unavailable(followed) == [(), ("notes",), ()]


def test_with_a_full_identity_nothing_is_left_out_and_the_old_row_is_told(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute(ITEMS, "ALTER TABLE items ALTER notes SET STORAGE EXTERNAL")
    database.execute("ALTER TABLE items REPLICA IDENTITY FULL")
    followed = follow("items")
    database.execute(
        f"INSERT INTO items SELECT 1, 'tea', {LONG}",
        "UPDATE items SET name = 'rye'",
        "UPDATE items SET id = 2, notes = NULL",
        "DELETE FROM items",
    )
    rows = followed.catch_up()
    assert [(row.op, row.key) for row in rows] == [
        ("c", {"id": 1}),
        ("u", {"id": 1}),
        ("d", {"id": 1}),
        ("c", {"id": 2}),
        ("d", {"id": 2}),
    ]
    assert rows[1].after["notes"] == rows[0].after["notes"]
    assert unavailable(followed) == [()] * 5
    assert before(followed) == [
        None,
        {**rows[0].after},
        {**rows[1].after},
        None,
        {"id": 2, "name": "rye", "notes": None},
    ]


def test_the_default_identity_tells_the_old_key_where_it_is_needed(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute(ITEMS)
    followed = follow("items")
    database.execute(
        "INSERT INTO items VALUES (1, 'tea', '')",
        "UPDATE items SET name = 'rye'",
        "UPDATE items SET id = 2",
        "DELETE FROM items",
    )
    followed.catch_up()
    assert before(followed) == [None, None, {"id": 1}, None, {"id": 2}]


def test_an_index_as_identity_is_the_key(database: CapturedPostgres, follow: Follow) -> None:
    database.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, b TEXT NOT NULL, a TEXT NOT NULL, n INTEGER)",
        "CREATE UNIQUE INDEX by_name ON items (a, b) INCLUDE (n)",
        "ALTER TABLE items REPLICA IDENTITY USING INDEX by_name",
    )
    followed = follow("items")
    database.execute(
        "INSERT INTO items VALUES (1, 'x', 'y', 5)",
        "UPDATE items SET n = 6",
        "UPDATE items SET b = 'z'",
        "DELETE FROM items",
    )
    assert [(row.op, row.key) for row in followed.catch_up()] == [
        ("c", {"a": "y", "b": "x"}),
        ("u", {"a": "y", "b": "x"}),
        ("d", {"a": "y", "b": "x"}),
        ("c", {"a": "y", "b": "z"}),
        ("d", {"a": "y", "b": "z"}),
    ]
    assert followed.changes()[0].key == b'{"a":"y","b":"x"}'


def test_a_long_key_that_did_not_change_is_still_the_key(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.require(15, "long keys in all of its releases")
    database.execute("CREATE TABLE items (id TEXT PRIMARY KEY, n INTEGER, filler TEXT)")
    database.execute("ALTER TABLE items ALTER id SET STORAGE EXTERNAL")
    followed = follow("items")
    database.execute(
        "INSERT INTO items SELECT repeat('k', 2600), 1, repeat(md5('x'), 50)",
        "UPDATE items SET n = 2",
    )
    assert [(row.op, row.key) for row in followed.catch_up()] == [
        ("c", {"id": "k" * 2600}),
        ("u", {"id": "k" * 2600}),
    ]


def test_types_of_the_database_itself_arrive(database: CapturedPostgres, follow: Follow) -> None:
    database.execute(
        "CREATE TYPE mood AS ENUM ('so so', 'happy')",
        "CREATE TYPE place AS (x INTEGER, note TEXT)",
        "CREATE DOMAIN amount AS numeric(8,2) CHECK (value > 0)",
        "CREATE DOMAIN amounts AS integer[]",
        "CREATE TABLE items (id INTEGER PRIMARY KEY, m mood, ms mood[], p place, a amount,"
        " many amounts, deep INTEGER[], low INTEGER[], ps place[], ds amount[])",
    )
    followed = follow("items")
    database.execute(
        "INSERT INTO items VALUES (1, 'so so', '{happy,\"so so\"}', '(1,\"a,b\")', 12.5,"
        " '{1,2}', '{{1,2},{3,4}}', '[0:1]={7,8}', ARRAY[(1,'x')::place], '{1.5}')"
    )
    (row,) = followed.catch_up()
    assert row.after == {
        "id": 1,
        "m": "so so",
        "ms": ["happy", "so so"],
        "p": '(1,"a,b")',
        "a": "12.50",
        "many": [1, 2],
        "deep": "{{1,2},{3,4}}",
        "low": "[0:1]={7,8}",
        "ps": '{"(1,x)"}',
        "ds": ["1.50"],
    }
    types = {column.name: column.type for column in followed.changes()[0].table.columns}
    assert types["ms"] == ListOf(Scalar.STRING)
    assert types["a"] == DecimalOf(8, 2)
    assert types["many"] == ListOf(Scalar.INT)
    assert types["ds"] == ListOf(DecimalOf(8, 2))
    assert types["p"] == types["ps"] == Scalar.STRING


def test_types_of_newer_servers_arrive(database: CapturedPostgres, follow: Follow) -> None:
    database.require(15, "other scales, infinite numerics and multiranges")
    database.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, n numeric, rough numeric(5,-2),"
        " fine numeric(2,4), many int4multirange)",
    )
    followed = follow("items")
    database.execute(
        "INSERT INTO items VALUES (1, '-Infinity', 12345, 0.0012, '{[1,5),[7,9)}')",
    )
    (row,) = followed.catch_up()
    assert row.after == {
        "id": 1,
        "n": "-Infinity",
        "rough": "12300",
        "fine": "0.0012",
        "many": "{[1,5),[7,9)}",
    }
    (_, *columns) = followed.changes()[0].table.columns
    assert {column.type for column in columns} == {Scalar.STRING}


def test_times_before_christ_and_far_away_keep_their_text(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, d date, t timestamptz)")
    followed = follow("items")
    database.execute(
        "INSERT INTO items VALUES (1, '0044-03-15 BC', '0044-03-15 12:00:00+00 BC')",
        "INSERT INTO items VALUES (2, '12026-01-01', '12026-01-01 12:00:00+00')",
    )
    assert [(row.after["d"], row.after["t"]) for row in followed.catch_up()] == [
        ("0044-03-15 BC", "0044-03-15T12:00:00Z BC"),
        ("12026-01-01", "12026-01-01T12:00:00Z"),
    ]


def test_a_column_of_another_type_is_a_new_version_and_a_reload(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.require(14, "messages in the stream")
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, n INTEGER)")
    followed = follow("items")
    database.execute(
        "INSERT INTO items VALUES (1, 1)",
        "ALTER TABLE items ALTER n TYPE numeric(8,2)",
        "INSERT INTO items VALUES (2, 1.5)",
    )
    assert [row.after["n"] for row in followed.catch_up()] == [1, "1.50"]
    types = [change.table.columns[1].type for change in followed.changes()]
    assert types == [Scalar.INT, DecimalOf(8, 2)]
    assert [change.table.version for change in followed.changes()] == [1, 2]
    assert reloads(followed) == ["public.items"]


def test_a_table_whose_rows_changed_without_a_word_is_to_be_loaded_anew(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.require(14, "messages in the stream")
    database.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)")
    followed = follow("items")
    database.execute(
        "INSERT INTO items VALUES (1)",
        "ALTER TABLE items ADD COLUMN empty INTEGER",
        "ALTER TABLE items ADD COLUMN plain INTEGER DEFAULT 7",  # old rows have it, unwritten
        "ALTER TABLE items ADD COLUMN key uuid DEFAULT gen_random_uuid()",  # rewritten
        "BEGIN",
        "SAVEPOINT one",
        "ALTER TABLE items ADD COLUMN other uuid DEFAULT gen_random_uuid()",
        "ROLLBACK TO SAVEPOINT one",
        "COMMIT",
    )
    followed.catch_up()
    assert reloads(followed) == ["public.items"] * 2


def reloads(followed: Followed) -> list[str]:
    return [table for transaction, _ in followed.transactions for table in transaction.reloads]


def test_a_message_that_an_application_logs_is_handed_over_in_its_place(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.require(14, "messages in the stream")
    database.execute(ITEMS)
    followed = follow("items")
    database.execute(
        "BEGIN",
        "INSERT INTO items VALUES (1, 'tea', '')",
        "SELECT pg_logical_emit_message(true, 'outbox:orders', 'paid')",
        "INSERT INTO items VALUES (2, 'rye', '')",
        "COMMIT",
        "SELECT pg_logical_emit_message(false, 'outbox:orders', 'no transaction')",
        "BEGIN",
        "SELECT pg_logical_emit_message(true, 'outbox:orders', 'rolled back')",
        "ROLLBACK",
    )
    followed.catch_up()
    (items, _) = followed.items
    assert [type(one).__name__ for one in items] == ["Change", "Message", "Change"]
    assert items[1] == Message("outbox:orders", b"paid")


def test_partitions_are_one_table(database: CapturedPostgres, follow: Follow) -> None:
    database.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT) PARTITION BY RANGE (id)",
        "CREATE TABLE items_low PARTITION OF items FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE items_high (name TEXT, id INTEGER NOT NULL)",
        "ALTER TABLE items ATTACH PARTITION items_high FOR VALUES FROM (10) TO (20)",
    )
    followed = follow("items")
    database.execute(
        "INSERT INTO items VALUES (1, 'tea'), (11, 'rye')",
        "UPDATE items SET id = 12 WHERE id = 1",  # moves
        "DELETE FROM items_high WHERE id = 11",
    )
    assert [(row.table, row.op, row.key) for row in followed.catch_up()] == [
        ("items", "c", {"id": 1}),
        ("items", "c", {"id": 11}),
        ("items", "d", {"id": 1}),
        ("items", "c", {"id": 12}),
        ("items", "d", {"id": 11}),
    ]
    with closing(followed.source.loader()) as loader:
        table = table_named(followed.source, "items")
        assert rows_of(loader, table) == [{"id": 12, "name": "tea"}]
        assert loader.rows_estimate(table) >= 0


def test_a_generated_column_is_the_same_in_the_stream_and_in_a_load(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute(
        "CREATE TABLE items (id INTEGER PRIMARY KEY, n INTEGER,"
        " twice INTEGER GENERATED ALWAYS AS (n * 2) STORED)"
    )
    followed = follow("items")
    database.execute("INSERT INTO items VALUES (1, 4)")
    (row,) = followed.catch_up()
    with closing(followed.source.loader()) as loader:
        assert rows_of(loader, table_named(followed.source, "items")) == [row.after]
    is_published = database.ask("SHOW server_version_num")[0][0] >= "180000"
    assert row.after == {"id": 1, "n": 4, **({"twice": 8} if is_published else {})}


def test_names_that_need_quotes_are_captured(database: CapturedPostgres, follow: Follow) -> None:
    database.execute(
        'CREATE SCHEMA "Sales 1"',
        'CREATE TABLE "Sales 1"."Big %s ""x"" {}" ("the %s ""id""" INTEGER PRIMARY KEY, "é" TEXT)',
    )
    followed = follow('Sales 1.Big %s "x" {}')
    database.execute('INSERT INTO "Sales 1"."Big %s ""x"" {}" VALUES (1, \'a\')')
    (row,) = followed.catch_up()
    assert (row.key, row.after) == ({'the %s "id"': 1}, {'the %s "id"': 1, "é": "a"})
    with closing(followed.source.loader()) as loader:
        (chunk, _) = chunks_of(loader, followed.changes()[0].table, 1)
    assert [of_json(after) for _, after in chunk.rows] == [row.after]


def test_a_big_transaction_leaves_out_what_was_rolled_back_inside_of_it(
    database: CapturedPostgres, follow: Follow
) -> None:
    """It comes while it runs: more than the server keeps in memory (64 kB here)."""
    database.execute(ITEMS)
    followed = follow("items")
    many = "INSERT INTO items SELECT n, 'tea', repeat('x', 50) FROM generate_series({}, {}) n"
    database.execute(
        "BEGIN",
        many.format(1, 3000),
        "SAVEPOINT a",
        many.format(3001, 6000),
        "SAVEPOINT b",
        many.format(6001, 9000),
        "ROLLBACK TO SAVEPOINT a",
        many.format(9001, 12000),
        "SAVEPOINT c",
        "ALTER TABLE items ADD COLUMN extra INTEGER",
        "INSERT INTO items VALUES (20000, 'rye', '', 1)",
        "ROLLBACK TO SAVEPOINT c",
        many.format(12001, 15000),
        "COMMIT",
    )
    followed.catch_up()
    (whole,) = followed.whole_transactions()
    expected = [*range(1, 3001), *range(9001, 15001)]
    assert [one.key["id"] for one in whole] == expected
    assert {len(one.after) for one in whole} == {3}


def test_big_transactions_side_by_side_do_not_mix(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute(ITEMS)
    followed = follow("items")
    many = "INSERT INTO items SELECT n, 'tea', repeat('x', 50) FROM generate_series({}, {}) n"
    for session in "abc":
        database.execute("BEGIN", session=session)
    for part in range(3):
        for number, session in enumerate("abc"):
            start = 100_000 * number + 2000 * part
            database.execute(many.format(start, start + 1999), session=session)
    database.execute("COMMIT", session="b")
    database.execute("ROLLBACK", session="c")
    database.execute("COMMIT", session="a")
    followed.catch_up()
    keys = [[one.key["id"] for one in whole] for whole in followed.whole_transactions()]
    assert keys == [list(range(100_000, 106_000)), list(range(6000))]


def test_rows_of_one_copy_are_told_apart_from_any_position(
    database: CapturedPostgres, follow: Follow
) -> None:
    """They share a place in the log. Whoever goes on after the first of two gets the second."""
    database.execute(ITEMS)
    followed = follow("items")
    start = followed.position
    for number in (0, 100):
        database.execute(
            f"INSERT INTO items SELECT n, '', '' FROM generate_series({number}, {number + 49}) n"
        )
    followed.catch_up()
    (first, _), (second, changes), *_ = followed.transactions
    followed.close()
    for position, changed in ((start, 100), (first.resume, 50), (second.resume, 0)):
        with closing(Followed(database, database.source("items", "marks"), position)) as again:
            assert len(again.catch_up()) == changed
    assert len(changes) == 50


def test_a_commit_that_waits_for_a_standby_is_streamed_but_not_seen(
    database: CapturedPostgres, follow: Follow
) -> None:
    """The order of the log is not the order in which transactions become visible."""
    database.execute(ITEMS)
    followed = follow("items")
    database.execute("SET synchronous_commit = local", session="quick")
    _set_standby(database, "nobody_there")
    try:
        with ThreadPoolExecutor(1) as waiting:
            insert = "INSERT INTO items VALUES (1, 'tea', '')"
            committed = waiting.submit(database.execute, insert, session="waits")
            followed.read_until(lambda: len(followed.seen()) == 1)
            (transaction, _) = followed.transactions[0]
            with closing(followed.source.loader()) as loader:
                chunk = loader.read(table_named(followed.source, "items"), None, None, 10)
            assert (list(chunk.rows), chunk.sees(transaction)) == ([], False)
            assert not committed.done()
            _set_standby(database, "")
            committed.result(60)
    finally:
        _set_standby(database, "")
    with closing(followed.source.loader()) as loader:
        chunk = loader.read(table_named(followed.source, "items"), None, None, 10)
    assert (len(chunk.rows), chunk.sees(transaction)) == (1, True)


def _set_standby(database: CapturedPostgres, name: str) -> None:
    database.execute(
        "SET synchronous_commit = local",
        f"ALTER SYSTEM SET synchronous_standby_names = '{name}'",
        "SELECT pg_reload_conf()",
        session="settings",
    )
    shown = [(name,)]
    eventually(lambda: database.ask("SHOW synchronous_standby_names") == shown, what=name)
    # Commits wait from when the checkpointer has read the settings, which it does before its work.
    database.execute("CHECKPOINT", session="settings")


def test_a_chunk_of_a_quiet_server_closes(database: CapturedPostgres, follow: Follow) -> None:
    """Even where the end of the log is the work of a transaction that still runs."""
    database.execute(ITEMS)
    followed = follow("items")
    database.execute("BEGIN", "INSERT INTO items VALUES (1, 'tea', '')", session="open")
    with closing(followed.source.loader()) as loader:
        chunk = loader.read(table_named(followed.source, "items"), None, None, 10)
    flushed = database.ask("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    assert followed.source.is_past(flushed, chunk.closes_at)
    followed.read_until(lambda: followed.source.is_past(followed.position, chunk.closes_at))
    assert followed.seen() == []


def test_a_table_that_changes_while_it_is_loaded_is_read_as_it_is(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute(ITEMS, "INSERT INTO items VALUES (1, 'tea', 'x')")
    followed = follow("items")
    old = table_named(followed.source, "items")
    database.execute("ALTER TABLE items DROP COLUMN notes")
    with closing(followed.source.loader()) as loader:
        chunk = loader.read(old, None, None, 10)
    assert [of_json(after) for _, after in chunk.rows] == [{"id": 1, "name": "tea"}]
    assert chunk.table.version == old.version + 1


def test_the_log_of_other_tables_is_let_go(database: CapturedPostgres, follow: Follow) -> None:
    """An idle capture does not make the server keep its log for ever."""
    database.execute(ITEMS, "CREATE TABLE other (x TEXT)")
    followed = follow("items")
    followed.catch_up()
    position = followed.position
    database.execute("INSERT INTO other SELECT md5(n::text) FROM generate_series(1, 10000) n")
    grown = database.ask("SELECT pg_current_wal_lsn()::text")[0][0]
    followed.read_until(lambda: followed.source.is_past(followed.position, grown))
    assert followed.source.is_past(followed.position, position)
    followed.source.confirm(followed.position)
    asked = f"SELECT confirmed_flush_lsn >= '{grown}' FROM pg_replication_slots WHERE database = "
    eventually(
        lambda: database.ask(f"{asked}'{database.name}'") == [(True,)], what="the slot to move"
    )
    lag = followed.source.lag(followed.position)
    assert lag.bytes is not None
    assert lag.retained_bytes is not None


def test_lag_counts_what_the_server_keeps(database: CapturedPostgres, follow: Follow) -> None:
    database.execute(ITEMS)
    followed = follow("items")
    before_it = followed.source.lag(followed.position)
    database.execute("INSERT INTO items SELECT n, 'x', 'y' FROM generate_series(1, 10000) n")
    after_it = followed.source.lag(followed.position)
    assert after_it.bytes is not None
    assert before_it.bytes is not None
    assert after_it.bytes > before_it.bytes + 500_000
    assert (after_it.retained_bytes or 0) >= after_it.bytes
    assert after_it.retained_bytes_max is None


# --- what goes wrong --------------------------------------------------------------------------


def test_a_slot_that_is_gone_is_told_with_the_way_out(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute(ITEMS)
    followed = follow("items")
    followed.catch_up()
    followed.close()
    with psycopg.connect(database.url(), autocommit=True) as db:
        _drop_slot(db, slot_name(database.name))
    with pytest.raises(
        SlotLost, match=f"is gone.*millstream capture reload {database.name}`"
    ) as lost:
        next(database.source("items").stream(followed.position))
    assert lost.value.position == followed.position
    assert database.ask("SELECT count(*) FROM pg_replication_slots WHERE slot_name = "
                        f"'{slot_name(database.name)}'") == [(0,)]  # fmt: skip


def test_a_slot_that_was_dropped_and_made_again_is_not_taken_for_the_old_one(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute(ITEMS)
    followed = follow("items")
    followed.catch_up()
    followed.close()
    database.execute("INSERT INTO items VALUES (1, 'lost', '')")
    slot = slot_name(database.name)
    with psycopg.connect(database.url(), autocommit=True) as db:
        _drop_slot(db, slot)
        db.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    with pytest.raises(SlotLost, match="moved its replication slot"):
        next(database.source("items").stream(followed.position))


def test_a_slot_that_is_in_use_names_the_process(
    database: CapturedPostgres, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "SLOT_BUSY_TRIES", 3)
    database.execute(ITEMS)
    followed = follow("items")
    followed.catch_up()
    with pytest.raises(SlotBusy) as busy:
        next(database.source("items").stream(followed.position))
    pid = database.ask(
        f"SELECT active_pid FROM pg_replication_slots WHERE database = '{database.name}'"
    )[0][0]
    assert busy.value.pid == pid
    assert f"pg_terminate_backend({pid})" in str(busy.value)


def test_a_run_that_was_cut_off_leaves_the_slot_to_the_next(
    database: CapturedPostgres, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "SLOT_BUSY_TRIES", 600)
    database.execute(ITEMS)
    followed = follow("items")
    followed.catch_up()
    position = followed.position
    second = Followed(database, database.source("items", "marks"), position)
    refused = times_that_a_slot_was_in_use(database)
    with closing(second), ThreadPoolExecutor(1) as other:
        caught_up = other.submit(second.catch_up)
        eventually(
            lambda: times_that_a_slot_was_in_use(database) > refused,
            what="a second run that meets the slot in use",
            within_s=WAIT_S,
        )
        followed.close()
        assert caught_up.result(WAIT_S) == []


def times_that_a_slot_was_in_use(database: CapturedPostgres) -> int:
    """As the server logs it."""
    log = (database.server.directory / "server.log").read_text(encoding="utf-8")
    return log.count("is active for PID")


def test_a_publication_that_is_gone_is_told_and_made_again_it_is_of_no_use(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute(ITEMS)
    followed = follow("items")
    followed.catch_up()
    database.execute(f"DROP PUBLICATION {slot_name(database.name)}")
    database.execute("INSERT INTO items VALUES (1, 'tea', '')")
    with pytest.raises(SlotLost, match=f"publication.*gone.*capture reload {database.name}"):
        followed.catch_up()
    with pytest.raises(SlotLost, match="publication"):
        next(database.source("items").stream(followed.position))
    database.execute(f"CREATE PUBLICATION {slot_name(database.name)} FOR TABLE items, marks")
    followed.start_again()
    with pytest.raises(SlotLost, match="publication"):
        followed.catch_up()


def test_a_server_that_stops_interrupts_and_goes_on(server: PostgresServer) -> None:
    with closing(CapturedPostgres(server)) as database:
        database.execute(ITEMS, "CREATE TABLE marks (id INTEGER PRIMARY KEY)")
        source = database.source("items", "marks")
        with closing(Followed(database, source, source.prepare())) as followed:
            database.execute("INSERT INTO items VALUES (1, 'tea', '')")
            followed.catch_up()
            for stop in (server.stop, server.crash):
                try:
                    with ThreadPoolExecutor(1) as other:
                        other.submit(stop)
                        with pytest.raises(SourceInterrupted):
                            _follow_and_confirm(followed)
                    with pytest.raises(SourceInterrupted):
                        next(source.stream(followed.position))
                finally:
                    server.start()
                followed.start_again()
                database.forget_sessions()
                database.execute("INSERT INTO items SELECT max(id) + 1, 'rye', '' FROM items")
                followed.catch_up()
            assert [row.key["id"] for row in followed.seen()] == [1, 2, 3]


def _follow_and_confirm(followed: Followed) -> NoReturn:
    """A server that stops waits until all is confirmed."""
    while True:
        followed.step()
        followed.source.confirm(followed.position)


def test_a_network_that_is_cut_interrupts_and_the_next_stream_goes_on(
    database: CapturedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "SLOT_BUSY_TRIES", 600)
    database.execute(ITEMS, "CREATE TABLE marks (id INTEGER PRIMARY KEY)")
    proxy = BreakingProxy(("127.0.0.1", database.server.port))
    source = database.source_at(database.url(port=proxy.port), "items", "marks")
    with closing(proxy), closing(Followed(database, source, source.prepare())) as followed:
        database.execute("INSERT INTO items VALUES (1, 'tea', '')")
        followed.catch_up()
        proxy.arm(requests=0, when="before")
        with pytest.raises(SourceInterrupted):
            _follow_and_confirm(followed)
        database.execute("INSERT INTO items VALUES (2, 'rye', '')")
        followed.start_again()
        assert [row.key["id"] for row in followed.catch_up()] == [1, 2]


def test_a_password_that_was_changed_is_told_as_such(database: CapturedPostgres) -> None:
    with pytest.raises(LoginRefused, match="refuses the login"):
        database.source_at(database.url(password="old"), "items").check()
    source = database.source_at(database.url(password="old"), "items")
    with pytest.raises(LoginRefused, match="credentials"):
        next(source.stream("0/0"))


def test_a_server_that_is_not_there_interrupts(database: CapturedPostgres) -> None:
    source = database.source_at("postgresql://mill@127.0.0.1:1/shop", "items")
    with pytest.raises(SourceInterrupted):
        source.check()
    with pytest.raises(SourceInterrupted):
        next(source.stream("0/0"))


def test_what_is_missing_is_found_and_the_statements_mend_it(database: CapturedPostgres) -> None:
    role = f"plain_{next(ROLES)}"
    database.execute(
        ITEMS,
        "CREATE TABLE keyless (x INTEGER)",
        "CREATE UNLOGGED TABLE fleeting (id INTEGER PRIMARY KEY)",
        "CREATE VIEW seen AS SELECT 1 AS one",
        f"CREATE ROLE {role} LOGIN PASSWORD 'plain'",
    )
    url = database.url(user=role, password="plain")
    checked = database.source_at(url, "items", "keyless", "fleeting", "seen").check()
    fatal = [found for found in checked if found.is_fatal]
    told = "\n".join(found.what for found in fatal)
    for expected in (
        "may not replicate",
        "may not make a publication",
        "may not read public.items",
        "does not own public.items",
        "public.keyless has no replica identity",
        "public.fleeting is not an ordinary table",
        "public.seen is not an ordinary table",
    ):
        assert expected in told
    with pytest.raises(CannotCapture, match="may not replicate"):
        database.source_at(url, "items").prepare()
    wanted = [found.mend for found in database.source_at(url, "items").check() if found.is_fatal]
    database.execute(*wanted)
    source = database.source_at(url, "items")
    left = source.check()
    assert [found for found in left if found.is_fatal] == []
    assert any("event trigger" in found.what for found in left)
    with closing(source):
        source.prepare()
        source.drop()


def test_a_table_that_the_server_would_freeze_is_not_added(database: CapturedPostgres) -> None:
    """Once published, a table without a replica identity takes no updates from its application."""
    database.execute(ITEMS, "CREATE TABLE keyless (x INTEGER)", "INSERT INTO keyless VALUES (1)")
    with closing(database.source("items")) as source:
        source.prepare()
        with pytest.raises(CannotCapture, match=r"cannot take keyless: .* no replica identity"):
            source.add_tables(["keyless"])
        database.execute("UPDATE keyless SET x = 2")
        source.drop()


def test_a_server_without_a_logical_log_says_how_to_have_one() -> None:
    with postgres_server() as server, closing(CapturedPostgres(server)) as database:
        database.execute(ITEMS)
        source = database.source("items")
        fatal = [found for found in source.check() if found.is_fatal]
        assert [found.mend for found in fatal] == [
            "ALTER SYSTEM SET wal_level = 'logical'; -- then restart the server"
        ]
        with pytest.raises(CannotCapture, match="wal_level is replica"):
            source.prepare()


def test_a_slot_that_the_server_gave_up_is_lost() -> None:
    settings = {**LOGICAL, "max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB"}
    with postgres_server(settings) as server, closing(CapturedPostgres(server)) as database:
        database.execute(ITEMS)
        source = database.source("items")
        position = source.prepare()
        assert source.lag(position).retained_bytes_max == 1024 * 1024
        for _ in range(4):
            database.execute("SELECT pg_switch_wal()", "CREATE TABLE x (y INTEGER)", "DROP TABLE x")
        database.execute("CHECKPOINT")
        with pytest.raises(SlotLost, match="given up"):
            next(source.stream(position))


def test_what_was_made_is_taken_away(database: CapturedPostgres) -> None:
    database.execute(ITEMS)
    source = database.source("items")
    source.prepare()
    made = [("millstream_altered",), ("millstream_dropped",), ("millstream_rewrites",)]
    assert database.ask("SELECT evtname FROM pg_event_trigger ORDER BY 1") == made
    source.drop()
    assert database.ask("SELECT pubname FROM pg_publication") == []
    assert database.ask("SELECT evtname FROM pg_event_trigger") == []
    assert database.ask("SELECT nspname FROM pg_namespace WHERE nspname = 'millstream'") == []
    slots = f"SELECT slot_name FROM pg_replication_slots WHERE database = '{database.name}'"
    assert database.ask(slots) == []
    source.drop()  # again: nothing to do


def test_rows_of_an_outbox_are_deleted_by_their_keys(
    database: CapturedPostgres, follow: Follow
) -> None:
    database.execute("CREATE TABLE items (id uuid, n BIGINT, PRIMARY KEY (n, id))")
    followed = follow("items")
    database.execute("INSERT INTO items SELECT gen_random_uuid(), n FROM generate_series(1, 3) n")
    followed.catch_up()
    first, _, third = followed.changes()
    assert isinstance(followed.source, PostgresSource)
    followed.source.delete_rows(first.table, [first.key or b"", third.key or b""])
    assert database.ask("SELECT n FROM items") == [(2,)]
