"""How load balancing with redelivery reorders messages, and two ways that keep their order.

    python examples/ordering.py [BOOTSTRAP]

Three customers change their address three times each, and every first change fails once, as things
do. What counts at the end is the last address that was written. Three ways to work on them:

1. a queue with three workers: each change goes to whoever is free, a failed one comes later
2. a queue with one worker, one job at a time, and failures tried again at once
3. a consumer group of three, the customer being the key: one reader for each partition
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer

from millstream import App, Broker

CUSTOMERS = ("ada", "grace", "edsger")
CHANGES = 3
PARTITIONS = 3
GIVE_UP_SECONDS = 60.0


class Change(NamedTuple):
    customer: str
    number: int


class Desk:
    """Writes addresses down; the first change of each customer fails once."""

    def __init__(self) -> None:
        self.written: list[Change] = []
        self._failed: set[str] = set()
        self._lock = threading.Lock()

    def write(self, change: Change) -> None:
        with self._lock:
            if change.number == 1 and change.customer not in self._failed:
                self._failed.add(change.customer)
                raise ConnectionError("the database did not answer")
            self.written.append(change)

    @property
    def is_done(self) -> bool:
        return len(self.written) == len(CUSTOMERS) * CHANGES

    def addresses(self) -> dict[str, int]:
        """The number of the change that each customer's address is of: the last one written."""
        return dict(self.written)

    def wrong(self) -> list[str]:
        return [name for name, number in self.addresses().items() if number != CHANGES]


def changes() -> Iterator[Change]:
    for number in range(1, CHANGES + 1):
        for customer in CUSTOMERS:
            yield Change(customer, number)


# --- 1 and 2: a queue -------------------------------------------------------------------------


def by_queue(app: App, name: str, *, workers: int, retry_delay: float) -> Desk:
    desk = Desk()
    queue = app.queue(name, retry_delay=retry_delay, partitions=1)
    queue.put_many([list(change) for change in changes()])

    def work() -> None:
        while not desk.is_done:
            job = queue.get(timeout=0.2)
            if job is None:
                continue
            try:
                with job:  # acknowledged at the end, released by an error
                    desk.write(Change(*job.value))
            except ConnectionError:
                pass  # it comes again

    together([work] * workers)
    return desk


# --- 3: a consumer group ----------------------------------------------------------------------


def by_group(app: App, topic: str) -> Desk:
    desk = Desk()
    app.queue(topic, partitions=PARTITIONS).put_many([])  # only to make the topic
    producer = Producer(dict(app.client_config))
    for change in changes():
        producer.produce(topic, key=change.customer, value=str(change.number))
    producer.flush()

    def read() -> None:
        consumer = Consumer(
            {**app.client_config, "group.id": topic, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        while not desk.is_done:
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            until_it_works(desk, Change(message.key().decode(), int(message.value())))
        consumer.close()

    together([read] * 3)
    return desk


def until_it_works(desk: Desk, change: Change) -> None:
    """A reader that goes on to the next record has given up this one's place: it must wait."""
    while True:
        try:
            return desk.write(change)
        except ConnectionError:
            time.sleep(0.05)


# --- showing it -------------------------------------------------------------------------------


def together(tasks: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=task, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP_SECONDS)


@contextmanager
def application(bootstrap: str | None) -> Iterator[App]:
    if bootstrap is not None:
        with App("ordering", brokers=bootstrap) as app:
            yield app
    else:
        with Broker() as broker, App("ordering", brokers=broker.bootstrap) as app:
            yield app


def show(title: str, desk: Desk) -> None:
    order = " ".join(f"{change.customer}:{change.number}" for change in desk.written)
    wrong = desk.wrong()
    verdict = f"old addresses: {', '.join(wrong)}" if wrong else "all addresses are the newest"
    print(f"{title}\n  {order}\n  {verdict}\n")


def main(bootstrap: str | None = None, *, suffix: str = "") -> dict[str, Desk]:
    with application(bootstrap) as app:
        desks = {
            "A queue, three workers": by_queue(
                app, f"balanced{suffix}", workers=3, retry_delay=0.5
            ),
            "A queue, one worker, failures tried again at once": by_queue(
                app, f"single{suffix}", workers=1, retry_delay=0
            ),
            "A consumer group of three, by key": by_group(app, f"keyed{suffix}"),
        }
    for title, desk in desks.items():
        show(title, desk)
    return desks


if __name__ == "__main__":
    main(*sys.argv[1:2])
