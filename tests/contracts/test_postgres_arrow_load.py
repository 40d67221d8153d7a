"""A table of a real PostgreSQL straight to Arrow."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from millstream import App
from millstream.capture.change import CapturedTable
from millstream.capture.load.arrow_load import NotInArrow, arrow_load
from millstream.capture.postgres.connection import conninfo_of
from millstream.capture.postgres.source import PostgresSource
from millstream.captures import NoArrowFrom
from tests.support.postgres_server import LOGICAL, PostgresServer, postgres_server

pytestmark = pytest.mark.full

TYPES = {
    "id": "int",
    "large": "bigint",
    "small": "smallint",
    "is_it": "boolean",
    "text": "text",
    "bytes": "bytea",
    "price": "numeric(10,2)",
    "exact": "numeric",
    "real_one": "double precision",
    "day": "date",
    "at": "timestamptz",
    "local": "timestamp",
    "numbers": "int[]",
    "words": "text[]",
    "document": "jsonb",
    "range": "int4range",
}
ROW = """
1, 9223372036854775807, -32768, true, E'a "quoted",\\nline', '\\x00ff', 12.30, 1.230, 'NaN',
'2026-01-31', '2026-01-31 12:00:00.123456+01', '2026-01-31 12:00:00', '{1,NULL,3}', '{"a,b",""}',
'{"a": 1}', '[1,5)'
"""
EXPECTED = {
    "id": 1,
    "large": 9223372036854775807,
    "small": -32768,
    "is_it": True,
    "text": 'a "quoted",\nline',
    "bytes": b"\x00\xff",
    "price": Decimal("12.30"),
    "exact": "1.230",
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 11, 0, 0, 123456, tzinfo=UTC),
    "local": datetime(2026, 1, 31, 12),
    "numbers": [1, None, 3],
    "words": ["a,b", ""],
    "document": '{"a": 1}',
    "range": "[1,5)",
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(LOGICAL) as server:
        yield server


@pytest.fixture
def db(server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(conninfo_of(server.url, capture="shop"), autocommit=True) as db:
        db.execute("DROP TABLE IF EXISTS public.things")
        columns = ", ".join(f"{name} {declared}" for name, declared in TYPES.items())
        db.execute(f"CREATE TABLE public.things ({columns})".encode())
        yield db


def things(server: PostgresServer) -> CapturedTable:
    source = PostgresSource(
        server.url, capture="shop", tables=["things"], topic_of=lambda name: name
    )
    with closing(source):
        (table,) = source.tables()
    return table


def loaded(server: PostgresServer, db: psycopg.Connection[Any]) -> pa.Table:
    with arrow_load(db, things(server)) as load:
        return load.to_table()


def test_every_type_arrives_as_the_topic_has_it(
    server: PostgresServer, db: psycopg.Connection[Any]
) -> None:
    db.execute(f"INSERT INTO public.things VALUES ({ROW})".encode())
    (row,) = loaded(server, db).to_pylist()
    real = row.pop("real_one")
    assert real != real  # NaN
    assert row == EXPECTED


def test_null_is_not_an_empty_text(server: PostgresServer, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO public.things (id, text) VALUES (1, ''), (NULL, NULL)")
    first, second = loaded(server, db).to_pylist()
    assert (first["text"], first["words"], first["bytes"]) == ("", None, None)
    assert set(second.values()) == {None}


def test_an_empty_table_has_its_columns(
    server: PostgresServer, db: psycopg.Connection[Any]
) -> None:
    found = loaded(server, db)
    assert found.num_rows == 0
    assert found.schema.names == [*TYPES]
    assert found.schema.field("price").type == pa.decimal128(10, 2)


def test_many_rows_come_in_batches_of_one_snapshot(
    server: PostgresServer, db: psycopg.Connection[Any]
) -> None:
    db.execute(
        "INSERT INTO public.things (id, text) SELECT g, repeat('x', 100)"
        " FROM generate_series(1, 100000) g"
    )
    with arrow_load(db, things(server)) as load, psycopg.connect(server.url) as other:
        batches = load.batches()
        ids = [next(batches).column("id")]
        other.execute("DELETE FROM public.things")
        other.commit()
        ids += [batch.column("id") for batch in batches]
        assert load.position > "0/0"
    assert len(ids) > 1
    assert sorted(pa.chunked_array(ids).to_pylist()) == list(range(1, 100_001))


def test_a_load_that_is_left_early_leaves_a_connection_that_works(
    server: PostgresServer, db: psycopg.Connection[Any]
) -> None:
    db.execute("INSERT INTO public.things (id) SELECT g FROM generate_series(1, 200000) g")
    with arrow_load(db, things(server)) as load:
        next(load.batches())
    assert db.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("column", "value"), [("at", "'infinity'"), ("price", "'NaN'"), ("numbers", "'{{1},{2}}'")]
)
def test_a_value_that_its_type_cannot_hold_is_named(
    server: PostgresServer, db: psycopg.Connection[Any], column: str, value: str
) -> None:
    db.execute(f"INSERT INTO public.things ({column}) VALUES ({value})".encode())
    with pytest.raises(NotInArrow, match=r"public\.things cannot be loaded into Arrow"):
        loaded(server, db)
    assert db.execute("SELECT 1").fetchall() == [(1,)]


def test_an_application_gets_a_table_whole(
    server: PostgresServer, db: psycopg.Connection[Any], tmp_path: Path
) -> None:
    db.execute(f"INSERT INTO public.things VALUES ({ROW})".encode())
    with App("shop", data=tmp_path / "shop") as app:
        shop = app.capture(server.url, tables=["things"], name="shop")
        assert shop.arrow("things").column("text").to_pylist() == ['a "quoted",\nline']


def test_other_databases_say_what_to_do_instead(tmp_path: Path) -> None:
    with App("shop", data=tmp_path / "shop") as app:
        shop = app.capture(f"sqlite:///{tmp_path}/shop.db", tables=["things"])
        with pytest.raises(NoArrowFrom, match="not from sqlite: make a view"):
            shop.arrow("things")
