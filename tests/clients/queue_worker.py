"""A worker in a process of its own, to be killed or frozen with a job in its hands.

python -m tests.clients.queue_worker BOOTSTRAP QUEUE LOCK_SECONDS

Prints the id of the job that it holds, waits for a line on standard input, acknowledges the job and
prints what came of it.
"""

import sys

from millstream import LockLost, Queue


def main(bootstrap: str, name: str, lock: str) -> None:
    with Queue(name, {"bootstrap.servers": bootstrap}, lock=float(lock)) as queue:
        job = queue.get()
        assert job is not None
        print(job.id, flush=True)
        sys.stdin.readline()
        try:
            job.ack()
            print("acknowledged", flush=True)
        except LockLost:
            print("lost", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
