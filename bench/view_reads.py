"""Question: how long does a read of a view take while its job writes, and a read after one's write?

    python -m bench.view_reads [--rows 100000] [--changes 1000] [--every-ms 250] [--seconds 10]
    python -m bench.view_reads --job [--rate 1000] [--seconds 30]

A view in SQLite, filled once; then a process of its own, as a job is, writes a batch of changes at
a steady rate, synced as always. One reader gets random keys as fast as it can; then it reads after
writes: at random moments an event is taken as published, and counts in the next batch that starts.
The wait is from then until the answer. What is beyond the job's own time is how long the answer
took after the batch was there ("noticed").

With `--job` it is a real one, in Spark, over the app's own broker: the stateless view of
bench/latency.py. At random moments an event is published, and its row is read after it; alone, when
the job is at rest, and while others are published at a steady rate. How long a batch takes is what
Spark tells of those that had rows.
"""

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa

from bench.latency import READY_WITHIN_SECONDS as JOB_READY_WITHIN_SECONDS
from bench.latency import TOPIC as JOB_TOPIC
from bench.latency import WARM_UP_SECONDS, Sending, declared_app
from millstream import App
from millstream.base.ports import BatchReceipt
from millstream.queues.outbox import Receipt
from millstream.schemas.declaration import schema_of
from millstream.views.store import ViewNotFound
from millstream.views.stores.sqlite.reader import ViewReader
from millstream.views.stores.sqlite.store import SqliteView
from millstream.views.view import View

DDL = "id BIGINT, url STRING, count BIGINT, at TIMESTAMP"
TOPIC = "clicks"
EVENTS_PER_SECOND = 1_000
READY_WITHIN_SECONDS = 60.0
WAIT_SECONDS_MAX = 30.0
# Of reads after what was published to a real job.
PAUSE_SECONDS_MAX = 0.5
LOOK_SECONDS = 0.01
OWN_IDS = 1_000_000_000


def batch_of(ids: list[int]) -> pa.Table:
    now_us = time.time_ns() // 1000
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "url": [f"/page/{number}" for number in ids],
            "count": pa.array(ids, pa.int64()),
            "at": pa.array([now_us] * len(ids), pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )


def published(started: float) -> int:
    """The offset that the next event gets: time itself produces, the same in all processes."""
    return int((time.monotonic() - started) * EVENTS_PER_SECOND)


class Job:
    """What writes the view."""

    def __init__(self, path: Path, *, started: float) -> None:
        self._store = SqliteView(path, view="pages", key=["id"])
        self._epoch = self._store.claim("pages", schema_of(DDL))
        self._started, self._batch = started, 0
        self.written: list[tuple[int, float]] = []

    def write(self, changes: pa.Table) -> None:
        offset = published(self._started)
        receipt = BatchReceipt(
            job="pages",
            epoch=self._epoch,
            query="q",
            batch=self._batch,
            positions={TOPIC: {0: offset}},
        )
        self._store.write(receipt, changes)
        self._batch += 1
        self.written.append((offset, time.monotonic()))


def write_batches(
    path: Path, rows: int, changes: int, every_s: float, started: float, link: Connection
) -> None:
    """Until it is told to end; then when each offset was there."""
    job = Job(path, started=started)
    job.write(batch_of(list(range(rows))))
    link.send("ready")
    next_at = time.monotonic()
    while not link.poll(max(0.0, next_at - time.monotonic())):
        job.write(batch_of(random.choices(range(rows), k=changes)))
        next_at += every_s
    link.send(job.written)


class Writing:
    """A job in a process of its own."""

    def __init__(self, link: Connection, *, started: float) -> None:
        self._link, self.started = link, started
        self.written: list[tuple[int, float]] = []

    def end(self) -> None:
        if not self.written:
            self._link.send("end")
            self.written = self._link.recv()

    def between_batches(self) -> float:
        """The median; on a busy machine it is longer than what was asked for."""
        ends = [at for _, at in self.written]
        return median(later - earlier for earlier, later in pairwise(ends))

    def seen_first(self, offset: int) -> float:
        """When the view had passed this event."""
        return next(at for reached, at in self.written if reached > offset)


@contextmanager
def writing(path: Path, options: argparse.Namespace) -> Iterator[Writing]:
    ours, theirs = get_context("spawn").Pipe()
    started = time.monotonic()
    work = (path, options.rows, options.changes, options.every_ms / 1000, started, theirs)
    process = get_context("spawn").Process(target=write_batches, args=work, daemon=True)
    process.start()
    if not ours.poll(READY_WITHIN_SECONDS):
        raise RuntimeError("the view was not filled in time")
    ours.recv()
    job = Writing(ours, started=started)
    yield job
    job.end()
    process.join(WAIT_SECONDS_MAX)


def timed(action: Callable[[], object]) -> float:
    before = time.perf_counter()
    action()
    return time.perf_counter() - before


def gets(view: View, *, rows: int, seconds: float) -> list[float]:
    ends = time.monotonic() + seconds
    found = []
    while time.monotonic() < ends:
        key = random.randrange(rows)
        found.append(timed(lambda key=key: view.get(key)))  # type: ignore[misc]  # bound at once
    return found


def reads_after_writes(
    view: View, job: Writing, *, rows: int, every_s: float, seconds: float
) -> list[tuple[int, float, float]]:
    """Of each: the event's offset, when it was published, and when the answer came."""
    ends = time.monotonic() + seconds
    found = []
    while time.monotonic() < ends:
        time.sleep(random.uniform(0, every_s))
        offset, before = published(job.started), time.monotonic()
        after = Receipt(TOPIC, 0, offset)
        view.get(random.randrange(rows), after=after, timeout=WAIT_SECONDS_MAX)
        found.append((offset, before, time.monotonic()))
    return found


def line(what: str, seconds: list[float]) -> str:
    cuts = [1000 * cut for cut in quantiles(seconds, n=100)]
    longest = 1000 * max(seconds)
    return (
        f"{what:38} p50 {cuts[49]:8.3f} ms   p99 {cuts[98]:8.3f} ms   max {longest:8.3f} ms"
        f"   ({len(seconds)} reads)"
    )


def measure(path: Path, options: argparse.Namespace) -> None:
    every_s = options.every_ms / 1000
    with View("pages", ViewReader(path, view="pages")) as view, writing(path, options) as job:
        print(
            line("get while the job writes", gets(view, rows=options.rows, seconds=options.seconds))
        )
        found = reads_after_writes(
            view, job, rows=options.rows, every_s=every_s, seconds=options.seconds
        )
        job.end()
        quiet = gets(view, rows=options.rows, seconds=min(2.0, options.seconds))
    waits = [answered - asked for _, asked, answered in found]
    noticed = [answered - max(asked, job.seen_first(offset)) for offset, asked, answered in found]
    print(line("get, nothing writes", quiet))
    print(line("wait of get(after=...)", waits))
    print(line("  of it: until it was noticed", [max(0.0, one) for one in noticed]))
    say_goal(waits, batch_s=job.between_batches())


def say_goal(waits: list[float], *, batch_s: float) -> None:
    is_met = median(waits) < batch_s
    goal = f"goal: p50 of the wait below one batch, which took {1000 * batch_s:.0f} ms"
    print(f"{goal}: {'met' if is_met else 'not met'}", flush=True)


# --- a real job


class BatchTimes(threading.Thread):
    """Of the batches of a job that had rows, as it tells of them."""

    def __init__(self, app: App) -> None:
        super().__init__(daemon=True)
        self._app, self._ended = app, threading.Event()
        self._ms: dict[int, int] = {}

    def run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            for job in self._app.jobs.progress():
                if job.batch is not None and job.batch_ms is not None and job.rows:
                    self._ms[job.batch] = job.batch_ms

    def end(self) -> float:
        """The median, in seconds."""
        self._ended.set()
        self.join()
        return median(self._ms.values()) / 1000


def reads_after_publishing(app: App, view: View, *, first: int, seconds: float) -> list[float]:
    """From when an event was published until its row was read."""
    waits: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        time.sleep(random.uniform(0, PAUSE_SECONDS_MAX))
        id = first + len(waits)
        after = app.publish(JOB_TOPIC, {"id": id, "page": "/", "at": datetime.now(UTC)})
        read = partial(view.get, id, after=after, timeout=WAIT_SECONDS_MAX)
        waits.append(timed(read))
    return waits


def measure_job_reads(what: str, app: App, view: View, *, first: int, seconds: float) -> None:
    batches = BatchTimes(app)
    batches.start()
    waits = reads_after_publishing(app, view, first=first, seconds=seconds)
    print(line(f"wait of get(after=...), {what}", waits))
    say_goal(waits, batch_s=batches.end())


def measure_job(directory: Path, options: argparse.Namespace) -> None:
    app, name = declared_app("stateless", directory)
    with app:
        running = threading.Thread(target=app.run, daemon=True)
        running.start()
        view, sending = app.view(name), Sending(app.bootstrap, rate=options.rate)
        sending.send_for(0.1)
        await_view(view)
        sending.send_for(WARM_UP_SECONDS)
        seconds = options.seconds
        measure_job_reads("job at rest", app, view, first=OWN_IDS, seconds=seconds)
        others = threading.Thread(target=sending.send_for, args=(seconds,))
        others.start()
        measure_job_reads("others publish", app, view, first=2 * OWN_IDS, seconds=seconds)
        others.join()
        app.stop()
        running.join(WAIT_SECONDS_MAX)


def await_view(view: View) -> None:
    """Until the job's first batch is there."""
    ends = time.monotonic() + JOB_READY_WITHIN_SECONDS
    while time.monotonic() < ends:
        with suppress(ViewNotFound):
            if view.position().get(JOB_TOPIC):
                return
        time.sleep(LOOK_SECONDS)
    raise RuntimeError("the job has not written its view in time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=1_000, help="in each batch")
    parser.add_argument("--every-ms", type=int, default=250, help="from batch to batch")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each of the two")
    parser.add_argument("--job", action="store_true", help="a real one, in Spark")
    parser.add_argument("--rate", type=int, default=1_000, help="events a second, with --job")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        if options.job:
            measure_job(Path(directory), options)
            return
        measure(Path(directory) / "pages.sqlite", options)


if __name__ == "__main__":
    main()
