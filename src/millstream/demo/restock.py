"""A work queue of products that run out: who watches the stock puts jobs in, a worker does them.

The stock is a captured table, read change by change, without Spark. The supplier does not always
answer: such a job is delivered again, later. To restock twice is no harm: it is done only while
the product is low. Runs in the generator's process, in threads of its own.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from millstream.base.errors import MillstreamError
from millstream.demo.shop import app

QUEUE = "restock"
LOW = 10
ORDERED = 50
AWAY = 0.3
PAUSE_SECONDS = 1.0
POLL_SECONDS = 0.5
RESTOCK = "UPDATE stock SET on_hand = on_hand + %s WHERE product_id = %s AND on_hand < %s"


class SupplierAway(Exception):
    """Nobody answers the telephone: the job comes again."""


class Restocking:
    """`done` counts what was restocked, and what had to be delivered again."""

    def __init__(self, connect: Callable[[], Any], done: "Counter[str]") -> None:
        self._connect, self._done = connect, done
        self._over = threading.Event()
        self._asked: set[int] = set()
        self._dice = random.Random()
        self._threads = [
            threading.Thread(target=self._again_and_again, args=(work,), daemon=True)
            for work in (self._watch, self._supply)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * PAUSE_SECONDS)

    def _again_and_again(self, work: Callable[[], None]) -> None:
        """The broker may be away, and come back."""
        while not self._over.is_set():
            try:
                work()
            except MillstreamError:
                self._done["restock waits"] += 1
                self._over.wait(PAUSE_SECONDS)

    def _watch(self) -> None:
        with app.changes("stock", since="now") as changes:
            while not self._over.is_set():
                change = changes.poll(POLL_SECONDS)
                if change is not None and change.after is not None:
                    self._look_at(change.after)

    def _look_at(self, stock: Any) -> None:
        product = int(stock["product_id"])
        if int(stock["on_hand"]) >= LOW:
            self._asked.discard(product)
        elif product not in self._asked:
            self._asked.add(product)
            app.queue(QUEUE).put({"product_id": product})

    def _supply(self) -> None:
        with self._connect() as database:
            while not self._over.is_set():
                job = app.queue(QUEUE).get(timeout=POLL_SECONDS)
                if job is None:
                    continue
                self._done["redelivered"] += job.delivery_count > 1
                try:
                    with job:
                        self._restock(database, job.value["product_id"])
                except SupplierAway:
                    self._done["supplier away"] += 1

    def _restock(self, database: Any, product: int) -> None:
        if self._dice.random() < AWAY:
            raise SupplierAway
        database.execute(RESTOCK, [ORDERED, product, LOW])
        self._done["restocked"] += 1
