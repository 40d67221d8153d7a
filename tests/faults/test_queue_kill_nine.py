"""A queue through kill -9 of its broker: workers go on, and every job ends once, or in a letter.

What an application can know: an `ack` that returned is stored, so that job is never delivered
again. One that raised may be stored or not; then the job comes again, or was the last of its kind.
"""

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from millstream import App, Broker, Job, Queue
from millstream.base.errors import MillstreamError
from tests.support.broker_process import BrokerProcess, assert_no_traceback
from tests.support.waiting import eventually

JOBS = 200
WORKERS, THREADS = 2, 4
WITHIN_S = 60.0


class Ledger:
    """What became of each job, as its workers saw it."""

    def __init__(self) -> None:
        self.acked: Counter[int] = Counter()
        self.rejected: Counter[int] = Counter()
        self.unknown: set[int] = set()  # the broker died before it answered
        self._lock = threading.Lock()

    def note(self, counter: "Counter[int]", number: int) -> None:
        with self._lock:
            counter[number] += 1

    @property
    def ended(self) -> set[int]:
        return self.acked.keys() | self.rejected.keys() | self.unknown

    def work(self, queue: Queue, chance: random.Random, stop: threading.Event) -> None:
        while not stop.is_set():
            job = queue.get(timeout=0.2)
            if job is not None:
                self._settle(job, chance.random())

    def _settle(self, job: Job, fate: float) -> None:
        number = job.value
        try:
            if fate < 0.1:
                job.release(delay=0.05 if fate < 0.05 else None)
            elif number % 10 == 0:
                job.reject("a multiple of ten")
                self.note(self.rejected, number)
            else:
                job.ack()
                self.note(self.acked, number)
        except MillstreamError:
            self.unknown.add(number)


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.full)])
def test_every_job_ends_once_or_in_a_letter(tmp_path: Path, kills: int) -> None:
    ledger, stop = Ledger(), threading.Event()
    with Broker(tmp_path) as broker:
        apps = [App("workers", brokers=broker.bootstrap) for _ in range(WORKERS)]
        queues = [app.queue("jobs", partitions=2, attempts_max=10) for app in apps]
        queues[0].put_many(range(JOBS))
        threads = [
            threading.Thread(
                target=ledger.work, args=[queue, random.Random(seed), stop], daemon=True
            )
            for seed, queue in enumerate(queues * THREADS)
        ]
        for thread in threads:
            thread.start()
        for kill in range(1, kills + 1):
            reached = kill * JOBS // (kills + 1)
            eventually(
                lambda reached=reached: len(ledger.ended) >= reached,  # type: ignore[misc]
                what=f"{reached} jobs done",
                within_s=WITHIN_S,
            )
            broker.kill()
            broker.start()
        eventually(lambda: is_finished(ledger), what="all jobs done", within_s=WITHIN_S)
        stop.set()
        for thread in threads:
            thread.join()
        letters = {int(one.raw_value or b"-1") for one in queues[0].dead_letters()}
        for app in apps:
            app.close()
    check(ledger, letters)


def is_finished(ledger: Ledger) -> bool:
    """All have ended, also those of which nobody knew, and a while later nothing has come."""
    if len(ledger.ended) < JOBS:
        return False
    before = ledger.acked.total() + ledger.rejected.total()
    time.sleep(1.0)
    return before == ledger.acked.total() + ledger.rejected.total()


def check(ledger: Ledger, letters: set[int]) -> None:
    assert ledger.ended == {*range(JOBS)}, "a job is lost"
    twice = {number for number, count in ledger.acked.items() if count > 1}
    assert not twice, f"delivered again after an ack that returned: {twice}"
    assert ledger.rejected.keys() <= letters, "a rejected job without a letter"
    assert not ledger.acked.keys() & ledger.rejected.keys()
    assert {number for number in letters if number % 10} == set(), "a letter of a good job"


def test_a_broker_that_is_stopped_while_a_job_is_held_ends_cleanly(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        with App("shop", brokers=broker.bootstrap) as app:
            jobs = app.queue("jobs")
            jobs.put("a")
            job = jobs.get(timeout=WITHIN_S)
            assert broker.stop() == 0
            assert job is not None
        assert_no_traceback(broker.diagnostics)
        assert "read-only" not in broker.diagnostics
