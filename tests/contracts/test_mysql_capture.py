"""The contract of change sources, by the binlog of a real MySQL, where there is one."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import ClassVar

import pytest

from millstream.base.schema import Scalar
from tests.contracts.capture_source_contract import CaptureSourceContract, TypeCase, order
from tests.contracts.test_mariadb_capture import MariadbDatabase, TestMariadbCapture, following
from tests.support.mysql_server import MysqlServer, NoMysqlServerError, mysql_server
from tests.support.odd_names import EMOJI

pytestmark = pytest.mark.full

ONLY_IN_MARIADB = ("UUID", "INET6", "INET4", "JSON")
MARIADB_TYPES = TestMariadbCapture.TYPES
del TestMariadbCapture  # or it would be collected here once more


@pytest.fixture(scope="module")
def server() -> Iterator[MysqlServer]:
    try:
        with mysql_server() as server:
            yield server
    except NoMysqlServerError as error:
        pytest.skip(str(error))


@pytest.fixture
def database(server: MysqlServer) -> Iterator[MariadbDatabase]:
    with closing(MariadbDatabase(server)) as database:
        yield database


class TestMysqlCapture(CaptureSourceContract):
    BACKSLASH: ClassVar[str] = "\\\\"
    QUOTE: ClassVar[str] = "`"
    NOT_NAMES: ClassVar[frozenset[str]] = frozenset(EMOJI)  # of more than two bytes in UTF-16
    TYPES: ClassVar[Sequence[TypeCase]] = (
        *(
            case
            for case in MARIADB_TYPES
            if case.declared not in ONLY_IN_MARIADB and not case.declared.endswith(" COMPRESSED")
        ),
        TypeCase(
            "JSON",
            """'{"b": [1, 2.50, -3e100, null, true], "a": {"é": "x\\\\ty"}}'""",
            '{"a": {"é": "x\\ty"}, "b": [1, 2.5, -3e100, null, true]}',
            Scalar.STRING,
        ),
        TypeCase(
            "JSON",
            "CAST('[9223372036854775808, 70000, -70000, 65535]' AS JSON)",
            "[9223372036854775808, 70000, -70000, 65535]",
            Scalar.STRING,
        ),
        TypeCase(
            "JSON",
            "JSON_ARRAY(CAST(1.50 AS DECIMAL(5,2)), CAST('2026-01-02 03:04:05' AS DATETIME), "
            "CAST('-10:00:00' AS TIME), CAST('2026-01-02' AS DATE))",
            '[1.50, "2026-01-02 03:04:05.000000", "-10:00:00.000000", "2026-01-02"]',
            Scalar.STRING,
        ),
    )

    def test_a_prepared_transaction_is_not_lost_by_a_restart(
        self, database: MariadbDatabase
    ) -> None:
        database.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, item VARCHAR(100), amount INTEGER)",
            "CREATE TABLE marks (id INTEGER PRIMARY KEY)",
        )
        with closing(following(database, "orders", "marks")) as followed:
            for step in ("XA START 'one'", "INSERT INTO orders VALUES (1, 'tea', 1)"):
                database.execute(step, session="two phases")
            database.execute("XA END 'one'", "XA PREPARE 'one'", session="two phases")
            assert followed.catch_up() == []
            position = followed.position
        database.execute("XA COMMIT 'one'", session="two phases")
        with closing(following(database, "orders", "marks", after=position)) as second:
            assert second.catch_up() == [order("c", 1, "tea", 1)]
