"""How fast do rows get into a view in each store, against the naive way into the same store?

    python -m bench.store_rates                       # all; some five minutes
    python -m bench.store_rates --only redis topic --rows 10000
    python -m bench.store_rates --only delta --make-spark     # first fetches a Spark (450 MB)

Servers and the broker are started here, on loopback, and sync as they do by default. Each way
upserts batches of rows with five columns by their key, each into a place of its own; half of the
keys of a batch are there already. Ways of a store take turns over the same batches, which are
Arrow tables at first; where it says "from Spark", they are in Spark's memory. A figure is the
median of three batches after one that does not count; of slow ways, batches are smaller.

    sqlite     one executemany(INSERT OR REPLACE) of dictionaries; a transaction for each row
    postgres   INSERT ... ON CONFLICT row by row; Spark's JDBC append, which cannot replace rows
    redis      SET of each row
    delta      delta-spark's MERGE, in Spark 4.2: of its builds none runs on 4.3; deltalake's own
    parquet    pandas: read the file, put the batch in, write the file
    parquet-growing   the same, where new keys are the highest, as times are; ten batches are there
    search     tantivy: delete and add each row, a commit for each thousand
    topic      produce and flush of each row
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.postgres_server import postgres_server
from tests.support.redis_server import RedisServer

from bench.postgres_views import COLUMNS, TABLE, batch, naive_way, row_by_row, rows_of
from bench.spark_jars import store_jars
from millstream import Broker, stores
from millstream.base.ports import BatchReceipt
from millstream.schemas.declaration import schema_of
from millstream.views.store import Home, StoreChoice

ROUNDS = 4  # the first one finds nothing there, and does not count
SLOW_ROWS_MAX = 2_000
COMMIT_ROWS = 1_000
PRESENT_BATCHES = 10
GOAL = 3.0
MERGE_SPARK = "4.2.0"
MERGE_PYTHON = Path(__file__).parents[1] / ".cache" / f"spark-{MERGE_SPARK}" / "bin" / "python"
SQLITE_TABLE = "id INTEGER PRIMARY KEY, name TEXT, price TEXT, at TEXT, n INTEGER"
SQLITE_PUT = "INSERT OR REPLACE INTO rows VALUES (:id, :name, :price, :at, :n)"

# What is timed: one batch, ready to be written.
Ready = Callable[[], object]
# What is not: to bring a batch to where the way starts from.
Way = Callable[[pa.Table], Ready]


@dataclass(frozen=True, slots=True)
class Rival:
    """A way that is measured; `rows_max` of a batch, if it is slow."""

    name: str
    opened: AbstractContextManager[Way]
    rows_max: int | None = None


@dataclass(frozen=True, slots=True)
class Contest:
    """A store: the view in it, what it is compared with, and the batches by size and number."""

    ours: Rival
    naive: Sequence[Rival]
    batches: Callable[[int, int], pa.Table] = batch


# --- a view


@contextmanager
def view_way(choice: StoreChoice, home: Home) -> Iterator[Way]:
    with closing(choice.open("rates", ("id",), home).writer(1)) as writer:
        epoch = writer.claim("bench", schema_of(COLUMNS))
        numbers = iter(range(1_000))

        def write(rows: pa.Table) -> None:
            receipt = BatchReceipt(job="bench", epoch=epoch, query="a", batch=next(numbers))
            assert writer.write(receipt, rows), "a batch was taken for a repeated one"

        yield lambda rows: partial(write, rows)


# --- SQLite


@contextmanager
def sqlite_way(path: Path, put: Callable[[sqlite3.Connection, pa.Table], None]) -> Iterator[Way]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"CREATE TABLE rows ({SQLITE_TABLE})")
        yield lambda rows: partial(put, db, rows)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """With texts for what SQLite and JSON do not know."""
    return row | {"price": str(row["price"]), "at": row["at"].isoformat()}


def put_many(db: sqlite3.Connection, rows: pa.Table) -> None:
    db.execute("BEGIN")
    db.executemany(SQLITE_PUT, map(plain, rows.to_pylist()))
    db.execute("COMMIT")


def put_each(db: sqlite3.Connection, rows: pa.Table) -> None:
    for row in rows.to_pylist():
        db.execute(SQLITE_PUT, plain(row))


# --- PostgreSQL


@contextmanager
def by_row_way(url: str) -> Iterator[Way]:
    with naive_way(url, "by_row", row_by_row) as write:
        yield lambda rows: partial(write, rows)


@contextmanager
def from_spark_way(spark: Any, way: AbstractContextManager[Way]) -> Iterator[Way]:
    """A view, as a job writes it: out of Spark first."""
    with way as write:

        def ready(rows: pa.Table) -> Ready:
            frame = in_memory(spark, rows)
            return lambda: write(frame.toArrow())()

        yield ready


@contextmanager
def jdbc_way(spark: Any, url: str) -> Iterator[Way]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE TABLE by_jdbc ({TABLE.replace('PRIMARY KEY', '')})".encode())
    login, _, place = url.removeprefix("postgresql://").partition("@")
    user, _, password = login.partition(":")
    properties = {"user": user, "password": password, "driver": "org.postgresql.Driver"}

    def ready(rows: pa.Table) -> Ready:
        frame, to = in_memory(spark, rows), f"jdbc:postgresql://{place}"
        return lambda: frame.write.jdbc(to, "by_jdbc", mode="append", properties=properties)

    yield ready


def in_memory(spark: Any, rows: pa.Table) -> Any:
    frame = spark.createDataFrame(rows).cache()
    frame.count()
    return frame


@contextmanager
def opened_spark() -> Iterator[Any]:
    from millstream.processing.session import open_session

    settings = {"spark.jars": store_jars()}
    spark = open_session("rates", master="local[2]", settings=settings, log_level="off")
    yield spark
    spark.stop()


# --- Redis


@contextmanager
def redis_way(url: str) -> Iterator[Way]:
    import redis

    with redis.Redis.from_url(url) as client:

        def put(rows: pa.Table) -> None:
            for row in rows.to_pylist():
                client.set(f"naive:{row['id']}", json.dumps(plain(row)))

        yield lambda rows: partial(put, rows)


# --- Delta


@contextmanager
def merge_way(directory: Path) -> Iterator[Way]:
    """In a process with its own Spark, which is told where each batch is."""
    command = [str(MERGE_PYTHON), str(Path(__file__).with_name("delta_merge.py"))]
    numbers = iter(range(1_000))
    with subprocess.Popen(
        [*command, store_jars(), str(directory / "merged")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as spark:
        assert spark.stdin is not None
        assert spark.stdout is not None
        asked, answers = spark.stdin, spark.stdout

        def merge(path: Path) -> None:
            print(path, file=asked, flush=True)
            if answers.readline() != "merged\n":
                raise RuntimeError("delta-spark did not merge a batch")

        def ready(rows: pa.Table) -> Ready:
            path = directory / f"batch-{next(numbers)}.parquet"
            pq.write_table(rows, path)
            return partial(merge, path)

        yield ready
        asked.close()


@contextmanager
def deltalake_way(directory: Path) -> Iterator[Way]:
    from deltalake import DeltaTable, write_deltalake

    path = str(directory / "deltalake")

    def merge(rows: pa.Table) -> None:
        if not DeltaTable.is_deltatable(path):
            write_deltalake(path, rows)
            return
        merging = DeltaTable(path).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    yield lambda rows: partial(merge, rows)


def make_merge_spark() -> None:
    """The newest Spark that delta-spark has a build for, in an environment of its own."""
    home = MERGE_PYTHON.parents[1]
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    pip = [str(MERGE_PYTHON), "-m", "pip", "install", "--quiet", f"pyspark=={MERGE_SPARK}"]
    subprocess.run(pip, check=True)


# --- Parquet


@contextmanager
def pandas_way(directory: Path) -> Iterator[Way]:
    import pandas as pd

    path = directory / "rows.parquet"

    def put(rows: pa.Table) -> None:
        new = rows.to_pandas()
        if path.exists():
            both = pd.concat([pd.read_parquet(path), new])
            new = both.drop_duplicates("id", keep="last")
        new.to_parquet(path)

    yield lambda rows: partial(put, rows)


def growing_batch(rows: int, number: int) -> pa.Table:
    """Half of its keys are the highest that are there, half are higher."""
    if number == 0:
        return rows_of(range(PRESENT_BATCHES * rows))
    start = PRESENT_BATCHES * rows + (number - 2) * rows // 2
    return rows_of(range(start, start + rows))


# --- search


@contextmanager
def tantivy_way(directory: Path) -> Iterator[Way]:
    import tantivy

    build = tantivy.SchemaBuilder().add_text_field("id", stored=True, tokenizer_name="raw")
    schema = build.add_text_field("name", stored=True).add_json_field("row", stored=True).build()
    path = directory / "tantivy"
    path.mkdir()
    index = tantivy.Index(schema, path=str(path))

    def put(rows: pa.Table) -> None:
        for start in range(0, rows.num_rows, COMMIT_ROWS):
            writer = index.writer()
            for row in rows.slice(start, COMMIT_ROWS).to_pylist():
                writer.delete_documents_by_term("id", str(row["id"]))
                found = {"id": str(row["id"]), "name": row["name"], "row": plain(row)}
                writer.add_document(tantivy.Document.from_dict(found, schema))
            writer.commit()
            writer.wait_merging_threads()

    yield lambda rows: partial(put, rows)


# --- a topic


@contextmanager
def produce_way(brokers: str) -> Iterator[Way]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0})

    def put(rows: pa.Table) -> None:
        for row in rows.to_pylist():
            producer.produce("naive", key=str(row["id"]), value=json.dumps(plain(row)))
            assert producer.flush(30) == 0

    yield lambda rows: partial(put, rows)


# --- the contests


@contextmanager
def contest(store: str, directory: Path) -> Iterator[Contest]:
    """With the servers that it needs."""
    with ExitStack() as servers:
        yield CONTESTS[store](directory, servers)


def sqlite_contest(directory: Path, servers: ExitStack) -> Contest:
    many, each = directory / "many.sqlite", directory / "each.sqlite"
    return Contest(
        Rival("a view", view_way(stores.Sqlite(), Home(app="rates", data=directory))),
        [
            Rival("executemany", sqlite_way(many, put_many)),
            Rival("row by row", sqlite_way(each, put_each), SLOW_ROWS_MAX),
        ],
    )


def postgres_contest(directory: Path, servers: ExitStack) -> Contest:
    url = servers.enter_context(postgres_server({})).url
    spark = servers.enter_context(opened_spark())
    view = view_way(stores.Postgres(url), Home(app="rates", data=directory))
    return Contest(
        Rival("a view, from Spark", from_spark_way(spark, view)),
        [
            Rival("JDBC append, from Spark", jdbc_way(spark, url)),
            Rival("row by row", by_row_way(url), SLOW_ROWS_MAX),
        ],
    )


def redis_contest(directory: Path, servers: ExitStack) -> Contest:
    url = servers.enter_context(RedisServer()).url
    return Contest(
        Rival("a view", view_way(stores.Redis(url), Home(app="rates", data=directory))),
        [Rival("SET of each row", redis_way(url), SLOW_ROWS_MAX)],
    )


def delta_contest(directory: Path, servers: ExitStack) -> Contest:
    naive = [Rival("deltalake's merge", deltalake_way(directory))]
    if MERGE_PYTHON.exists():
        naive.insert(0, Rival(f"MERGE in Spark {MERGE_SPARK}", merge_way(directory)))
    else:
        print(f"no {MERGE_PYTHON}, so no MERGE of delta-spark: --make-spark makes it")
    home = Home(app="rates", data=directory)
    return Contest(Rival("a view", view_way(stores.Delta(directory / "lake"), home)), naive)


def parquet_contest(directory: Path, servers: ExitStack) -> Contest:
    home = Home(app="rates", data=directory)
    return Contest(
        Rival("a view", view_way(stores.Parquet(directory / "files"), home)),
        [Rival("pandas, the whole file", pandas_way(directory))],
    )


def growing_contest(directory: Path, servers: ExitStack) -> Contest:
    random_keys = parquet_contest(directory, servers)
    return Contest(random_keys.ours, random_keys.naive, growing_batch)


def search_contest(directory: Path, servers: ExitStack) -> Contest:
    home = Home(app="rates", data=directory)
    return Contest(
        Rival("a view", view_way(stores.SearchIndex(text=["name"]), home)),
        [Rival("tantivy, a thousand a commit", tantivy_way(directory))],
    )


def topic_contest(directory: Path, servers: ExitStack) -> Contest:
    brokers = servers.enter_context(Broker(auto_create_topics=True)).bootstrap
    home = Home(app="rates", data=directory, client={"bootstrap.servers": brokers})
    return Contest(
        Rival("a view", view_way(stores.Topic("rates"), home)),
        [Rival("flush of each row", produce_way(brokers), SLOW_ROWS_MAX)],
    )


CONTESTS: dict[str, Callable[[Path, ExitStack], Contest]] = {
    "sqlite": sqlite_contest,
    "postgres": postgres_contest,
    "redis": redis_contest,
    "delta": delta_contest,
    "parquet": parquet_contest,
    "parquet-growing": growing_contest,
    "search": search_contest,
    "topic": topic_contest,
}


# --- what is measured


def rates(held: Contest, rows: int) -> dict[str, float]:
    """In turns, over the same batches."""
    found: dict[str, list[float]] = {}
    with ExitStack() as opened:
        rivals = [held.ours, *held.naive]
        ways = [(one, opened.enter_context(one.opened)) for one in rivals]
        for number in range(ROUNDS):
            whole = held.batches(rows, number)
            for rival, way in ways:
                given = whole.slice(0, rival.rows_max)
                seconds = timed(way(given))
                found.setdefault(rival.name, []).append(given.num_rows / seconds)
    return {name: median(one[1:]) for name, one in found.items()}


def timed(ready: Ready) -> float:
    started = time.perf_counter()
    ready()
    return time.perf_counter() - started


def report(store: str, found: dict[str, float]) -> None:
    (ours, rate), *naive = found.items()
    print(f"{store:17}{ours:30}{rate:10,.0f} rows/s", flush=True)
    for name, slower in naive:
        ratio = rate / slower
        verdict = "met" if ratio >= GOAL else "not met"
        line = f"{'':17}{name:30}{slower:10,.0f} rows/s   the view: {ratio:5.1f}x"
        print(f"{line}   goal {GOAL:.0f}x: {verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", type=int, default=20_000, help="of each batch")
    parser.add_argument("--only", nargs="+", choices=CONTESTS, default=list(CONTESTS))
    parser.add_argument("--make-spark", action="store_true", help=f"{MERGE_SPARK}, for MERGE")
    options = parser.parse_args()
    if options.make_spark:
        make_merge_spark()
    for store in options.only:
        with (
            tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory,
            contest(store, Path(directory)) as held,
        ):
            report(store, rates(held, options.rows))


if __name__ == "__main__":
    main()
