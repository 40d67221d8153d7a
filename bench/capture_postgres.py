"""A captured PostgreSQL, without syncs: the loads are not what is measured."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from tests.support.postgres_server import PASSWORD, USER, PostgresServer, postgres_server
from tests.support.waiting import eventually

from bench.capture_databases import RatioGoals
from bench.debezium import POSTGRES_JARS, POSTGRES_VERSION

SETTINGS = {
    "fsync": "off",
    "wal_level": "logical",
    "max_wal_size": "8GB",
    "shared_buffers": "512MB",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
}
TABLES = """
DROP TABLE IF EXISTS orders, marks;
CREATE TABLE orders (
  id bigint PRIMARY KEY, customer int NOT NULL, status text NOT NULL, amount numeric(12, 2),
  note text, placed_at timestamptz NOT NULL, sent_us bigint NOT NULL
);
CREATE TABLE marks (id int PRIMARY KEY, mark int NOT NULL);
INSERT INTO marks VALUES (1, 0)
"""
FILL = """
INSERT INTO orders SELECT n, n % 9973, 'new', n % 100000 / 100.0,
  'Please ring twice, the bell of number ' || n || ' is quiet',
  timestamptz '2026-01-01 00:00:00+00' + n * interval '1.5 s', 0
FROM generate_series(1, {rows}) n
"""
UPDATE_FIRST = "UPDATE orders SET status = 'paid', amount = amount + 1 WHERE id <= {rows}"
UPDATE_EACH = """
DO $$ BEGIN
  FOR n IN 1..{count} LOOP
    UPDATE orders SET status = 'sent', amount = amount + 1 WHERE id = n::bigint * 7919 % {rows} + 1;
    COMMIT;
  END LOOP;
END $$
"""
UNREAD_WITHIN_S = 120.0
UPDATE_ONE = "UPDATE orders SET sent_us = %s WHERE id = %s"
MARK = "UPDATE marks SET mark = mark + 1"


class PostgresDatabase:
    jars = POSTGRES_JARS
    debezium = POSTGRES_VERSION
    password = PASSWORD
    has_slots = True
    goals = RatioGoals(changes=4.0, load=5.0)

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._db: psycopg.Connection[Any] = psycopg.connect(server.url, autocommit=True)
        self._rows = 0

    @property
    def url(self) -> str:
        return self._server.url_of("${BENCH_PASSWORD}")

    @property
    def version(self) -> str:
        return f"PostgreSQL {self._db.info.parameter_status('server_version')}"

    # --- loads --------------------------------------------------------------------------------

    def fill(self, rows: int) -> None:
        self._run(TABLES)
        self._run(FILL.format(rows=rows))
        self._run("VACUUM ANALYZE orders")
        self._run("CHECKPOINT")
        self._rows = rows

    def update_at_once(self, rows: int) -> None:
        self._run(UPDATE_FIRST.format(rows=rows))

    def update_singly(self, count: int) -> None:
        self._run(UPDATE_EACH.format(count=count, rows=self._rows))

    def mark(self) -> None:
        self._run(MARK)

    def update_one(self, number: int, *, sent_us: int) -> None:
        self._db.execute(UPDATE_ONE, (sent_us, number % self._rows + 1))

    # --- captures -----------------------------------------------------------------------------

    def make_slot(self, name: str) -> None:
        self._run(f"CREATE PUBLICATION {name} FOR TABLE orders, marks")
        self._run(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")

    def forget_captures(self) -> None:
        eventually(self._is_unread, what="slots that nobody reads", within_s=UNREAD_WITHIN_S)
        self._run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
        for (name,) in self._db.execute("SELECT pubname FROM pg_publication").fetchall():
            self._run(f"DROP PUBLICATION {name}")

    def connector(self, name: str, *, has_load: bool) -> Mapping[str, str]:
        return {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(self._server.port),
            "database.user": USER,
            "database.password": PASSWORD,
            "database.dbname": "postgres",
            "plugin.name": "pgoutput",
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "disabled",
            "topic.prefix": name,
            "table.include.list": "public.orders,public.marks",
            "snapshot.mode": "initial" if has_load else "no_data",
            "decimal.handling.mode": "string",
        }

    def topic_of(self, name: str, table: str) -> str:
        return f"{name}.public.{table}"

    def _is_unread(self) -> bool:
        """The server notices a while later that a reader has gone."""
        found = self._db.execute("SELECT count(*) FROM pg_replication_slots WHERE active")
        return found.fetchone() == (0,)

    def _run(self, statement: str) -> None:
        self._db.execute(statement.encode())


@contextmanager
def postgres_database() -> Iterator[PostgresDatabase]:
    with postgres_server(SETTINGS) as server:
        yield PostgresDatabase(server)
