"""Question: how long from the produce of an event until a view shows it?

    python -m bench.latency [--rate 1000] [--seconds 30] [--warm-up 20]

An application with its own broker (synced: our default), Spark on two cores, and views in SQLite,
all with their default settings. One producer sends events at a steady rate. An event counts as
visible at the moment when a reader of the view, which looks every two milliseconds, sees that the
view is current to its offset. The first events warm Spark up and are not counted. Stateless: a
view with a row for each event. Counts: one with a row for each page and window.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import quantiles
from typing import Any

from confluent_kafka import Message, Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream import App, windows
from millstream.views.store import ViewNotFound
from millstream.views.view import View

TOPIC = "clicks"
LOOK_SECONDS = 0.002
WARM_UP_SECONDS = 20.0
# A view that is this far behind does not keep up; the figures would say nothing.
VISIBLE_WITHIN_SECONDS = 60.0
READY_WITHIN_SECONDS = 300.0
PAGES = 50
GOAL_MS = {"p50": 300.0, "p99": 1_000.0}


def pages_by_click(clicks: DataFrame) -> DataFrame:
    return clicks.select("id", "page")


def clicks_by_page(clicks: DataFrame) -> DataFrame:
    return clicks.groupBy(windows.tumbling("1 minute"), "page").agg(F.count("*").alias("clicks"))


VIEWS: dict[str, tuple[Callable[..., DataFrame], list[str]]] = {
    "stateless": (pages_by_click, ["id"]),
    "counts by minute and page": (clicks_by_page, ["window", "page"]),
}


class Sending:
    """Sends events at a rate, and remembers when each was given to the producer.

    In a process of its own, as producers are: the driver's Python has a lock to share.
    """

    def __init__(self, bootstrap: str, *, rate: int) -> None:
        self._bootstrap, self._rate = bootstrap, rate
        self.sent_at: dict[int, float] = {}

    def send_for(self, seconds: float) -> None:
        count = round(seconds * self._rate)
        first = len(self.sent_at)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            sent = process.submit(send_events, self._bootstrap, self._rate, first, count)
            self.sent_at |= sent.result()


def send_events(bootstrap: str, rate: int, first: int, count: int) -> dict[int, float]:
    """Returns when each was sent, by offset. The clock is the same in all processes."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    producer.list_topics(TOPIC, timeout=10)
    sent_at: dict[int, float] = {}
    started = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, started + number / rate - time.perf_counter()))
        send(producer, first + number, sent_at)
        producer.poll(0)
    producer.flush(VISIBLE_WITHIN_SECONDS)
    return sent_at


def send(producer: Producer, number: int, sent_at: dict[int, float]) -> None:
    sent = time.perf_counter()

    def delivered(error: Any, message: Message) -> None:
        if error is not None:
            raise RuntimeError(f"an event was not acknowledged: {error}")
        sent_at[message.offset() or 0] = sent

    at_ms = time.time_ns() // 10**6
    value = f'{{"id": {number}, "page": "/page/{number % PAGES}", "at": {at_ms}}}'
    producer.produce(TOPIC, value, partition=0, on_delivery=delivered)


class Watching(threading.Thread):
    """Looks at a view, and remembers when it was first seen to be current to each offset."""

    def __init__(self, view: View) -> None:
        super().__init__(daemon=True)
        self._view = view
        self._ended = threading.Event()
        self.seen_at: list[float] = []

    def run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            reached = self._reached()
            now = time.perf_counter()
            self.seen_at += [now] * (reached - len(self.seen_at))

    def _reached(self) -> int:
        try:
            return self._view.position().get(TOPIC, {}).get(0, 0)
        except ViewNotFound:
            return 0

    def wait_for(self, count: int, *, within: float) -> None:
        deadline = time.monotonic() + within
        while len(self.seen_at) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the view shows {len(self.seen_at)} of {count} events")
            time.sleep(0.01)

    def end(self) -> None:
        self._ended.set()
        self.join()


def declared_app(what: str, directory: Path) -> tuple[App, str]:
    """An application with this view alone."""
    app = App("latency", data=directory)
    schema = "id BIGINT, page STRING, at TIMESTAMP"
    app.topic(TOPIC, schema=schema, event_time="at", partitions=1)
    function, key = VIEWS[what]
    app.view(key=key)(function)
    return app, function.__name__


def latencies_ms(what: str, *, rate: int, seconds: float, warm_up: float) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        app, view = declared_app(what, Path(directory))
        with app:
            running = threading.Thread(target=app.run, daemon=True)
            running.start()
            found = watched(app, view, rate=rate, seconds=seconds, warm_up=warm_up)
            app.stop()
            running.join(VISIBLE_WITHIN_SECONDS)
    return found


def watched(app: App, view: str, *, rate: int, seconds: float, warm_up: float) -> list[float]:
    sending, watching = Sending(app.bootstrap, rate=rate), Watching(app.view(view))
    watching.start()
    sending.send_for(0.1)
    watching.wait_for(len(sending.sent_at), within=READY_WITHIN_SECONDS)
    sending.send_for(warm_up)
    first = len(sending.sent_at)
    sending.send_for(seconds)
    watching.wait_for(len(sending.sent_at), within=VISIBLE_WITHIN_SECONDS)
    watching.end()
    return [
        1000 * (watching.seen_at[offset] - sent)
        for offset, sent in sending.sent_at.items()
        if offset >= first
    ]


def print_line(what: str, found: list[float]) -> None:
    cuts = quantiles(found, n=100)
    p50, p99 = cuts[49], cuts[98]
    is_met = p50 < GOAL_MS["p50"] and p99 < GOAL_MS["p99"]
    goal = f"goal: p50 < {GOAL_MS['p50']:.0f}, p99 < {GOAL_MS['p99']:.0f}"
    print(
        f"{what:28} p50 {p50:6.0f} ms   p99 {p99:6.0f} ms   max {max(found):6.0f} ms"
        f"   ({goal}: {'met' if is_met else 'not met'})",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="events per second")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS, help="in seconds")
    options = parser.parse_args()
    asked = {"rate": options.rate, "seconds": options.seconds, "warm_up": options.warm_up}
    for what in VIEWS:
        print_line(what, latencies_ms(what, **asked))


if __name__ == "__main__":
    main()
