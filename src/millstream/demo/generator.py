"""The process that keeps the shop busy: does what `traffic.py` says, at a rate.

Events go to topics through a plain Kafka client, as those of any shop would; orders, moves and
prices are SQL. A payment is a row of the database first, and sent until the log has it: killed in
between, it is sent again, which is why a payment can come twice. Ends when standard input does.

    in:   "pause" or "go"; after "pause" all payments are sent, the late ones too
    out:  one line of JSON a second: what was done in this run, and whether it rests
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Producer

from millstream.demo.traffic import (
    Action,
    Move,
    Order,
    PriceChange,
    Send,
    Traffic,
    encoded,
    payment_record,
    time_text,
)

TICK_SECONDS = 0.1
TELL_SECONDS = 1.0
PAYMENTS_AT_ONCE_MAX = 500
FLUSH_SECONDS = 5.0
PRODUCER: dict[str, Any] = {
    "enable.idempotence": True,
    "message.timeout.ms": 3_600_000,  # however long the broker is away
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}
PLACED_TOPIC = "orders_placed"

PLACE = """\
INSERT INTO orders (customer_id, product_id, quantity, cents, placed_at)
SELECT %(customer_id)s, product_id, %(quantity)s, %(quantity)s * price, %(at)s
FROM prices WHERE product_id = %(product_id)s RETURNING order_id, cents"""
PAY = "INSERT INTO payments (order_id, cents, at, copies, due) VALUES (%s, %s, %s, %s, %s)"
TELL = "INSERT INTO outbox (topic, key, payload) VALUES (%s, %s, %s)"
MOVE = "UPDATE customers SET city = %s, since = %s WHERE customer_id = %s"
REPRICE = "UPDATE prices SET price = %s, since = %s WHERE product_id = %s"
DUE = """\
SELECT payment_id, order_id, cents, at, copies FROM payments
WHERE NOT sent AND due <= %s ORDER BY payment_id LIMIT %s"""
SENT = "UPDATE payments SET sent = true WHERE payment_id = ANY(%s)"


class Shop:
    """Where actions go: the database and the log. One thread."""

    def __init__(self, database: Any, producer: Producer) -> None:
        self._database, self._producer = database, producer
        self.done: Counter[str] = Counter()

    def do(self, action: Action) -> None:
        match action:
            case Send():
                self._send(action)
                self.done[action.flaw or action.topic] += 1
            case Order():
                self._place(action)
                self.done["orders"] += 1
            case Move():
                self._database.execute(MOVE, [action.city, action.at, action.customer_id])
                self.done["moves"] += 1
            case PriceChange():
                self._database.execute(REPRICE, [action.cents, action.at, action.product_id])
                self.done["prices"] += 1

    def _send(self, record: Send, told: Callable[..., None] | None = None) -> None:
        while True:
            try:
                self._producer.produce(
                    record.topic, key=record.key, value=record.value, on_delivery=told
                )
                return
            except BufferError:  # the broker is away for long
                self._producer.poll(TICK_SECONDS)

    def _place(self, order: Order) -> None:
        """The order, what is told of it, and its payment: all or nothing."""
        facts = {name: getattr(order, name) for name in order.__slots__}
        with self._database.transaction():
            order_id, cents = self._database.execute(PLACE, facts).fetchone()
            event = {name: facts[name] for name in ("customer_id", "product_id", "quantity")}
            event |= {"order_id": order_id, "at": time_text(order.at)}
            told = [PLACED_TOPIC, str(order.customer_id), encoded(event).decode()]
            self._database.execute(TELL, told)
            due = order.at + timedelta(seconds=order.delay_s)
            self._database.execute(PAY, [order_id, cents, order.at, order.copies, due])

    def send_payments(self, until: datetime) -> int:
        """Send what is due by then, and note what the log has taken; how many these were."""
        rows = self._database.execute(DUE, [until, PAYMENTS_AT_ONCE_MAX]).fetchall()
        taken: Counter[int] = Counter()
        for payment_id, order_id, cents, at, copies in rows:
            record = payment_record(payment_id, order_id, cents, at)
            for _ in range(copies):
                self._send(record, _noting(taken, payment_id))
        self.flush()
        sent = [row[0] for row in rows if taken[row[0]] == row[4]]
        if sent:
            self._database.execute(SENT, [sent])
        self.done["payments"] += len(sent)
        self.done["sent twice"] += sum(row[4] - 1 for row in rows if row[0] in taken)
        return len(rows)

    def flush(self) -> None:
        while self._producer.flush(FLUSH_SECONDS):
            pass  # the broker is away: what is waiting is not given up


def _noting(taken: Counter[int], payment_id: int) -> Callable[..., None]:
    def told(error: Any, _message: Any) -> None:
        if error is None:
            taken[payment_id] += 1

    return told


class Wishes:
    """What the parent wants: read from standard input by a thread of its own."""

    def __init__(self) -> None:
        self.is_paused = False
        self.is_over = threading.Event()

    def listen(self) -> None:
        for line in iter(sys.stdin.readline, ""):
            self.is_paused = line.strip() == "pause"
        self.is_over.set()


class Generator:
    """Ticks until it is over; falls behind rather than catch up when the machine is busy."""

    def __init__(self, shop: Shop, traffic: Traffic, wishes: Wishes, *, rate: float) -> None:
        self._shop, self._traffic, self._wishes, self._rate = shop, traffic, wishes, rate
        self._owed = 0.0
        self._tell_due = 0.0
        self._last = datetime.min.replace(tzinfo=UTC)

    def run(self) -> None:
        while not self._wishes.is_over.wait(TICK_SECONDS):
            is_resting = self._wishes.is_paused
            if is_resting:
                while self._shop.send_payments(datetime.max.replace(tzinfo=UTC)):
                    pass
            else:
                self._tick()
            self._tell(is_resting)

    def _tick(self) -> None:
        self._owed = min(self._rate, self._owed + self._rate * TICK_SECONDS)
        for action in self._traffic.actions(int(self._owed), self._now()):
            self._shop.do(action)
            self._owed -= 1
        self._shop.send_payments(datetime.now(UTC))

    def _now(self) -> datetime:
        """Later than all before: which price held when is a question of microseconds."""
        self._last = max(datetime.now(UTC), self._last + timedelta(seconds=TICK_SECONDS / 10))
        return self._last

    def _tell(self, is_resting: bool) -> None:
        if is_resting or time.monotonic() >= self._tell_due:
            self._tell_due = time.monotonic() + TELL_SECONDS
            print(json.dumps({"rests": is_resting, "done": self._shop.done}), flush=True)


def main(rate: float, seed: int, brokers: str, database_url: str) -> None:
    import psycopg

    from millstream.demo.stockroom import Stockroom

    wishes = Wishes()
    threading.Thread(target=wishes.listen, daemon=True).start()
    with psycopg.connect(database_url, autocommit=True) as database:
        shop = Shop(database, Producer(PRODUCER | {"bootstrap.servers": brokers}))
        stockroom = Stockroom(shop.done)
        stockroom.start()
        traffic = Traffic(seed, first_impression=int(time.time() * 1_000))
        Generator(shop, traffic, wishes, rate=rate).run()
        stockroom.stop()
        shop.flush()


if __name__ == "__main__":
    address = os.environ["SHOP_DATABASE"].replace("${SHOP_PASSWORD}", os.environ["SHOP_PASSWORD"])
    main(float(sys.argv[1]), int(sys.argv[2]), os.environ["MILLSTREAM_BROKERS"], address)
