"""How many threads should sync the files of different partitions?

    .venv/bin/python -m bench.sync_threads

Writes a little to 12 files and syncs them all, with 1 to 12 threads in alternation; prints the
median time for all 12 and the ratio to one thread. The answer is SYNC_THREADS in
src/millstream/broker/group_commit.py.
"""

import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FILES = 12
ROUNDS = 60
THREADS = (1, 2, 4, 8, 12)
PAYLOAD = bytes(170)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=".") as directory:
        flags = os.O_CREAT | os.O_RDWR
        fds = [os.open(Path(directory) / str(number), flags) for number in range(FILES)]
        pools = {count: ThreadPoolExecutor(count) for count in THREADS}
        times: dict[int, list[float]] = {count: [] for count in THREADS}
        for _ in range(ROUNDS):
            for count, pool in pools.items():
                times[count].append(sync_all(pool, fds))
        for pool in pools.values():
            pool.shutdown()
        for fd in fds:
            os.close(fd)
    single = statistics.median(times[1])
    print(f"{'threads':>8} {'median ms':>10} {'to one thread':>14}")
    for count in THREADS:
        median = statistics.median(times[count])
        print(f"{count:>8} {median * 1000:>10.2f} {median / single:>13.2f}x")


def sync_all(pool: ThreadPoolExecutor, fds: list[int]) -> float:
    for fd in fds:
        os.write(fd, PAYLOAD)
    started = time.perf_counter()
    list(pool.map(os.fdatasync, fds))
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
