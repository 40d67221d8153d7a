"""How fast do rows get into a view in PostgreSQL, and out again?

    python -m bench.postgres_views                  # some two minutes
    python -m bench.postgres_views --rows 10000

It starts a PostgreSQL server of its own on loopback, which syncs its log as it does by default.
Each way upserts the same batches into a table of its own with the same columns and key: rows of
five columns, half of whose keys are there already. Ways take turns; a figure is the best of three
batches after the first. Rows for each second, on the clock; other work on the machine lowers all.

    row by row         execute(INSERT ... ON CONFLICT DO UPDATE), in one transaction
    executemany        the same, by psycopg's executemany, which sends without waiting
    COPY, text         COPY of Python's rows into a temporary table, and one INSERT ... SELECT
    COPY, binary       the same in COPY's binary format
    a view             what a job does: Arrow in, netted, COPY, merged by key, receipt
    a view, 2 parts    the same, staged by two processes

Then `get` of one row, one after the other, while nothing writes and while batches are written.
"""

import argparse
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import psycopg
import pyarrow as pa
from tests.support.postgres_server import postgres_server

from millstream.base.ports import BatchReceipt
from millstream.schemas.declaration import schema_of
from millstream.views.stores.postgres.staging import PostgresStaging, StagedPart
from millstream.views.stores.postgres.store import PostgresStore, PostgresView

ROUNDS = 4  # the first one finds an empty table, and does not count
# One by one takes long, and its rate does not depend on how many.
SLOW_ROWS_MAX = 5_000
COLUMNS = "id BIGINT, name STRING, price DECIMAL(12, 2), at TIMESTAMP, n INT"
TABLE = "id bigint PRIMARY KEY, name text, price numeric(12,2), at timestamptz, n integer"
REPLACING = "name = EXCLUDED.name, price = EXCLUDED.price, at = EXCLUDED.at, n = EXCLUDED.n"
ON_CONFLICT = f"ON CONFLICT (id) DO UPDATE SET {REPLACING}"

Way = Callable[[pa.Table], None]


def batch(rows: int, number: int) -> pa.Table:
    """Keys are of a space of twice the rows: a new batch finds half of its own."""
    return rows_of(random.Random(number).sample(range(2 * rows), rows))


def rows_of(ids: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"customer {one % 1000}" for one in ids]),
            "price": pa.array(ids, pa.int64())
            .cast(pa.decimal128(20, 0))
            .cast(pa.decimal128(24, 2)),
            "at": pa.array([1_700_000_000_000_000 + one for one in ids], pa.timestamp("us", "UTC")),
            "n": pa.array([one % 7 for one in ids], pa.int32()),
        }
    ).cast(batch_schema())


def batch_schema() -> pa.Schema:
    names = ["id", "name", "price", "at", "n"]
    kinds = [pa.int64(), pa.string(), pa.decimal128(12, 2), pa.timestamp("us", "UTC"), pa.int32()]
    return pa.schema(list(zip(names, kinds, strict=True)))


# --- the ways


@contextmanager
def naive_way(url: str, table: str, write: Callable[[Any, str, list[Any]], None]) -> Iterator[Way]:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE TABLE {table} ({TABLE})".encode())

        def run(rows: pa.Table) -> None:
            with db.transaction():
                write(db, table, [tuple(row.values()) for row in rows.to_pylist()])

        yield run


def row_by_row(db: Any, table: str, rows: list[Any]) -> None:
    for row in rows:
        db.execute(f"INSERT INTO {table} VALUES (%s, %s, %s, %s, %s) {ON_CONFLICT}", row)


def by_executemany(db: Any, table: str, rows: list[Any]) -> None:
    statement = f"INSERT INTO {table} VALUES (%s, %s, %s, %s, %s) {ON_CONFLICT}"
    db.cursor().executemany(statement, rows)


def by_copy(db: Any, table: str, rows: list[Any], *, binary: bool) -> None:
    db.execute(f"CREATE TEMPORARY TABLE batch (LIKE {table}) ON COMMIT DROP")
    form = " (FORMAT BINARY)" if binary else ""
    with db.cursor().copy(f"COPY batch FROM STDIN{form}") as copy:
        if binary:
            copy.set_types(["int8", "text", "numeric", "timestamptz", "int4"])
        for row in rows:
            copy.write_row(row)
    db.execute(f"INSERT INTO {table} SELECT * FROM batch {ON_CONFLICT}")


def receipt(epoch: int, number: int) -> BatchReceipt:
    return BatchReceipt(job="bench", epoch=epoch, query="a", batch=number)


@contextmanager
def view_way(url: str, view: str) -> Iterator[Way]:
    with closing(opened(url, view).writer(1)) as writer:
        epoch = writer.claim("bench", schema_of(COLUMNS))
        numbers = iter(range(1000))
        yield lambda rows: _require(writer.write(receipt(epoch, next(numbers)), rows))


@contextmanager
def staged_way(url: str, view: str) -> Iterator[Way]:
    with closing(opened(url, view).writer(1)) as writer, ProcessPoolExecutor(2) as processes:
        epoch = writer.claim("bench", schema_of(COLUMNS))
        numbers = iter(range(1000))
        list(processes.map(abs, range(8)))  # they are started

        def run(rows: pa.Table) -> None:
            stage_and_commit(writer, processes, receipt(epoch, next(numbers)), rows)

        yield run


def stage_and_commit(
    writer: PostgresView, processes: ProcessPoolExecutor, given: BatchReceipt, rows: pa.Table
) -> None:
    half = rows.num_rows // 2
    parts = [rows.slice(0, half), rows.slice(half)]
    staging = [writer.staging(given)] * 2
    facts = list(processes.map(stage, staging, range(2), [one.to_batches() for one in parts]))
    _require(writer.commit(given, facts))


def stage(staging: PostgresStaging, part: int, batches: list[pa.RecordBatch]) -> StagedPart:
    return staging.stage(part, iter(batches))


def opened(url: str, view: str) -> PostgresStore:
    return PostgresStore(url, schema="bench", view=view, key=("id",))


def _require(is_new: bool) -> None:
    assert is_new, "a batch was taken for a repeated one"


# --- what is measured


def measure_writes(url: str, rows: int) -> None:
    slow = min(rows, SLOW_ROWS_MAX)
    with (
        naive_way(url, "slow", row_by_row) as first,
        naive_way(url, "many", by_executemany) as second,
        naive_way(url, "texts", lambda *all: by_copy(*all, binary=False)) as third,
        naive_way(url, "binaries", lambda *all: by_copy(*all, binary=True)) as fourth,
        view_way(url, "whole") as fifth,
        staged_way(url, "parts") as sixth,
    ):
        ways = {
            "row by row": (first, slow),
            "executemany": (second, rows),
            "COPY, text": (third, rows),
            "COPY, binary": (fourth, rows),
            "a view": (fifth, rows),
            "a view, 2 parts": (sixth, rows),
        }
        report(rates(ways))


def rates(ways: dict[str, tuple[Way, int]]) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS):
        for name, (way, rows) in ways.items():
            table = batch(rows, number)
            started = time.perf_counter()
            way(table)
            found[name].append(rows / (time.perf_counter() - started))
    return {name: max(rates[1:]) for name, rates in found.items()}


def report(found: dict[str, float]) -> None:
    naive = found["row by row"]
    for name, rate in found.items():
        print(f"{name:18}{rate:10,.0f} rows/s   {rate / naive:5.1f} x row by row", flush=True)


def measure_gets(url: str, rows: int) -> None:
    with view_way(url, "read") as write, opened(url, "read").reader() as reader:
        write(batch(rows, 0))
        told("get, quiet", [timed(partial(reader.get, key)) for key in range(2_000)])
        stop = threading.Event()
        writing = threading.Thread(target=write_until, args=(stop, write, rows))
        writing.start()
        told("get, while written", [timed(partial(reader.get, key)) for key in range(2_000)])
        stop.set()
        writing.join()


def write_until(stop: threading.Event, write: Way, rows: int) -> None:
    for number in range(1, 1000):
        if stop.is_set():
            return
        write(batch(min(rows, 2_000), number))


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def told(what: str, seconds: list[float]) -> None:
    p50, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
    print(f"{what:18}  p50 {p50 * 1e3:6.2f} ms   p99 {p99 * 1e3:6.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=50_000, help="of each batch")
    rows = parser.parse_args().rows
    with postgres_server({}) as server:
        measure_writes(server.url, rows)
        measure_gets(server.url, rows)


if __name__ == "__main__":
    main()
