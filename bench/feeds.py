"""Question: what do change feeds cost? How late is a change, and what do writes pay for them?

    python -m bench.feeds [--subscribers 100] [--batches 200] [--rows 100000]

Delay: a process writes batches of 10 changed rows, 20 in a second; subscribers in this process
(once a thread each, once all in one loop) take the time from before the write until they have the
change. With it come the processor's time of this process, by subscriber and in all, and of the
looking alone, while nothing changes. Writes: rows/s of batches of updates, with nothing kept, with
what feeds need, and with a history; in turns, the median of rounds.
"""

import argparse
import asyncio
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pyarrow as pa

from millstream.base.ports import BatchReceipt
from millstream.base.quantity import DAY_MS
from millstream.schemas.declaration import schema_of
from millstream.views.history import Keeping
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from millstream.views.view import View

SCHEMA = "id BIGINT, sent_us BIGINT, name STRING, amount DOUBLE"
COLUMNS = pa.schema(
    [("id", pa.int64()), ("sent_us", pa.int64()), ("name", pa.string()), ("amount", pa.float64())]
)
WARMING_UP = 0  # stands for a time
ROWS_IN_BATCH, BATCHES_PER_SECOND = 10, 20


class Writer:
    def __init__(self, path: Path, *, generation: int = 1, history: bool = False) -> None:
        keeping = Keeping(history_ms=DAY_MS if history else None)
        self._view = SqliteView(
            path, view="bench", key=["id"], generation=generation, keeping=keeping
        )
        self._epoch = self._view.claim("bench", schema_of(SCHEMA))
        self._batch = 0

    def write(self, rows: int, *, sent_us: int | None = None) -> None:
        now_us = time.time_ns() // 1000 if sent_us is None else sent_us
        receipt = BatchReceipt(job="bench", epoch=self._epoch, query="a", batch=self._batch)
        self._view.write(receipt, table_of(rows, now_us))
        self._batch += 1

    def close(self) -> None:
        self._view.close()


def table_of(rows: int, now_us: int) -> pa.Table:
    ids = range(rows)
    names = [f"customer number {number}" for number in ids]
    amounts = [float(number) for number in ids]
    return pa.table([list(ids), [now_us] * rows, names, amounts], schema=COLUMNS)


# --- delay


def write_steadily(path: Path, batches: int) -> None:
    writer = Writer(path)
    writer.write(ROWS_IN_BATCH, sent_us=WARMING_UP)
    for _ in range(batches):
        writer.write(ROWS_IN_BATCH)
        time.sleep(1 / BATCHES_PER_SECOND)
    writer.close()


def is_counted(change: Any) -> bool:
    return bool(change.kind == "upsert" and change.row["sent_us"] != WARMING_UP)


def delay_us(change: Any) -> int:
    return int(time.time_ns() // 1000 - change.row["sent_us"])


def in_threads(view: View, subscribers: int, changes: int) -> list[int]:
    delays: list[list[int]] = [[] for _ in range(subscribers)]

    def follow(found: list[int]) -> None:
        with view.subscribe() as feed:
            for change in feed:
                if is_counted(change):
                    found.append(delay_us(change))
                if len(found) == changes:
                    return

    threads = [threading.Thread(target=follow, args=(found,)) for found in delays]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [delay for found in delays for delay in found]


def in_one_loop(view: View, subscribers: int, changes: int) -> list[int]:
    async def follow() -> list[int]:
        found: list[int] = []
        async with view.subscribe_async() as feed:
            async for change in feed:
                if is_counted(change):
                    found.append(delay_us(change))
                if len(found) == changes:
                    break
        return found

    async def follow_all() -> list[int]:
        every = await asyncio.gather(*(follow() for _ in range(subscribers)))
        return [delay for found in every for delay in found]

    return asyncio.run(follow_all())


def measure_delay(
    name: str, follow: Callable[[View, int, int], list[int]], subscribers: int, batches: int
) -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        path = Path(directory) / "bench.sqlite"
        Writer(path).close()
        process = multiprocessing.get_context("spawn").Process(
            target=write_steadily, args=(path, batches)
        )
        with View("bench", reader_of(path)) as view:
            process.start()
            before, started = time.process_time(), time.perf_counter()
            delays = follow(view, subscribers, batches * ROWS_IN_BATCH)
            cpu, wall = time.process_time() - before, time.perf_counter() - started
        process.join()
    report_delay(name, delays, cpu_s=cpu, wall_s=wall, subscribers=subscribers)


def reader_of(path: Path) -> ViewReader:
    return ViewReader(path, view="bench")


def report_delay(
    name: str, delays: list[int], *, cpu_s: float, wall_s: float, subscribers: int
) -> None:
    cuts = quantiles(delays, n=100)
    each = 1e6 * cpu_s / len(delays)
    print(
        f"{name:<12} {subscribers} subscribers  p50 {cuts[49] / 1000:6.1f} ms  "
        f"p99 {cuts[98] / 1000:6.1f} ms  cpu {100 * cpu_s / wall_s:4.1f} % of a core, "
        f"{each:.0f} us for each change and subscriber"
    )


def measure_looking(seconds: float) -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        path = Path(directory) / "bench.sqlite"
        Writer(path).close()
        with View("bench", reader_of(path)) as view, view.subscribe() as feed:
            next(feed)
            before = time.process_time()
            feed.take(1, timeout=seconds)
            cpu = time.process_time() - before
    print(f"looking      while nothing changes: {100 * cpu / seconds:.2f} % of a core")


# --- writes


def seconds_of_batch(directory: Path, kept: str, rows: int) -> float:
    """Of updates: every row is there, and gets another value."""
    path = directory / f"{kept}.sqlite"
    if kept == "nothing":  # what no reader sees is kept without its changes
        Writer(path).close()
    generation = 2 if kept == "nothing" else 1
    writer = Writer(path, generation=generation, history=kept == "history")
    writer.write(rows)
    started = time.perf_counter()
    writer.write(rows)
    took = time.perf_counter() - started
    writer.close()
    return took


def measure_writes(rows: int, rounds: int) -> None:
    times: dict[str, list[float]] = {"nothing": [], "feeds": [], "history": []}
    for _ in range(rounds):
        for kept, found in times.items():
            with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
                found.append(seconds_of_batch(Path(directory), kept, rows))
    base = median(times["nothing"])
    for kept, found in times.items():
        took = median(found)
        print(
            f"writes       {rows:,} updates, {kept} kept: {rows / took:10,.0f} rows/s "
            f"({took / base:.2f}x the time)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subscribers", type=int, default=100)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    measure_looking(5.0)
    measure_delay("one thread", in_threads, 1, options.batches)
    measure_delay("threads", in_threads, options.subscribers, options.batches)
    measure_delay("one loop", in_one_loop, options.subscribers, options.batches)
    for rows in (100, options.rows):
        measure_writes(rows, options.rounds)


if __name__ == "__main__":
    main()
