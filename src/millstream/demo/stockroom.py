"""The people in the stockroom: they ship what is ordered, see what runs low, and get more.

What is on hand is an aggregate (`shop.py`), to which they send commands; the shop's own process
decides these. Each command has an id of what it is for, an order or a shortage: whoever is killed
and begins again ships nothing twice. What runs low is a job of a work queue; the supplier does not
always answer, and such a job is delivered again, later. Runs in threads of the generator's process.
"""

import json
import random
import threading
from collections import Counter
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from millstream.base.errors import MillstreamError
from millstream.demo.shop import app, stock
from millstream.demo.traffic import PRODUCTS
from millstream.eventsourcing.query import Query

QUEUE = "restock"
GROUP = "stockroom"
ORDERS = "orders_placed"
UNITS_AT_FIRST = 40
UNITS_ORDERED = 50
AWAY = 0.3
PAUSE_SECONDS = 1.0
POLL_SECONDS = 0.5
WATCH_SECONDS = 3.0
ORDERS_AT_ONCE_MAX = 100
RAN_LOW = Query(types=("RanLow",))


class SupplierAway(Exception):
    """Nobody answers the telephone: the job comes again."""


class Stockroom:
    """`done` counts what was shipped and restocked, and what had to be delivered again."""

    def __init__(self, done: "Counter[str]") -> None:
        self._done = done
        self._over = threading.Event()
        self._dice = random.Random()
        self._threads = [
            threading.Thread(target=self._again_and_again, args=(work,), daemon=True)
            for work in (self._ship, self._watch, self._supply)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * PAUSE_SECONDS)

    def _again_and_again(self, work: Callable[[], None]) -> None:
        """The broker may be away, or who decides, and come back."""
        while not self._over.is_set():
            try:
                work()
            except (MillstreamError, KafkaException):
                self._done["stockroom waits"] += 1
                self._over.wait(PAUSE_SECONDS)

    # --- what is ordered is shipped -----------------------------------------------------------

    def _ship(self) -> None:
        for product in PRODUCTS:
            stock[product].receive(UNITS_AT_FIRST, id=f"{product} at first")
        config = dict(app.client_config) | {"group.id": GROUP, "enable.auto.commit": False}
        config |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        consumer = Consumer(config)
        try:
            consumer.subscribe([ORDERS])
            while not self._over.is_set():
                self._ship_some(consumer)
        finally:
            consumer.close()

    def _ship_some(self, consumer: Consumer) -> None:
        found = consumer.consume(ORDERS_AT_ONCE_MAX, POLL_SECONDS)
        orders = [json.loads(one.value() or b"") for one in found if not one.error()]
        sent = [
            stock[PRODUCTS[order["product_id"]]].ship(
                order["order_id"],
                order["quantity"],
                id=f"order {order['order_id']}",
                wait=False,
            )
            for order in orders
        ]
        for one in sent:
            one.result()
        self._done["shipped"] += len(sent)
        if orders:
            consumer.commit(asynchronous=False)

    # --- what runs low is a job ---------------------------------------------------------------

    def _watch(self) -> None:
        """What ran low while nobody watched, and then each time."""
        store = app.event_store()
        token = store.token()
        for product in PRODUCTS:
            state = stock[product].state()
            if state.is_low:
                self._ask_for(product, f"version {state.version}")
        while not self._over.is_set():
            with store.subscribe(after=token, where=RAN_LOW, timeout=WATCH_SECONDS) as events:
                for event in events:
                    self._ask_for(event.stream.removeprefix("Stock:"), event.id)
                token = events.token

    def _ask_for(self, product: str, shortage: str) -> None:
        app.queue(QUEUE).put({"product": product, "shortage": shortage})

    def _supply(self) -> None:
        while not self._over.is_set():
            job = app.queue(QUEUE).get(timeout=POLL_SECONDS)
            if job is None:
                continue
            self._done["redelivered"] += job.delivery_count > 1
            try:
                with job:
                    self._restock(job.value["product"], job.value["shortage"])
            except SupplierAway:
                self._done["supplier away"] += 1

    def _restock(self, product: str, shortage: str) -> None:
        if self._dice.random() < AWAY:
            raise SupplierAway
        if stock[product].state().is_low:
            stock[product].receive(UNITS_ORDERED, id=f"{product} for {shortage}")
            self._done["restocked"] += 1
