"""The contract of change sources, by the binlog of a real MariaDB; and what only MariaDB has."""

import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from random import Random
from typing import Any, ClassVar

import pymysql
import pytest

from millstream.base.schema import DecimalOf, ListOf, Scalar
from millstream.capture.change import CapturedTable
from millstream.capture.mariadb.binlog_dump import BinlogLost, SameServerId
from millstream.capture.mariadb.connection import DatabaseRefused, LoginRefused
from millstream.capture.mariadb.packets import Packets
from millstream.capture.mariadb.source import MariadbSource
from millstream.capture.source import Chunk, Finding, SourceInterrupted
from tests.contracts.capture_source_contract import (
    MARKS,
    ORDERS,
    WAIT_S,
    CaptureSourceContract,
    Followed,
    Seen,
    TypeCase,
    chunks_of,
    of_json,
    order,
    short,
    table_named,
)
from tests.support.mariadb_server import MariadbServer, NoMariadbServerError, mariadb_server
from tests.support.odd_names import EMOJI
from tests.support.waiting import eventually

pytestmark = pytest.mark.full

DATABASES = count(1)
ORDERS_ANEW = ORDERS.replace("CREATE", "CREATE OR REPLACE")


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    try:
        with mariadb_server() as server:
            yield server
    except NoMariadbServerError as error:
        pytest.skip(str(error))


class MariadbDatabase:
    """A database of its own on the server."""

    def __init__(self, server: MariadbServer) -> None:
        self.server = server
        self.name = f"shop{next(DATABASES)}"
        self._sessions: dict[str, pymysql.Connection[Any]] = {}
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.name} CHARACTER SET utf8mb4")

    def execute(self, *statements: str, session: str = "main") -> None:
        if session not in self._sessions:
            self._sessions[session] = self.server.connect(database=self.name)
        with self._sessions[session].cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    @property
    def url(self) -> str:
        return self.server.url.rpartition("/")[0] + f"/{self.name}"

    def source(self, *tables: str, known: Iterable[CapturedTable] = ()) -> MariadbSource:
        return MariadbSource(
            self.url,
            capture=self.name,
            tables=tables,
            topic_of=lambda table: f"shop.{table.removeprefix(f'{self.name}.')}",
            known=known,
        )

    @property
    def written(self) -> str:
        """What the server's binlog has."""
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.gtid_binlog_pos")
            return str(cursor.fetchall()[0][0])

    def forget_sessions(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def close(self) -> None:
        self.forget_sessions()
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {self.name}")


@pytest.fixture
def database(server: MariadbServer) -> Iterator[MariadbDatabase]:
    with closing(MariadbDatabase(server)) as database:
        yield database


class TestMariadbCapture(CaptureSourceContract):
    BACKSLASH: ClassVar[str] = "\\\\"
    QUOTE: ClassVar[str] = "`"
    NOT_NAMES: ClassVar[frozenset[str]] = frozenset(EMOJI)  # of more than two bytes in UTF-16
    TYPES: ClassVar[Sequence[TypeCase]] = (
        TypeCase("TINYINT", "-128", -128, Scalar.TINYINT),
        TypeCase("TINYINT UNSIGNED", "255", 255, Scalar.SMALLINT),
        TypeCase("BOOLEAN", "TRUE", 1, Scalar.TINYINT),
        TypeCase("SMALLINT", "-32768", -32768, Scalar.SMALLINT),
        TypeCase("SMALLINT UNSIGNED", "65535", 65535, Scalar.INT),
        TypeCase("YEAR", "2026", 2026, Scalar.SMALLINT),
        TypeCase("YEAR", "0", 0, Scalar.SMALLINT),
        TypeCase("YEAR(2)", "99", 1999, Scalar.SMALLINT),
        TypeCase("MEDIUMINT", "-8388608", -8388608, Scalar.INT),
        TypeCase("MEDIUMINT UNSIGNED", "16777215", 16777215, Scalar.INT),
        TypeCase("INT", "-2147483648", -2147483648, Scalar.INT),
        TypeCase("INT UNSIGNED", "4294967295", 4294967295, Scalar.BIGINT),
        TypeCase("INT(8) ZEROFILL", "42", 42, Scalar.BIGINT),
        TypeCase("BIGINT", "-9223372036854775808", -(2**63), Scalar.BIGINT),
        TypeCase("BIGINT UNSIGNED", "18446744073709551615", str(2**64 - 1), DecimalOf(20, 0)),
        TypeCase("DECIMAL(10,2)", "-12345678.90", "-12345678.90", DecimalOf(10, 2)),
        TypeCase("DECIMAL(4,4)", "0.0001", "0.0001", DecimalOf(4, 4)),
        TypeCase("DECIMAL(38,10)", "-1.5", "-1.5000000000", DecimalOf(38, 10)),
        TypeCase("DECIMAL(20,0) UNSIGNED", "7", "7", DecimalOf(20, 0)),
        TypeCase("DECIMAL(65,30)", "1" * 35 + ".5", "1" * 35 + ".5" + "0" * 29, Scalar.STRING),
        TypeCase("FLOAT", "0.1", 0.1, Scalar.FLOAT),
        TypeCase("FLOAT", "16777216", 16777216, Scalar.FLOAT),
        TypeCase("FLOAT", "-1.17549435e-38", -1.1754944e-38, Scalar.FLOAT),
        TypeCase("DOUBLE", "0.1", 0.1, Scalar.DOUBLE),
        TypeCase("DOUBLE", "1.7976931348623157e308", 1.7976931348623157e308, Scalar.DOUBLE),
        TypeCase("BIT(1)", "b'1'", True, Scalar.BOOLEAN),
        TypeCase("BIT(9)", "b'100000001'", 257, Scalar.BIGINT),
        TypeCase("BIT(64)", "b'" + "1" * 64 + "'", str(2**64 - 1), DecimalOf(20, 0)),
        TypeCase("DATE", "'2026-12-31'", "2026-12-31", Scalar.DATE),
        TypeCase("DATE", "'1000-01-01'", "1000-01-01", Scalar.DATE),
        TypeCase("DATETIME", "'2026-12-31 23:59:59'", "2026-12-31T23:59:59", Scalar.TIMESTAMP_NTZ),
        TypeCase(
            "DATETIME(6)",
            "'9999-12-31 23:59:59.999999'",
            "9999-12-31T23:59:59.999999",
            Scalar.TIMESTAMP_NTZ,
        ),
        TypeCase(
            "DATETIME(1)", "'2026-01-02 03:04:05.6'", "2026-01-02T03:04:05.6", Scalar.TIMESTAMP_NTZ
        ),
        TypeCase(
            "TIMESTAMP(3) NULL",
            "'2026-01-02 03:04:05.678'",
            "2026-01-02T03:04:05.678Z",
            Scalar.TIMESTAMP,
        ),
        TypeCase(
            "TIMESTAMP NULL", "'1970-01-01 00:00:01'", "1970-01-01T00:00:01Z", Scalar.TIMESTAMP
        ),
        TypeCase("TIME", "'838:59:59'", "838:59:59", Scalar.STRING),
        TypeCase("TIME(6)", "'-838:59:58.999999'", "-838:59:58.999999", Scalar.STRING),
        TypeCase("TIME(2)", "'-00:00:00.25'", "-00:00:00.25", Scalar.STRING),
        TypeCase("CHAR(10)", "'tea é'", "tea é", Scalar.STRING),
        TypeCase("CHAR(255)", "REPEAT('中', 255)", "中" * 255, Scalar.STRING),
        TypeCase("VARCHAR(300)", "REPEAT('x', 300)", "x" * 300, Scalar.STRING),
        TypeCase("VARCHAR(10)", "''", "", Scalar.STRING),
        TypeCase("VARCHAR(10) CHARACTER SET latin1", "'é€'", "é€", Scalar.STRING),
        TypeCase("VARCHAR(10) CHARACTER SET ucs2", "'é中'", "é中", Scalar.STRING),
        TypeCase("VARCHAR(10) CHARACTER SET sjis", "'日本'", "日本", Scalar.STRING),
        TypeCase("TEXT CHARACTER SET cp1251", "'жук'", "жук", Scalar.STRING),
        TypeCase("VARCHAR(10) CHARACTER SET armscii8", "'հայ'", "հայ", Scalar.STRING),
        TypeCase("TINYTEXT", "'a\\'b'", "a'b", Scalar.STRING),
        TypeCase("TEXT", "REPEAT('ab', 200)", "ab" * 200, Scalar.STRING),
        TypeCase("LONGTEXT", "'\U0001f600'", "\U0001f600", Scalar.STRING),
        TypeCase("JSON", """'{"a": [1, 2.50]}'""", '{"a": [1, 2.50]}', Scalar.STRING),
        TypeCase("BINARY(4)", "X'0100'", "AQAAAA==", Scalar.BINARY),
        TypeCase("VARBINARY(10)", "X'00ff00'", "AP8A", Scalar.BINARY),
        TypeCase("BLOB", "X'00ff'", "AP8=", Scalar.BINARY),
        TypeCase("MEDIUMBLOB", "''", "", Scalar.BINARY),
        TypeCase("ENUM('tea','rye','é''s')", "'é''s'", "é's", Scalar.STRING),
        TypeCase("ENUM('été','b') CHARACTER SET latin1", "'été'", "été", Scalar.STRING),
        TypeCase("ENUM('a\\\\b','c\\nd')", "1", "a\\b", Scalar.STRING),
        TypeCase("SET('a\\\\b','c\\nd')", "3", ["a\\b", "c\nd"], ListOf(Scalar.STRING)),
        TypeCase("SET('a','b','c')", "'c,a'", ["a", "c"], ListOf(Scalar.STRING)),
        TypeCase("SET('a','b')", "''", [], ListOf(Scalar.STRING)),
        TypeCase(
            "UUID",
            "'123e4567-e89b-12d3-a456-426655440000'",
            "123e4567-e89b-12d3-a456-426655440000",
            Scalar.STRING,
        ),
        TypeCase(
            "UUID",
            "'01890a5d-ac96-774b-bcce-b302099a8057'",
            "01890a5d-ac96-774b-bcce-b302099a8057",
            Scalar.STRING,
        ),
        TypeCase("INET6", "'2001:db8::ff00:42:8329'", "2001:db8::ff00:42:8329", Scalar.STRING),
        TypeCase("INET6", "'::ffff:192.0.2.1'", "::ffff:192.0.2.1", Scalar.STRING),
        TypeCase("INET6", "'1:0:2:3:4:5:6:7'", "1::2:3:4:5:6:7", Scalar.STRING),
        TypeCase("INET4", "'10.0.0.0'", "10.0.0.0", Scalar.STRING),
        TypeCase(
            "POINT",
            "ST_GeomFromText('POINT(1 2)')",
            "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA==",
            Scalar.BINARY,
        ),
        TypeCase("VARCHAR(500) COMPRESSED", "REPEAT('y', 500)", "y" * 500, Scalar.STRING),
        TypeCase("TEXT COMPRESSED", "REPEAT('z', 900)", "z" * 900, Scalar.STRING),
        TypeCase("BLOB COMPRESSED", "'short'", "c2hvcnQ=", Scalar.BINARY),
        TypeCase("INT", "NULL", None, Scalar.INT),
    )


@pytest.fixture
def shop(database: MariadbDatabase) -> MariadbDatabase:
    database.execute(ORDERS, MARKS)
    return database


@pytest.fixture
def followed(shop: MariadbDatabase) -> Iterator[Followed]:
    with closing(following(shop, "orders", "marks")) as followed:
        yield followed


def following(database: MariadbDatabase, *tables: str, after: str | None = None) -> Followed:
    source = database.source(*tables)
    return Followed(database, source, after or source.prepare())


def streamed_and_loaded(shop: MariadbDatabase, table: str, *statements: str) -> list[Any]:
    """The rows that these statements make, which must be the same from the binlog and by a load."""
    with closing(following(shop, table, "marks")) as followed:
        shop.execute(*statements)
        followed.catch_up()
        changes = followed.changes()
        with closing(followed.source.loader()) as loader:
            (chunk,) = chunks_of(loader, table_named(followed.source, table), 1000)
    assert list(chunk.rows) == [(change.key, change.after) for change in changes]
    assert {change.table for change in changes} == {chunk.table}
    return [of_json(row) for _, row in chunk.rows]


def reloads(followed: Followed) -> list[tuple[str, ...]]:
    return [transaction.reloads for transaction, _ in followed.transactions if transaction.reloads]


class TestValues:
    def test_dates_that_are_none_are_kept_as_they_are(self, shop: MariadbDatabase) -> None:
        shop.execute(
            "CREATE TABLE days (id INT PRIMARY KEY, day DATE, at DATETIME(3), stamp TIMESTAMP NULL)"
        )
        found = streamed_and_loaded(
            shop,
            "days",
            "SET sql_mode = 'ALLOW_INVALID_DATES'",
            "INSERT INTO days VALUES (1, 0, 0, 0), (2, '2026-00-00', '2026-02-31 01:02:03', NULL)",
        )
        assert found == [
            {
                "id": 1,
                "day": "0000-00-00",
                "at": "0000-00-00T00:00:00.000",
                "stamp": "0000-00-00T00:00:00Z",
            },
            {"id": 2, "day": "2026-00-00", "at": "2026-02-31T01:02:03.000", "stamp": None},
        ]

    def test_a_member_that_is_none_is_not_an_empty_set(self, shop: MariadbDatabase) -> None:
        shop.execute(
            "CREATE TABLE moods (id INT PRIMARY KEY, mood ENUM('', 'good'), many SET('', 'x'))"
        )
        found = streamed_and_loaded(
            shop,
            "moods",
            "SET sql_mode = ''",
            "INSERT INTO moods VALUES (1, 'nothing of these', 0), (2, 1, 1), (3, 'good', 3)",
        )
        assert found == [
            {"id": 1, "mood": "", "many": []},
            {"id": 2, "mood": "", "many": [""]},
            {"id": 3, "mood": "good", "many": ["", "x"]},
        ]

    def test_columns_that_are_computed_or_unseen_arrive(self, shop: MariadbDatabase) -> None:
        shop.execute(
            "CREATE TABLE sums (id INT PRIMARY KEY, x INT, twice INT AS (x * 2) VIRTUAL, "
            "thrice INT AS (x * 3) PERSISTENT, hidden INT INVISIBLE DEFAULT 5)"
        )
        found = streamed_and_loaded(shop, "sums", "INSERT INTO sums (id, x) VALUES (1, 7)")
        assert found == [{"id": 1, "x": 7, "twice": 14, "thrice": 21, "hidden": 5}]

    @pytest.mark.parametrize(
        ("declared", "literals"),
        [
            ("BIGINT UNSIGNED", ["0", "18446744073709551615"]),
            ("DECIMAL(10,3)", ["-1.5", "0", "2.25"]),
            ("VARBINARY(20)", ["X'00'", "X'27ff'", "''"]),
            ("DATETIME(6)", ["'2026-01-01 00:00:00.000001'", "'2026-01-01 00:00:00.000002'"]),
            ("ENUM('z','a','m')", ["'a'", "'z'", "'m'"]),
            ("BIT(12)", ["b'0'", "b'111111111111'"]),
            ("DOUBLE", ["0.1", "-1e300", "1e-300"]),
            ("FLOAT", ["0.1", "0.2", "0.3"]),
            ("UUID", ["UUID()", "UUID()", "UUID()"]),
            ("VARCHAR(9) CHARACTER SET latin1", ["'é'", "'z'", "'a\"'"]),
            ("TIME(1)", ["'-10:00:00.5'", "'900:00'"]),
            ("YEAR(2)", ["'70'", "'99'", "'00'", "'69'"]),
            ("VARCHAR(9) CHARACTER SET ucs2", ["'é'", "'z'", "'a'"]),
            ("VARCHAR(9) CHARACTER SET utf16le", ["'é'", "'z'", "'a'"]),
            ("VARCHAR(9) CHARACTER SET utf32", ["'é'", "'z'", "'a'"]),
            ("VARCHAR(9) COLLATE utf8mb4_unicode_ci", ["'é'", "'z'", "'a'"]),
            ("SET('a\\\\b','c')", ["1", "2", "3"]),
            ("INET4", ["'10.0.0.0'", "'9.0.0.1'"]),
            ("INET6", ["'::1.2.3.4'", "'::ffff:1.2.3.4'", "'1:0:2:3:4:5:6:7'", "'::'"]),
        ],
    )
    def test_chunks_go_on_in_a_key_of_any_type(
        self, shop: MariadbDatabase, declared: str, literals: list[str]
    ) -> None:
        shop.execute(f"CREATE TABLE keyed (k {declared} PRIMARY KEY)", "SET sql_mode = ''")
        for literal in literals:
            shop.execute(f"INSERT INTO keyed VALUES ({literal})")
        with closing(shop.source("keyed")) as source, closing(source.loader()) as loader:
            table = table_named(source, "keyed")
            one_by_one = [row for chunk in chunks_of(loader, table, 1) for row in chunk.rows]
            side_by_side = [
                row for chunk in chunks_of(loader, table, 2, ranges=3) for row in chunk.rows
            ]
        assert len(set(one_by_one)) == len(one_by_one) == len(literals)
        assert sorted(side_by_side) == sorted(one_by_one)
        with closing(following(shop, "keyed", "marks")) as followed:  # the stream's keys are those
            shop.execute("DELETE FROM keyed")
            followed.catch_up()
            assert sorted(str(one.key) for one in followed.changes()) == sorted(
                str(key) for key, _ in one_by_one
            )

    def test_a_value_of_many_megabytes_arrives(self, shop: MariadbDatabase) -> None:
        shop.execute("CREATE TABLE large (id INT PRIMARY KEY, data LONGBLOB)")
        shop.execute("SET GLOBAL max_allowed_packet = 134217728")
        with closing(following(shop, "large", "marks")) as followed:
            shop.execute("INSERT INTO large VALUES (1, REPEAT('x', 40000000))", session="anew")
            (found,) = followed.catch_up()
        assert len(found.after["data"]) == 4 * -(-40_000_000 // 3)


class TestStatements:
    @pytest.mark.parametrize(
        "statement",
        ["TRUNCATE TABLE orders", "truncate /* all */ `orders`", "DROP TABLE orders"],
    )
    def test_a_table_that_is_emptied_is_truncated(
        self, shop: MariadbDatabase, followed: Followed, statement: str
    ) -> None:
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)", statement)
        assert followed.catch_up() == [
            order("c", 1, "tea", 1),
            Seen("orders", "t", None, None),
        ]

    def test_a_table_that_is_made_of_a_query_has_its_rows(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        shop.execute(
            "INSERT INTO orders VALUES (1, 'tea', 1)",
            f"{ORDERS_ANEW} SELECT 2 AS id, 'rye' AS item",
        )
        assert [(one.op, one.key) for one in followed.catch_up()] == [
            ("c", {"id": 1}),
            ("t", None),
            ("c", {"id": 2}),
        ]

    def test_a_table_of_the_same_name_elsewhere_is_another_one(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        shop.execute("CREATE OR REPLACE TABLE test_elsewhere (id INT)", session="other")
        elsewhere = f"{shop.name}_elsewhere"
        shop.execute(f"CREATE DATABASE {elsewhere}", f"CREATE TABLE {elsewhere}.orders (id INT)")
        shop.execute(
            f"INSERT INTO {elsewhere}.orders VALUES (1)",
            f"TRUNCATE {elsewhere}.orders",
            f"DROP DATABASE {elsewhere}",
        )
        assert followed.catch_up() == []
        assert reloads(followed) == []

    @pytest.mark.parametrize(
        ("statement", "must_reload"),
        [
            ("ALTER TABLE orders ADD COLUMN note INT", False),
            ("ALTER TABLE orders ADD COLUMN note INT DEFAULT 5", True),
            ("ALTER TABLE orders ADD COLUMN note INT NOT NULL", True),
            ("ALTER TABLE orders ADD COLUMN twice INT AS (amount * 2) VIRTUAL", True),
            ("ALTER TABLE orders DROP COLUMN amount", False),
            ("ALTER TABLE orders DROP COLUMN amount, ADD COLUMN amount INT", True),
            ("ALTER TABLE orders RENAME COLUMN amount TO pieces", True),
            ("ALTER TABLE orders CHANGE amount pieces INT", True),
            ("ALTER TABLE orders MODIFY amount DECIMAL(10,2)", True),
            ("ALTER TABLE orders MODIFY amount INT NOT NULL", True),
            ("ALTER TABLE orders CONVERT TO CHARACTER SET latin1", True),
            ("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (item)", True),
            ("ALTER TABLE orders ADD SYSTEM VERSIONING", True),
            ("ALTER IGNORE TABLE orders ADD UNIQUE (amount)", True),
            ("ALTER TABLE orders ALTER amount SET DEFAULT 5", False),
            ("ALTER TABLE orders ADD INDEX (amount)", False),
            ("CREATE INDEX by_amount ON orders (amount)", False),
            ("ALTER TABLE orders ADD CONSTRAINT few CHECK (amount < 100)", False),
            ("ALTER TABLE orders DROP CONSTRAINT IF EXISTS few", False),
            ("ALTER TABLE orders DEFAULT CHARACTER SET latin1", False),
            ("ALTER TABLE orders COMMENT = 'of the shop', ROW_FORMAT = DYNAMIC", False),
            ("ALTER TABLE orders ADD COLUMN note TEXT COMMENT 'DEFAULT 5' FIRST", False),
            ("GRANT SELECT ON orders TO CURRENT_USER", False),
            ("ANALYZE TABLE orders", False),
            ("OPTIMIZE TABLE orders", False),
            ("CREATE TRIGGER seen BEFORE INSERT ON orders FOR EACH ROW SET @a = 1", False),
            ("CREATE VIEW seen AS SELECT * FROM orders", False),
            ("ALTER TABLE orders PARTITION BY HASH (id) PARTITIONS 2", True),
            ("SET STATEMENT lock_wait_timeout = 5 FOR ALTER TABLE orders MODIFY item TEXT", True),
            ("RENAME TABLE orders TO old, old TO orders", True),
        ],
    )
    def test_a_table_whose_rows_changed_unseen_is_to_be_loaded_anew(
        self, shop: MariadbDatabase, followed: Followed, statement: str, must_reload: bool
    ) -> None:
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)", statement)
        followed.catch_up()
        assert reloads(followed) == ([(f"{shop.name}.orders",)] if must_reload else [])

    @pytest.mark.parametrize(
        ("former", "statement"),
        [
            ("ENUM('a','b')", "MODIFY c ENUM('b','a')"),
            ("ENUM('a','b')", "MODIFY c ENUM('x','b')"),
            ("INT AS (amount * 2) VIRTUAL", "MODIFY c INT AS (amount * 3) VIRTUAL"),
            ("INT AS (amount * 2) STORED", "MODIFY c INT AS (amount * 3) STORED"),
        ],
    )
    def test_a_column_with_another_meaning_has_its_table_loaded_anew(
        self, shop: MariadbDatabase, former: str, statement: str
    ) -> None:
        shop.execute(f"ALTER TABLE orders ADD COLUMN c {former}")
        with closing(following(shop, "orders", "marks")) as followed:
            shop.execute(f"ALTER TABLE orders {statement}")
            followed.catch_up()
            assert reloads(followed) == [(f"{shop.name}.orders",)]

    def test_a_column_that_was_there_once_and_is_added_again_has_its_table_loaded_anew(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        """Whether the capture looks between the two statements, or after both."""
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        followed.catch_up()
        for is_between in (True, False):
            shop.execute("ALTER TABLE orders DROP COLUMN amount")
            if is_between:
                followed.catch_up()
            before = len(reloads(followed))
            shop.execute("ALTER TABLE orders ADD COLUMN amount INT")
            followed.catch_up()
            assert reloads(followed)[before:] == [(f"{shop.name}.orders",)]

    def test_a_type_that_was_changed_and_changed_back_has_its_table_loaded_anew(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        shop.execute(
            "SET sql_mode = ''",
            "INSERT INTO orders VALUES (1, 'tea', 1000)",
            "ALTER TABLE orders MODIFY amount TINYINT",
            "ALTER TABLE orders MODIFY amount INT",
        )
        followed.catch_up()
        assert set(reloads(followed)) == {(f"{shop.name}.orders",)}

    def test_a_table_that_is_added_and_altered_before_its_first_change_is_loaded_anew(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        shop.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)", "INSERT INTO items VALUES (1)")
        followed.catch_up()
        followed.source.add_tables(["items"])
        with closing(followed.source.loader()) as loader:
            list(chunks_of(loader, table_named(followed.source, "items"), 10))
        shop.execute("ALTER TABLE items ADD COLUMN note INT DEFAULT 5")
        followed.catch_up()
        assert reloads(followed) == [(f"{shop.name}.items",)]

    @pytest.mark.parametrize("setting", ["binlog_format = STATEMENT", "binlog_row_image = MINIMAL"])
    def test_a_session_that_does_not_log_whole_rows_makes_its_tables_load_anew(
        self, shop: MariadbDatabase, followed: Followed, setting: str
    ) -> None:
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        shop.execute(f"SET {setting}", "UPDATE orders SET amount = 2", session="other")
        assert followed.catch_up() == [order("c", 1, "tea", 1)]
        assert reloads(followed) == [(f"{shop.name}.orders",)]


class TestTablesThatGo:
    """What is gone must be told, also if the run had no row of it."""

    GOES: ClassVar[Sequence[str]] = (
        "DROP TABLE orders",
        "TRUNCATE TABLE orders",
        f"{ORDERS_ANEW}",
        "RENAME TABLE orders TO old_orders",
        "ALTER TABLE orders RENAME TO old_orders",
        "DROP DATABASE {0}",
    )

    @pytest.mark.parametrize("statement", GOES)
    def test_a_table_without_a_change_in_this_run_is_truncated(
        self, shop: MariadbDatabase, followed: Followed, statement: str
    ) -> None:
        followed.catch_up()
        shop.execute(statement.format(shop.name))
        shop_again(shop)
        assert followed.catch_up() == [Seen("orders", "t", None, None)]

    @pytest.mark.parametrize("statement", GOES)
    def test_a_table_that_went_while_the_capture_rested_is_truncated(
        self, shop: MariadbDatabase, followed: Followed, statement: str
    ) -> None:
        known = followed.source.tables()
        followed.close()
        shop.execute(statement.format(shop.name))
        shop_again(shop)
        source = shop.source("orders", "marks", known=known)
        with closing(Followed(shop, source, followed.position)) as second:
            assert second.catch_up() == [Seen("orders", "t", None, None)]

    def test_a_database_that_is_gone_can_be_read_about(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        known = followed.source.tables()
        followed.close()
        shop.execute(f"DROP DATABASE {shop.name}")
        source = shop.source("orders", "marks", known=known)
        second = Followed(shop, source, followed.position)
        with closing(second):
            second.read_until(lambda: len(second.transactions) == 1)
            assert {(short(one.table), one.op) for one in second.transactions[0][1]} == {
                ("orders", "t"),
                ("marks", "t"),
            }
        shop_again(shop)

    def test_a_table_that_was_added_and_loaded_is_truncated(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        shop.execute("CREATE TABLE items (id INTEGER PRIMARY KEY)", "INSERT INTO items VALUES (1)")
        followed.catch_up()
        followed.source.add_tables(["items"])
        with closing(followed.source.loader()) as loader:
            list(chunks_of(loader, table_named(followed.source, "items"), 10))
        shop.execute("DROP TABLE items")
        assert followed.catch_up() == [Seen("items", "t", None, None)]

    def test_a_table_that_changes_its_name_and_comes_back_is_loaded_anew(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        followed.catch_up()
        shop.execute("RENAME TABLE orders TO old_orders")
        assert followed.catch_up() == [Seen("orders", "t", None, None)]
        shop.execute("RENAME TABLE old_orders TO orders")
        followed.catch_up()
        assert reloads(followed) == [(f"{shop.name}.orders",)]


def shop_again(shop: MariadbDatabase) -> None:
    """A database and its table of marks, where they are gone."""
    with closing(shop.server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {shop.name} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {shop.name}")
        cursor.execute(MARKS.replace("TABLE", "TABLE IF NOT EXISTS"))
    shop.forget_sessions()


class TestTransactions:
    def test_a_prepared_transaction_comes_when_it_is_committed(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        prepare(shop, "one", "INSERT INTO orders VALUES (1, 'tea', 1)")
        prepare(shop, "two", "INSERT INTO orders VALUES (2, 'rye', 1)")
        shop.execute("INSERT INTO orders VALUES (3, 'oat', 1)")
        assert followed.catch_up() == [order("c", 3, "oat", 1)]
        shop.execute("XA COMMIT 'one'", "XA ROLLBACK 'two'")
        assert followed.catch_up()[1:] == [order("c", 1, "tea", 1)]

    def test_a_prepared_transaction_is_not_lost_by_a_restart(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        prepare(shop, "one", "INSERT INTO orders VALUES (1, 'tea', 1)")
        shop.execute("INSERT INTO orders VALUES (2, 'rye', 1)")
        followed.catch_up()
        position = followed.position
        followed.close()
        shop.execute("XA COMMIT 'one'")
        with closing(following(shop, "orders", "marks", after=position)) as second:
            assert second.catch_up() == [order("c", 1, "tea", 1)]
            assert second.source.is_past(second.position, position)

    def test_one_that_was_prepared_before_the_capture_makes_tables_load_anew(
        self, shop: MariadbDatabase
    ) -> None:
        prepare(shop, "one", "INSERT INTO orders VALUES (1, 'tea', 1)")
        with closing(following(shop, "orders", "marks")) as followed:
            shop.execute("XA COMMIT 'one'")
            assert followed.catch_up() == []
            assert [set(names) for names in reloads(followed)] == [
                {f"{shop.name}.orders", f"{shop.name}.marks"}
            ]

    def test_a_rollback_to_a_savepoint_among_tables_without_transactions(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        shop.execute("CREATE TABLE plain (id INT) ENGINE = MyISAM")
        shop.execute(
            "BEGIN",
            "INSERT INTO orders VALUES (1, 'tea', 1)",
            "SAVEPOINT `a b`",
            "INSERT INTO plain VALUES (1)",
            "INSERT INTO orders VALUES (2, 'rye', 1)",
            "ROLLBACK TO SAVEPOINT `a b`",
            "INSERT INTO orders VALUES (3, 'oat', 1)",
            "COMMIT",
        )
        assert followed.catch_up() == [order("c", 1, "tea", 1), order("c", 3, "oat", 1)]

    def test_a_table_without_transactions_is_captured(self, shop: MariadbDatabase) -> None:
        shop.execute("CREATE TABLE plain (id INT PRIMARY KEY) ENGINE = MyISAM")
        with closing(following(shop, "plain", "marks")) as followed:
            shop.execute("BEGIN", "INSERT INTO plain VALUES (1)", "ROLLBACK")
            assert followed.catch_up() == [Seen("plain", "c", {"id": 1}, {"id": 1})]

    def test_a_compressed_binlog_is_read(self, shop: MariadbDatabase, followed: Followed) -> None:
        text = "x" * 90
        with global_setting(shop, "log_bin_compress", "ON"):
            shop.execute(f"INSERT INTO orders SELECT seq, '{text}', 1 FROM seq_1_to_100")
            shop.execute("UPDATE orders SET amount = 2", "DELETE FROM orders", "TRUNCATE orders")
            found = followed.catch_up()
        assert [one.op for one in found] == ["c"] * 100 + ["u"] * 100 + ["d"] * 100 + ["t"]
        assert found[199] == order("u", 100, text, 2)

    def test_transactions_of_several_domains_have_one_position(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        shop.execute("SET gtid_domain_id = 7", "INSERT INTO orders VALUES (1, 'tea', 1)")
        shop.execute("INSERT INTO orders VALUES (2, 'rye', 1)", session="other")
        followed.catch_up()
        position = followed.position
        assert [part.partition("-")[0] for part in position.split(",")] == ["0", "7"]
        followed.close()
        shop.execute("INSERT INTO orders VALUES (3, 'oat', 1)")
        with closing(following(shop, "orders", "marks", after=position)) as second:
            assert second.catch_up() == [order("c", 3, "oat", 1)]


def prepare(shop: MariadbDatabase, name: str, statement: str) -> None:
    """A transaction in two phases, after the first; its session ends."""
    connection = shop.server.connect(database=shop.name)
    with closing(connection), connection.cursor() as cursor:
        for step in (f"XA START '{name}'", statement, f"XA END '{name}'", f"XA PREPARE '{name}'"):
            cursor.execute(step)


@contextmanager
def global_setting(shop: MariadbDatabase, name: str, value: str | int) -> Iterator[None]:
    with closing(shop.server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT @@GLOBAL.{name}")
        (before,) = cursor.fetchall()[0]
        cursor.execute(f"SET GLOBAL {name} = %s", (value,))
        try:
            yield
        finally:
            cursor.execute(f"SET GLOBAL {name} = %s", (before,))


@contextmanager
def unseen_commit(shop: MariadbDatabase, statement: str) -> Iterator[None]:
    """It waits for a replica that is not there: in the binlog, but for no snapshot to see."""
    with ExitStack() as waiting:
        for name, value in (
            ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
            ("rpl_semi_sync_master_timeout", int(WAIT_S * 1000)),
        ):
            waiting.enter_context(global_setting(shop, name, value))
        before = shop.written
        thread = threading.Thread(target=shop.execute, args=(statement,))
        waiting.callback(thread.join)
        waiting.enter_context(global_setting(shop, "rpl_semi_sync_master_enabled", "ON"))
        thread.start()
        eventually(lambda: shop.written != before, what="a commit", within_s=WAIT_S)
        yield


class TestGoingOn:
    def test_a_binlog_that_was_purged_is_lost_and_says_what_to_do(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        position = followed.position
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        followed.close()
        shop.execute("FLUSH BINARY LOGS")
        eventually(lambda: is_purged(shop), what="older binlogs gone", within_s=WAIT_S)
        lost = pytest.raises(BinlogLost, match=f"{shop.name} cannot go on after {position}")
        with closing(following(shop, "orders", "marks", after=position)) as second, lost:
            second.catch_up()

    def test_a_stream_goes_on_in_the_next_file(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)", "FLUSH BINARY LOGS")
        shop.execute("INSERT INTO orders VALUES (2, 'rye', 1)")
        assert followed.catch_up() == [order("c", 1, "tea", 1), order("c", 2, "rye", 1)]
        followed.read_until(lambda: followed.source.lag(followed.position).bytes == 0)

    def test_files_without_checksums_are_read(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        start = followed.position
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        with global_setting(shop, "binlog_checksum", "NONE"):
            shop.execute("INSERT INTO orders VALUES (2, 'rye', 1)")
            assert [one.key["id"] for one in followed.catch_up()] == [1, 2]
            followed.close()
            with closing(following(shop, "orders", "marks", after=start)) as second:
                assert [one.key["id"] for one in second.catch_up()] == [1, 2]
        shop.execute("INSERT INTO orders VALUES (3, 'oat', 1)")
        with closing(following(shop, "orders", "marks", after=start)) as third:
            assert [one.key["id"] for one in third.catch_up()] == [1, 2, 3]

    def test_a_server_that_crashes_interrupts_and_a_new_stream_goes_on(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        shop.execute("INSERT INTO orders VALUES (1, 'tea', 1)")
        followed.catch_up()
        shop.server.crash()
        with pytest.raises(SourceInterrupted):
            followed.read_until(lambda: False)
        with pytest.raises(SourceInterrupted):
            next(shop.source("orders").stream(followed.position))
        shop.server.start()
        shop.execute("INSERT INTO orders VALUES (2, 'rye', 1)", session="anew")
        shop.forget_sessions()
        with closing(following(shop, "orders", "marks", after=followed.position)) as second:
            assert second.catch_up() == [order("c", 2, "rye", 1)]

    def test_a_login_that_is_refused_may_be_mended(self, shop: MariadbDatabase) -> None:
        url = shop.url.replace(":stream@", ":wrong@")
        source = MariadbSource(url, capture="shop", tables=["orders"], topic_of=str)
        with pytest.raises(LoginRefused, match="credentials changed"):
            source.prepare()

    def test_a_capture_that_runs_twice_is_told(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        followed.catch_up()
        with closing(following(shop, "orders", "marks")) as second:
            second.catch_up()
            with pytest.raises(SameServerId, match="give this one another"):
                followed.read_until(lambda: False)


def is_purged(shop: MariadbDatabase) -> bool:
    """The server keeps a file as long as it has readers, and those that went may still be there."""
    with closing(shop.server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        file = cursor.fetchall()[0][0]
        cursor.execute(f"PURGE BINARY LOGS TO '{file}'")
        cursor.execute("SHOW BINARY LOGS")
        return len(cursor.fetchall()) == 1


class TestLoadingWhileRowsChange:
    def test_a_load_waits_for_commits_that_are_in_the_binlog_and_not_seen_yet(
        self, shop: MariadbDatabase
    ) -> None:
        looks = iter([False, False, True])
        with closing(shop.source("orders")) as source, closing(source.loader()) as loader:
            table = table_named(source, "orders")
            with unseen_commit(shop, "INSERT INTO orders VALUES (1, 'tea', 1)"):
                loader.settle(lambda: next(looks))
                assert list(looks) == []
                assert list(loader.read(table, None, None, 10).rows) == []
            loader.settle(lambda: False)
            assert len(loader.read(table, None, None, 10).rows) == 1

    def test_a_chunk_is_exactly_what_the_transactions_made_that_it_says_it_saw(
        self, shop: MariadbDatabase, followed: Followed
    ) -> None:
        """For whatever moment: rows of the snapshot = changes replayed up to it."""
        shop.execute("INSERT INTO orders SELECT seq, 'tea', 0 FROM seq_1_to_20")
        table = table_named(followed.source, "orders")
        with closing(followed.source.loader()) as loader, writing(shop, writers=3):
            chunks: list[Chunk] = []

            def are_enough() -> bool:
                chunks.append(loader.read(table, None, None, 1000))
                return len({chunk.closes_at for chunk in chunks}) >= 20

            eventually(are_enough, what="chunks at several moments", within_s=WAIT_S)
        followed.catch_up()
        for chunk in chunks:
            assert dict(chunk.rows) == replayed(followed, chunk)


def replayed(followed: Followed, chunk: Chunk) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for transaction, changes in followed.transactions:
        for change in changes if chunk.sees(transaction) else ():
            if short(change.table) != "orders":
                continue
            assert change.key is not None
            if change.after is None:
                del rows[change.key]
            else:
                rows[change.key] = change.after
    return rows


@contextmanager
def writing(shop: MariadbDatabase, *, writers: int) -> Iterator[None]:
    """Transactions of two rows, from several sessions, until the end."""
    ended = threading.Event()
    threads = [threading.Thread(target=write_orders, args=(shop, ended, n)) for n in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def write_orders(shop: MariadbDatabase, ended: threading.Event, seed: int) -> None:
    random = Random(seed)
    connection = shop.server.connect(database=shop.name, autocommit=False)
    with closing(connection), connection.cursor() as cursor:
        while not ended.is_set():
            low, high = sorted(random.sample(range(1, 21), 2))  # in order: no deadlocks
            cursor.execute(f"UPDATE orders SET amount = amount + 1 WHERE id IN ({low}, {high})")
            cursor.execute(f"INSERT INTO orders VALUES ({1000 + seed}, 'new', {low})")
            connection.commit()
            cursor.execute(f"DELETE FROM orders WHERE id = {1000 + seed}")
            connection.commit()


def fatal(source: MariadbSource) -> list[Finding]:
    return [found for found in source.check() if found.is_fatal]


class TestChecks:
    def test_every_setting_that_is_wrong_is_told_with_what_mends_it(
        self, shop: MariadbDatabase
    ) -> None:
        with ExitStack() as settings:
            for name, value in (
                ("binlog_format", "MIXED"),
                ("binlog_row_image", "MINIMAL"),
                ("binlog_row_metadata", "NO_LOG"),
                ("binlog_expire_logs_seconds", 3600),
                ("sync_binlog", 0),
            ):
                settings.enter_context(global_setting(shop, name, value))
            with closing(shop.source("orders")) as source:
                found = source.check()
                shop.execute(*(one.mend for one in found))
                assert source.check() == []
        assert [(one.what.partition(" is ")[0], one.is_fatal) for one in found] == [
            ("binlog_format", True),
            ("binlog_row_image", True),
            ("binlog_row_metadata", True),
            ("sync_binlog", False),
            ("the binlog", False),
        ]
        assert found[2].mend.startswith("SET GLOBAL binlog_row_metadata = FULL")

    def test_a_login_with_few_privileges_is_told_which_it_lacks_and_the_statements_mend_it(
        self, shop: MariadbDatabase
    ) -> None:
        shop.execute(f"CREATE OR REPLACE USER {shop.name}@'127.0.0.1' IDENTIFIED BY 'x'")
        shop.execute(f"GRANT INSERT ON {shop.name}.* TO {shop.name}@'127.0.0.1'")
        url = shop.url.replace("mill:stream", f"{shop.name}:x")
        source = MariadbSource(url, capture="shop", tables=["orders"], topic_of=str)
        with closing(source):
            found = fatal(source)
            assert [one.what.rpartition(" ")[2] for one in found] == [
                "SLAVE",
                "MONITOR",
                f"{shop.name}.orders",
            ]
            shop.execute(*(one.mend for one in found))
            source.close()
            assert fatal(source) == []
            next(iter(source.stream(source.prepare())))

    def test_tables_of_which_the_binlog_does_not_tell_all_are_told(
        self, shop: MariadbDatabase
    ) -> None:
        shop.execute(
            "CREATE TABLE parts (id INT, order_id INT REFERENCES orders (id) ON DELETE CASCADE)",
            "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE = MyISAM",
            "CREATE VIEW seen AS SELECT * FROM orders",
        )
        with closing(shop.source("parts", "plain", "seen")) as source:
            found = [(one.what, one.is_fatal) for one in source.check()[1:]]
        assert [is_fatal for _, is_fatal in found] == [False, False, False, True]
        assert "no primary key" in found[0][0]
        assert "the binlog does not tell" in found[1][0]
        assert "without transactions" in found[2][0]
        assert "is a view" in found[3][0]

    def test_what_mends_a_table_of_any_name_can_be_run(self, shop: MariadbDatabase) -> None:
        shop.execute("CREATE TABLE `or-ders` (id INT PRIMARY KEY) ENGINE = MyISAM")
        with closing(shop.source("or-ders")) as source:
            (found,) = (one for one in source.check() if "engine" in one.what)
            shop.execute(found.mend)
            assert not any("engine" in one.what for one in source.check())

    def test_a_login_that_may_not_see_the_database_is_told(self, shop: MariadbDatabase) -> None:
        shop.execute(f"CREATE OR REPLACE USER {shop.name}@'127.0.0.1' IDENTIFIED BY 'x'")
        url = shop.url.replace("mill:stream", f"{shop.name}:x")
        source = MariadbSource(url, capture="shop", tables=["orders"], topic_of=str)
        with closing(source), pytest.raises(DatabaseRefused, match="GRANT SELECT"):
            source.check()

    def test_a_server_without_a_binlog_is_told(self) -> None:
        settings = {"performance-schema": "OFF", "skip-log-bin": "ON"}
        with mariadb_server(settings) as server:
            source = MariadbSource(server.url, capture="shop", tables=["orders"], topic_of=str)
            with closing(source):
                found = {one.what.partition(" ")[0] for one in source.check()}
        assert {"log_bin", "binlog_format", "binlog_row_metadata"} <= found


class TestLimits:
    """What docs/formats/capture_mariadb.md says does not hold."""

    def test_rows_that_a_foreign_key_deletes_are_not_told(self, shop: MariadbDatabase) -> None:
        shop.execute(
            "CREATE TABLE parts (id INT PRIMARY KEY, order_id INT, "
            "FOREIGN KEY (order_id) REFERENCES orders (id) ON DELETE CASCADE)",
            "INSERT INTO orders VALUES (1, 'tea', 1)",
            "INSERT INTO parts VALUES (7, 1)",
        )
        with closing(following(shop, "orders", "parts", "marks")) as followed:
            shop.execute("DELETE FROM orders")
            assert followed.catch_up() == [order("d", 1)]


class TestPackets:
    def test_packets_are_whole_however_they_arrive(self) -> None:
        sent = [b"a", b"", b"x" * 300, b"end"]
        stream = b"".join(
            len(data).to_bytes(3, "little") + bytes([number]) + data
            for number, data in enumerate(sent)
        )
        for cut in range(len(stream) + 1):
            ours, theirs = socket.socketpair()
            with ours, theirs:
                packets = Packets(ours)
                found = []
                for part in (stream[:cut], stream[cut:]):
                    theirs.sendall(part)
                    assert packets.receive(WAIT_S if part else 0) == bool(part)
                    found += list(iter(packets.take, None))
            assert found == sent, f"cut at byte {cut}"

    def test_a_connection_that_ends_interrupts(self) -> None:
        ours, theirs = socket.socketpair()
        with ours:
            theirs.close()
            with pytest.raises(SourceInterrupted, match="ended the connection"):
                Packets(ours).receive(WAIT_S)
