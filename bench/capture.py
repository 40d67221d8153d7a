"""Question: how fast do changes of a database come into topics, against Debezium?

Reproduce:  python -m bench.capture                   # everything, 3 rounds
            python -m bench.capture --quick           # a tenth, one round: to see that it works
            python -m bench.capture --database mariadb --only latency --tuned

Both sides capture the same database into the same broker, and take turns; the next round begins
with the other side. `--tuned` gives Debezium larger batches and queues than its defaults. Neither
side tells the boundaries of transactions, as Debezium does not by default; `--boundaries`: both do.

at_once   Both sides' places in the log are settled, then the load runs while nobody reads: one
          transaction that warms the sides up, and one that updates every row. Then each side starts
          and drains the same log. The clock runs from where the first can be read (read_committed)
          to where all can: starting up is not in it, nor most of a JVM's compiling.
singly    The same, with a transaction for each row.
load      The initial load of a table. The clock runs from the first row that can be read to the
          last: starting up is not in it, a JVM's compiling is.
latency   Single updates at a steady rate, after a while of the same. Each row carries the time just
          before its statement was sent; a reader subtracts it from the time when it has the record.

Memory is the most that the processes of a side had resident, summed up; CPU is theirs too,
from their start on: when the clock starts, a side may have read on already. Neither counts what the
database or the broker use.
"""

import argparse
import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer
from tests.support.apache_kafka import ApacheKafka

from bench.brokers import millstream
from bench.capture_databases import TABLES, Database
from bench.capture_mariadb import mariadb_database
from bench.capture_postgres import postgres_database
from bench.capture_reading import (
    NotCapturedError,
    after_of,
    committed_end,
    count_records,
    opened_reader,
    wait_for_offset,
)
from bench.capture_results import CaptureResults, Measure, markdown
from bench.capture_sides import (
    SIDES,
    Capture,
    DebeziumCapture,
    MillstreamCapture,
    Side,
    delete_topics,
)
from bench.process_usage import OthersShare, usage_of

WITHIN_S = 900.0
UPDATES_PER_S = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much of each. The transaction that warms up is larger than a batch of ours may get: so it
    is committed by itself, and nothing that is measured with it."""

    warm_up_rows: int
    rows: int
    transactions: int
    steady_s: float
    settle_s: float


FULL = Scale(
    warm_up_rows=200_000, rows=1_000_000, transactions=200_000, steady_s=60.0, settle_s=20.0
)
QUICK = Scale(warm_up_rows=60_000, rows=100_000, transactions=20_000, steady_s=10.0, settle_s=5.0)


class Bench:
    """One database, one broker, and the captures of one round after another."""

    def __init__(
        self,
        database: Database,
        bootstrap: str,
        scale: Scale,
        *,
        is_tuned: bool,
        has_boundaries: bool,
    ) -> None:
        self.database, self.bootstrap, self.scale = database, bootstrap, scale
        self.results = CaptureResults()
        self._is_tuned, self._has_boundaries = is_tuned, has_boundaries
        self._captures = 0

    @contextlib.contextmanager
    def captures(self, *, has_load: bool) -> Iterator[dict[Side, Capture]]:
        """One of each side, not prepared yet. Topics and slots go when the round is over."""
        self._captures += 1
        made = {side: self._made(side, has_load=has_load) for side in SIDES}
        try:
            yield made
        finally:
            for capture in made.values():
                capture.close()
            self.database.forget_captures()
            names = [one.topic_of(table) for one in made.values() for table in TABLES]
            delete_topics(self.bootstrap, names)

    def _made(self, side: Side, *, has_load: bool) -> Capture:
        name = f"{side}{self._captures}"
        if side == "ours":
            return MillstreamCapture(
                name,
                self.database,
                bootstrap=self.bootstrap,
                has_load=has_load,
                has_boundaries=self._has_boundaries,
            )
        return DebeziumCapture(
            name,
            self.database,
            bootstrap=self.bootstrap,
            has_load=has_load,
            is_tuned=self._is_tuned,
            has_boundaries=self._has_boundaries,
        )


Question = Callable[[Bench, tuple[Side, ...]], None]


# --- changes that wait in the log ---------------------------------------------------------------


def measure_at_once(bench: Bench, order: tuple[Side, ...]) -> None:
    count = bench.scale.rows
    load = partial(bench.database.update_at_once, count)
    measure_drain(bench, order, count, load, "one transaction")


def measure_singly(bench: Bench, order: tuple[Side, ...]) -> None:
    count = bench.scale.transactions
    load = partial(bench.database.update_singly, count)
    measure_drain(bench, order, count, load, "single-row transactions")


def measure_drain(
    bench: Bench, order: tuple[Side, ...], count: int, load: Callable[[], None], what: str
) -> None:
    bench.database.fill(bench.scale.rows)
    with bench.captures(has_load=False) as captures:
        for capture in captures.values():
            capture.prepare()
        bench.database.update_at_once(bench.scale.warm_up_rows)
        load()
        for side in order:
            drain(bench, side, captures[side], count, what)


def drain(bench: Bench, side: Side, capture: Capture, count: int, what: str) -> None:
    expected = bench.scale.warm_up_rows + count
    look = looking_at(bench, capture, "orders")
    capture.start()
    started, first = look(bench.scale.warm_up_rows)
    seconds = look(expected)[0] - started
    used = usage_of(capture.pid)
    capture.close()
    require_all(bench, capture, expected)
    count = expected - first  # a side may have been further on when it was looked at
    add = partial(bench.results.add, side=side)
    add(
        Measure(f"{what}: rate", "changes/s", at_least=bench.database.goals.changes),
        value=count / seconds,
    )
    cpu = Measure(f"{what}: CPU", "s per million", at_most=1 / bench.database.goals.changes)
    add(cpu, value=used.cpu_s / expected * 1e6)
    add(Measure(f"{what}: memory", "MB", ours_below=100), value=used.resident_bytes_peak / 1e6)


def looking_at(bench: Bench, capture: Capture, table: str) -> Callable[[int], tuple[float, int]]:
    topic, is_well = capture.topic_of(table), capture.require_alive
    return partial(wait_for_offset, bench.bootstrap, topic, is_well=is_well, within_s=WITHIN_S)


def require_all(bench: Bench, capture: Capture, expected: int) -> None:
    """More is no loss: Debezium may write a change twice."""
    got = count_records(bench.bootstrap, capture.topic_of("orders"), expected)
    if got < expected:
        raise NotCapturedError(f"{capture.topic_of('orders')} has {got} of {expected} records")


# --- the initial load ---------------------------------------------------------------------------


def measure_load(bench: Bench, order: tuple[Side, ...]) -> None:
    bench.database.fill(bench.scale.rows)
    with bench.captures(has_load=True) as captures:
        for side in order:
            captures[side].prepare()
            load_table(bench, side, captures[side])


def load_table(bench: Bench, side: Side, capture: Capture) -> None:
    rows = bench.scale.rows
    look = looking_at(bench, capture, "orders")
    before = time.perf_counter()
    capture.start()
    started, first = look(1)
    ended, _ = look(rows)
    used = usage_of(capture.pid)
    capture.close()
    require_all(bench, capture, rows)
    add = partial(bench.results.add, side=side)
    if first < rows:
        rate = (rows - first) / (ended - started)
        add(Measure("initial load: rate", "rows/s", at_least=bench.database.goals.load), value=rate)
    add(Measure("initial load: from start to end", "s"), value=ended - before)
    add(Measure("initial load: memory", "MB", ours_below=100), value=used.resident_bytes_peak / 1e6)


# --- latency ------------------------------------------------------------------------------------


def measure_latency(bench: Bench, order: tuple[Side, ...]) -> None:
    bench.database.fill(bench.scale.rows // 10)
    with bench.captures(has_load=False) as captures:
        for side in order:
            captures[side].prepare()
            follow_updates(bench, side, captures[side])


def follow_updates(bench: Bench, side: Side, capture: Capture) -> None:
    with opened_reader(bench.bootstrap, capture.topic_of("orders")) as orders:
        capture.start()
        marks = committed_end(bench.bootstrap, capture.topic_of("marks"))
        bench.database.mark()
        looking_at(bench, capture, "marks")(marks + 1)
        steady = SteadyUpdates(bench.database, bench.scale)
        steady.start()
        latencies = read_latencies(orders, steady)
        steady.join()
        used = usage_of(capture.pid)
        capture.close()
    add = partial(bench.results.add, side=side)
    percentiles = statistics.quantiles(latencies, n=100)
    add(Measure("latency: p50", "ms", at_most=1.0), value=percentiles[49] / 1e3)
    add(Measure("latency: p99", "ms", ours_below=20), value=percentiles[98] / 1e3)
    add(Measure("latency: memory", "MB", ours_below=100), value=used.resident_bytes_peak / 1e6)


class SteadyUpdates(threading.Thread):
    """Single updates on a schedule that does not wait for those that are late."""

    def __init__(self, database: Database, scale: Scale) -> None:
        super().__init__(name="steady updates", daemon=True)
        self._database = database
        self.settling = round(scale.settle_s * UPDATES_PER_S)
        self.count = self.settling + round(scale.steady_s * UPDATES_PER_S)

    def run(self) -> None:
        began = time.perf_counter()
        for number in range(self.count):
            time.sleep(max(0.0, began + number / UPDATES_PER_S - time.perf_counter()))
            self._database.update_one(number, sent_us=now_us())


def read_latencies(orders: Consumer, steady: SteadyUpdates) -> list[int]:
    """In microseconds, of the updates after the first few."""
    found: list[int] = []
    until = time.perf_counter() + WITHIN_S
    while len(found) < steady.count:
        if time.perf_counter() > until:
            raise NotCapturedError(f"{len(found)} of {steady.count} updates within {WITHIN_S} s")
        message = orders.poll(1.0)
        if message is not None and (row := after_of(message)):
            found.append(now_us() - row["sent_us"])
    return found[steady.settling :]


def now_us() -> int:
    return time.time_ns() // 1_000


DATABASES: dict[str, Callable[[], AbstractContextManager[Database]]] = {
    "postgresql": postgres_database,
    "mariadb": mariadb_database,
}
QUESTIONS: dict[str, Question] = {
    "at_once": measure_at_once,
    "singly": measure_singly,
    "load": measure_load,
    "latency": measure_latency,
}


# --- all of it ----------------------------------------------------------------------------------


def run_rounds(bench: Bench, questions: list[str], rounds: int) -> None:
    for number in range(rounds):
        order = SIDES if number % 2 == 0 else SIDES[::-1]
        for name in questions:
            began = time.perf_counter()
            QUESTIONS[name](bench, order)
            took = time.perf_counter() - began
            print(f"round {number + 1} of {rounds}: {name}, {took:.0f} s", flush=True)
        print(f"\n{markdown(bench.results)}\n", flush=True)


@contextlib.contextmanager
def broker(name: str) -> Iterator[str]:
    if name == "kafka":
        with ApacheKafka() as kafka:
            yield kafka.bootstrap
    else:
        with millstream("synced") as ours:
            yield ours.bootstrap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a tenth of all, in one round")
    parser.add_argument("--rounds", type=int, help="3, or 1 if quick")
    parser.add_argument("--only", choices=QUESTIONS, action="append", help="repeatable")
    parser.add_argument("--database", choices=DATABASES, default="postgresql")
    parser.add_argument("--tuned", action="store_true", help="larger batches for Debezium")
    parser.add_argument("--boundaries", action="store_true", help="of transactions, on both sides")
    parser.add_argument("--broker", choices=["millstream", "kafka"], default="millstream")
    given = parser.parse_args()
    rounds = given.rounds or (1 if given.quick else 3)
    others = OthersShare()
    with DATABASES[given.database]() as database, broker(given.broker) as bootstrap:
        scale = QUICK if given.quick else FULL
        bench = Bench(
            database,
            bootstrap,
            scale,
            is_tuned=given.tuned,
            has_boundaries=given.boundaries,
        )
        run_rounds(bench, given.only or list(QUESTIONS), rounds)
        versions = f"{database.version}, Debezium {database.debezium}"
    print(f"{versions}, {rounds} rounds; others used {others.percent():.0f} % of the CPU")


if __name__ == "__main__":
    main()
