"""The demo's work queue: jobs, workers in processes of their own, and one that is killed at work.

`python examples/log_demo_queue.py BOOTSTRAP` is one worker: it says what it begins and ends.
"""

import subprocess
import sys
import time
from collections import Counter

from millstream import App, LockLost

JOBS = 120
BAD_JOB = {"mail": 0, "to": "nobody"}
WORKERS = 3
# How long a job of the worker that is killed stays locked, if its connection does not end.
LOCK_SECONDS = 2.0
PATIENCE_SECONDS = 60.0


def work(bootstrap: str) -> None:
    """Take jobs until there are none for a while."""
    with App("mails", brokers=bootstrap) as app:
        mails = app.queue("mails", lock=LOCK_SECONDS, retry_delay=0.1, attempts_max=3)
        while (job := mails.get(timeout=3)) is not None:
            print("begun", job.value["mail"], flush=True)
            try:
                with job:
                    time.sleep(0.02)
                    if job.value == BAD_JOB:
                        raise ValueError("no such address")
            except (ValueError, LockLost):
                continue
            print("done", job.value["mail"], flush=True)


class Worker:
    """A process that works, and the jobs that it has said are done."""

    def __init__(self, bootstrap: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, bootstrap], stdout=subprocess.PIPE, text=True
        )
        self.done: Counter[int] = Counter()

    def listen(self, until_begun: int | None = None) -> None:
        """Until it ends, or has begun so many jobs."""
        assert self.process.stdout is not None
        begun = 0
        for line in self.process.stdout:
            what, number = line.split()
            self.done[int(number)] += what == "done"
            begun += what == "begun"
            if begun == until_begun:
                return
        self.process.wait(PATIENCE_SECONDS)


def run_queue(bootstrap: str) -> tuple[Counter[int], list[str]]:
    """Put jobs, let workers do them, kill one. Returns how often each was done, and what died of
    what."""
    with App("mails", brokers=bootstrap) as app:
        mails = app.queue("mails", lock=LOCK_SECONDS, retry_delay=0.1, attempts_max=3)
        good = [{"mail": number, "to": "ada@example.org"} for number in range(1, JOBS)]
        mails.put_many([BAD_JOB, *good])
        workers = [Worker(bootstrap) for _ in range(WORKERS)]
        workers[0].listen(until_begun=3)
        workers[0].process.kill()
        for worker in workers:
            worker.listen()
        done = sum((worker.done for worker in workers), Counter[int]())
        return done, [letter.death.reason for letter in mails.dead_letters()]


if __name__ == "__main__":
    work(sys.argv[1])
