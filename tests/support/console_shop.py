"""A shop in motion for the console, without Spark: a broker, records that come, a captured SQLite.

What jobs would do is done by hand: their status is written as a run writes it, and rows of views
with their receipts. All of it is as the console finds it in an application that runs.
"""

import contextlib
import math
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer

from millstream.app import App
from millstream.base.clock import system_clock
from millstream.base.ports import BatchReceipt
from millstream.commands.app_file import load_app
from millstream.embedded import Broker
from millstream.processing.jobs.job_status import StatusFiles
from millstream.processing.jobs.progress import JobProgress
from millstream.publishing import make_declared_topic
from millstream.queues.queue import Queue
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.schemas.declaration import schema_of
from tests.support.written_checkpoint import write_checkpoint

PAGES = ("/", "/pricing", "/basket", "/checkout", "/help", "/search?q=tea")
USERS = ("ada", "grace", "edsger", "barbara", "donald", "tony")
APPLICATION = """
import millstream as ms

app = ms.App("shop", data={data!r})
app.topic("clicks", schema="user STRING, url STRING, at TIMESTAMP", key="user", partitions=4)
app.topic("payments", schema="order_id BIGINT, amount DECIMAL(10,2), at TIMESTAMP",
          key="order_id", partitions=2)
app.topic("searches", partitions=1)
app.capture("sqlite:///{database}", tables=["orders", "customers"], name="shopdb")


@app.view(key="url")
def clicks_per_url(clicks):
    return clicks.groupBy("url").count()


@app.view(key="order_id")
def enriched_orders(orders, customers):
    return orders.join(customers, "customer_id")


@app.view(key="minute")
def revenue_per_minute(payments):
    return payments


app.topic("paid_orders")


@app.job(to="paid_orders", key="order_id")
def paid(payments, orders):
    return payments.join(orders, "order_id")


def send_mail(rows, receipt):
    pass


@app.sink(send_mail, external=True)
def receipts_by_mail(paid_orders):
    return paid_orders
"""
URLS = schema_of("url STRING, count BIGINT")
REVENUE = schema_of("minute TIMESTAMP, orders BIGINT, revenue DECIMAL(12,2)")
ENRICHED = schema_of("order_id BIGINT, customer STRING, total DECIMAL(10,2)")
ROUND_SECONDS = 0.25


class Shop:
    """`url` of the broker, `file` of the application. Moves while `moving` is open."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.bootstrap = folder, bootstrap
        self.data = folder / "shop.millstream"
        self.file = folder / "shop.py"
        database = folder / "shop.db"
        self.file.write_text(APPLICATION.format(data=str(self.data), database=database))
        self._database = sqlite3.connect(database, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.executescript(
            "CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TABLE orders (order_id INTEGER PRIMARY KEY, customer_id INTEGER, total TEXT);"
            "INSERT INTO customers VALUES (1, 'Ada'), (2, 'Grace'), (3, 'Edsger');"
        )
        self._database.commit()
        self.config = {"bootstrap.servers": bootstrap, "log_level": 2}
        self._producer = Producer(self.config | {"linger.ms": 5})
        self._clicks = self._orders = 0
        self._begun_ms = system_clock()
        self._counts = dict.fromkeys(PAGES, 0)

    @property
    def env(self) -> dict[str, str]:
        return {"MILLSTREAM_BROKERS": self.bootstrap}

    def app(self) -> App:
        return load_app(str(self.file))

    # --- what comes in

    def click(self, number: int) -> None:
        self._clicks += 1
        at = datetime.now(UTC).isoformat()
        user, page = USERS[number % len(USERS)], PAGES[number * 7 % len(PAGES)]
        self._counts[page] += 1
        value = f'{{"user":"{user}","url":"{page}","at":"{at}"}}'
        self._producer.produce("clicks", value.encode(), user.encode())
        self._producer.produce("searches", f"tea {number}".encode())
        self._producer.poll(0)

    def order(self) -> None:
        self._orders += 1
        number, at = self._orders, datetime.now(UTC).isoformat()
        row = (number, number % 3 + 1, f"{number % 90}.50")
        self._database.execute("INSERT INTO orders VALUES (?, ?, ?)", row)
        self._database.commit()
        value = f'{{"order_id":{number},"amount":"{number % 90}.50","at":"{at}"}}'
        self._producer.produce("payments", value.encode(), f"{number}".encode())
        self._producer.produce("paid_orders", value.encode(), f"{number}".encode())

    def dead_letter(self) -> None:
        """As a job would send it, of a click that nobody can decode."""
        self._producer.produce("clicks.dead", b'{"user":', b"ada")

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    # --- what jobs would do

    def move(self) -> None:
        """One round: more clicks at some times than at others."""
        for _ in range(20 + round(15 * math.sin(self._clicks / 200))):
            self.click(self._clicks)
        self.order()
        self.flush()

    def written(self) -> list[tuple[list[dict[str, Any]], dict[str, dict[int, int]]]]:
        """Rows of three views, and how far they are in their topics."""
        urls = [{"url": url, "count": count} for url, count in self._counts.items()]
        minute = datetime.now(UTC).replace(second=0, microsecond=0)
        revenue = Decimal(self._orders) * 7
        order = self._orders
        names = ("Edsger", "Ada", "Grace")
        return [
            (urls, {"clicks": {0: self._clicks}}),
            (
                [{"minute": minute, "orders": order, "revenue": revenue}],
                {"payments": {0: order - order % 5}},
            ),
            (
                [{"order_id": order, "customer": names[order % 3], "total": Decimal(order % 90)}],
                {"payments": {0: order}},
            ),
        ]

    def progress(self) -> list[JobProgress]:
        """One is well, one too slow, one was stopped, one tries again, and one has failed."""
        rows, now_ms = self._clicks, system_clock()
        lag, begun_ms = rows % 40, now_ms - self._begun_ms
        common: dict[str, Any] = {
            "state": "running",
            "generation": 1,
            "batch": rows // 50,
            "reported": datetime.now(UTC).isoformat(),
            "batch_ms": 340,
        }
        ago = datetime.now(UTC) - timedelta(seconds=12)
        return [
            JobProgress(
                job="clicks_per_url",
                rows=rows * 6,
                rows_per_second=120.0,
                watermark=ago.isoformat(timespec="milliseconds"),
                state_rows=len(PAGES),
                state_bytes=4096,
                lag={"clicks": lag},
                lag_ms={"clicks": 400 if lag else 0},
                late=3,
                dead=1,
                **common,
            ),
            JobProgress(
                job="enriched_orders",
                rows=rows // 4,
                rows_per_second=9.0,
                state_rows=300,
                state_bytes=1 << 21,
                lag={"shopdb.orders": 41_200 + rows, "shopdb.customers": 0},
                lag_ms={"shopdb.orders": 252_000 + begun_ms, "shopdb.customers": 0},
                **common,
            ),
            JobProgress(
                job="revenue_per_minute",
                rows=720,
                late=12,
                dead=0,
                **common | {"state": "stopped"},
            ),
            JobProgress(
                job="paid",
                restarts=2,
                failures=3,
                retry_at_ms=now_ms + 20_000 - begun_ms % 20_000,
                error="the broker hung up",
                **common | {"state": "waiting"},
            ),
            JobProgress(
                job="receipts_by_mail",
                state="failed",
                error="send_mail raised ConnectionRefusedError: [Errno 111] Connection refused",
            ),
        ]

    def queue_with_dead_letters(self, letters: int) -> Queue:
        queue = Queue("restock", self.config)
        queue.put_many([{"product": number, "left": number % 4} for number in range(letters + 5)])
        for _ in range(letters):
            job = queue.get(60)
            assert job is not None
            job.reject("the supplier does not know this product")
        return queue

    def group(self, name: str) -> Consumer:
        """Reads some, commits, and falls behind."""
        consumer = Consumer(
            self.config
            | {"group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe(["clicks"])
        until = time.monotonic() + 60
        while not (found := consumer.consume(20, 1.0)):
            assert time.monotonic() < until, "no record for the group"
        assert found[-1].error() is None
        consumer.commit(asynchronous=False)
        return consumer

    def close(self) -> None:
        self._database.close()


class HandMadeView:
    """What a job would write, batch by batch."""

    def __init__(self, app: App, name: str, schema: Any) -> None:
        self.schema = schema
        self._writer = app.views.store(name).writer(1)
        self._epoch = self._writer.claim(name, schema)
        self._name, self._batch = name, 0
        self.write([], {"clicks": {0: 0}})
        self._writer.serve()

    def write(self, rows: Sequence[dict[str, Any]], positions: dict[str, dict[int, int]]) -> None:
        receipt = BatchReceipt(
            job=self._name,
            epoch=self._epoch,
            query="q",
            batch=self._batch,
            positions=positions,
        )
        self._writer.write(
            receipt, pa.Table.from_pylist(list(rows), nullable_arrow_schema(self.schema))
        )
        self._batch += 1

    def close(self) -> None:
        self._writer.close()


@contextlib.contextmanager
def shop_in_motion(folder: Path, *, captures: bool) -> Iterator[Shop]:
    """Until it closes: clicks, orders, statuses of jobs, rows of two views, a queue, a group."""
    with Broker(folder / "broker") as broker:
        shop = Shop(folder, broker.bootstrap)
        with contextlib.ExitStack() as open_things:
            open_things.callback(shop.close)
            app = open_things.enter_context(_app_of(shop))
            for declared in app.catalog.inputs.values():
                make_declared_topic(app.client_config, declared)
            shop.click(0)
            shop.order()
            shop.flush()
            shop.dead_letter()
            open_things.callback(shop.queue_with_dead_letters(3).close)
            open_things.callback(shop.group("billing").close)
            if captures:
                open_things.enter_context(app.captures.running())
            open_things.enter_context(_moving(shop, app))
            yield shop


@contextlib.contextmanager
def _app_of(shop: Shop) -> Iterator[App]:
    with contextlib.ExitStack() as stack:
        app = App("shop", data=shop.data, brokers=shop.bootstrap)
        loaded = shop.app()
        loaded._brokers = app._brokers  # the file leaves it to the environment
        stack.enter_context(contextlib.closing(loaded))
        yield loaded


@contextlib.contextmanager
def _moving(shop: Shop, app: App) -> Iterator[None]:
    stopping = threading.Event()
    failures: list[BaseException] = []

    def move() -> None:
        try:
            _move(shop, app, stopping)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=move, name="shop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(60)
    assert not failures, failures


def _move(shop: Shop, app: App, stopping: threading.Event) -> None:
    files = StatusFiles(shop.data / "jobs", system_clock)
    jobs = shop.data / "jobs"
    for job in app.catalog.jobs:
        (jobs / job).mkdir(parents=True, exist_ok=True)
    write_checkpoint(jobs, "revenue_per_minute", {"payments": {0: 0, 1: 0}})
    write_checkpoint(jobs, "receipts_by_mail", {"paid_orders": {0: 1}})
    with contextlib.ExitStack() as views:
        kept = [
            views.enter_context(contextlib.closing(HandMadeView(app, name, schema)))
            for name, schema in (
                ("clicks_per_url", URLS),
                ("revenue_per_minute", REVENUE),
                ("enriched_orders", ENRICHED),
            )
        ]
        while not stopping.is_set():
            shop.move()
            files.look(shop.progress())
            for view, written in zip(kept, shop.written(), strict=True):
                view.write(*written)
            stopping.wait(ROUND_SECONDS)
