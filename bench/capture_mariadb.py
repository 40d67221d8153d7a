"""A captured MariaDB, with its binlog, without syncs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tests.support.mariadb_server import (
    CAPTURED,
    DATABASE,
    PASSWORD,
    USER,
    MariadbServer,
    mariadb_server,
)

from bench.capture_databases import RatioGoals
from bench.debezium import MARIADB_JARS, MARIADB_VERSION

SETTINGS = {**CAPTURED, "innodb-buffer-pool-size": "512M", "innodb-log-file-size": "512M"}
TABLES = (
    "DROP TABLE IF EXISTS orders, marks",
    """CREATE TABLE orders (
         id bigint PRIMARY KEY, customer int NOT NULL, status varchar(20) NOT NULL,
         amount decimal(12, 2), note text, placed_at timestamp(6) NOT NULL, sent_us bigint NOT NULL
       )""",
    "CREATE TABLE marks (id int PRIMARY KEY, mark int NOT NULL)",
    "INSERT INTO marks VALUES (1, 0)",
)
FILL = """
INSERT INTO orders SELECT seq, seq % 9973, 'new', seq % 100000 / 100.0,
  concat('Please ring twice, the bell of number ', seq, ' is quiet'),
  timestamp '2026-01-02 00:00:00' + INTERVAL seq * 1.5 SECOND, 0
FROM seq_1_to_{rows}
"""
UPDATE_FIRST = "UPDATE orders SET status = 'paid', amount = amount + 1 WHERE id <= {rows}"
UPDATE_EACH = (
    "DROP PROCEDURE IF EXISTS update_each",
    """CREATE PROCEDURE update_each(updates int, total int) BEGIN
         DECLARE n bigint DEFAULT 1;
         WHILE n <= updates DO
           UPDATE orders SET status = 'sent', amount = amount + 1 WHERE id = n * 7919 % total + 1;
           SET n = n + 1;
         END WHILE;
       END""",
)
MARK = "UPDATE marks SET mark = mark + 1"
SERVER_IDS_FROM = 7_000


class MariadbDatabase:
    jars = MARIADB_JARS
    debezium = MARIADB_VERSION
    password = PASSWORD
    has_slots = False
    goals = RatioGoals(changes=2.0)

    def __init__(self, server: MariadbServer) -> None:
        self._server = server
        self._db = server.connect()
        self._rows = self._connectors = 0

    @property
    def url(self) -> str:
        return self._server.url.replace(f":{PASSWORD}@", ":${BENCH_PASSWORD}@")

    @property
    def version(self) -> str:
        with self._db.cursor() as cursor:
            cursor.execute("SELECT version()")
            (version,) = cursor.fetchone() or ("",)
        return f"MariaDB {version}"

    # --- loads --------------------------------------------------------------------------------

    def fill(self, rows: int) -> None:
        self._run(*TABLES, FILL.format(rows=rows), *UPDATE_EACH)
        self._rows = rows

    def update_at_once(self, rows: int) -> None:
        self._run(UPDATE_FIRST.format(rows=rows))

    def update_singly(self, count: int) -> None:
        self._run(f"CALL update_each({count}, {self._rows})")

    def mark(self) -> None:
        self._run(MARK)

    def update_one(self, number: int, *, sent_us: int) -> None:
        self._run(f"UPDATE orders SET sent_us = {sent_us} WHERE id = {number % self._rows + 1}")

    # --- captures -----------------------------------------------------------------------------

    def make_slot(self, name: str) -> None:
        raise NotImplementedError(f"{name}: a binlog has no slots")

    def forget_captures(self) -> None:
        self._run("FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE now(6)")

    def connector(self, name: str, *, has_load: bool) -> Mapping[str, str]:
        self._connectors += 1
        return {
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.server.id": str(SERVER_IDS_FROM + self._connectors),
            "database.include.list": DATABASE,
            "table.include.list": f"{DATABASE}.orders,{DATABASE}.marks",
            "topic.prefix": name,
            "snapshot.mode": "initial" if has_load else "no_data",
            "include.schema.changes": "false",
            "decimal.handling.mode": "string",
        }

    def topic_of(self, name: str, table: str) -> str:
        return f"{name}.{DATABASE}.{table}"

    def _run(self, *statements: str) -> None:
        with self._db.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


@contextmanager
def mariadb_database() -> Iterator[MariadbDatabase]:
    with mariadb_server(SETTINGS) as server:
        yield MariadbDatabase(server)
