"""How fast a topic is archived to Parquet files, read from them, and restored.

    python -m bench.archive

Prints records and bytes of keys and values per second, the size of the files, and the largest
memory of the command. One broker on loopback with its defaults (synced), one partition, the
archive in a directory; the commands are processes of their own. Values are half noise, half
text. The time is that of the work, without the start of the command; the CPU is all that the
command used, so that it can be compared on a busy machine.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from millstream import Broker, archive

DONE_WITHIN_S = 120.0
NOISE_BYTES = 64 << 20  # more than the compressor remembers
TEXT = b"the mill grinds what the stream brings; " * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    records: int
    value_bytes: int
    headers: int = 0

    @property
    def megabytes(self) -> float:
        return self.records * self.value_bytes / 1e6

    def __str__(self) -> str:
        with_headers = f", {self.headers} headers each" if self.headers else ""
        return f"{self.records:,} records of {self.value_bytes:,} bytes{with_headers}"


LOADS = (
    Load(records=1_000_000, value_bytes=100),
    Load(records=300_000, value_bytes=1_000),
    Load(records=300_000, value_bytes=100, headers=2),
)


def main() -> None:
    with Broker() as broker:
        for number, load in enumerate(LOADS):
            print(load)
            measure(broker.bootstrap, f"load-{number}", load)


def measure(bootstrap: str, topic: str, load: Load) -> None:
    fill(bootstrap, topic, load)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as place:
        run = command(bootstrap, "archive", topic, "--to", place, "--all")
        show("archived", load, run)
        show("read", load, read(place, topic))
        done = command(bootstrap, "restore", "--from", place, "--to-topic", f"{topic}-restored")
        show("restored", load, done)
    ratio = load.megabytes * 1e6 / run["bytes"]
    memory_mib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    print(
        f"  {run['files']} files, {ratio:.1f}x smaller; at most {memory_mib} MiB of memory so far"
    )


def fill(bootstrap: str, topic: str, load: Load) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    noise, text = os.urandom(NOISE_BYTES), TEXT[: load.value_bytes // 2]
    half = load.value_bytes - len(text)
    headers: Any = [(f"name-{n}", b"value") for n in range(load.headers)]
    for number in range(load.records):
        at = number * half % (NOISE_BYTES - half)
        producer.produce(topic, noise[at : at + half] + text, b"%d" % number, headers=headers)
        if number % 10_000 == 0:
            producer.flush(DONE_WITHIN_S)
    if producer.flush(DONE_WITHIN_S):
        raise RuntimeError("not everything was acknowledged")


def command(bootstrap: str, *args: str) -> Any:
    words = [sys.executable, "-m", "millstream", "topics", *args, "--json"]
    env = os.environ | {"MILLSTREAM_BROKERS": bootstrap}
    before = cpu_seconds(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, env=env, stdout=subprocess.PIPE, check=True)
    used = cpu_seconds(resource.RUSAGE_CHILDREN) - before
    return json.loads(done.stdout) | {"cpu_seconds": used}


def cpu_seconds(whose: int) -> float:
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


def read(place: str, topic: str) -> dict[str, float]:
    started, before = time.perf_counter(), cpu_seconds(resource.RUSAGE_SELF)
    for _batch in archive.read(place, topic):
        pass
    used = cpu_seconds(resource.RUSAGE_SELF) - before
    return {"seconds": time.perf_counter() - started, "cpu_seconds": used}


def show(what: str, load: Load, run: dict[str, float]) -> None:
    rate, megabytes = load.records / run["seconds"], load.megabytes / run["seconds"]
    cpu_us = run["cpu_seconds"] / load.records * 1e6
    print(
        f"  {what:<9} {rate:>10,.0f} records/s {megabytes:>7,.1f} MB/s {cpu_us:>6.1f} us CPU each"
    )


if __name__ == "__main__":
    main()
