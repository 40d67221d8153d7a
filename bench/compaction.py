"""Questions: how fast is a log compacted, and do producers feel it?

Reproduce:  python -m bench.compaction [--quick]

*Cleaned* is one cleaning of a log on disk, first and second pass, index and sync included, in this
process; MB/s is the size of the log before by the time it took. *Felt* is a synchronous producer
(acks=all, synced before the answer) on another topic of the same broker, with and without a
cleaning in its side process, in turns, each on a fresh topic.
"""

import argparse
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from bench.client import EAGER_PRODUCER, Work, flush, payload, run_client
from millstream import Broker
from millstream.base.disk import RealDisk
from millstream.base.record import Record
from millstream.log.compaction import find_cleanable
from millstream.log.compaction_job import make_job, segment_facts
from millstream.log.compaction_run import CompactionRun
from millstream.log.config import LogConfig
from millstream.log.log_directory import CLEANED_OFFSETS_FILE
from millstream.log.partition_log import PartitionLog
from millstream.log.record_batch import Codec, encode_batch

NOW_MS = 1_700_000_000_000
BATCH_BYTES = 16 << 10
SEGMENT_BYTES = 16 << 20
CHUNK = 10_000
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less of everything, for a try")
    is_quick = parser.parse_args().quick
    print("measured | unit | median [lowest - highest]\n---|---|---")
    for record_bytes in (100, 1_000):
        for keys_per_record in (0.25, 0.75):
            measure_cleaning(record_bytes, keys_per_record, Codec.NONE, is_quick=is_quick)
    measure_cleaning(1_000, 0.25, Codec.LZ4, is_quick=is_quick)
    measure_latency(is_quick=is_quick)


def show(name: str, unit: str, samples: list[float]) -> None:
    low, high = min(samples), max(samples)
    print(f"{name} | {unit} | {median(samples):.3g} [{low:.3g} - {high:.3g}]", flush=True)


# --- cleaned -----------------------------------------------------------------------------------


def measure_cleaning(
    record_bytes: int, keys_per_record: float, codec: Codec, *, is_quick: bool
) -> None:
    log_bytes = (8 if is_quick else 64) << 20
    wall, cpu = [], []
    for _ in range(1 if is_quick else ROUNDS):
        with filled_log(record_bytes, keys_per_record, codec, log_bytes) as log:
            size_bytes = log.size_bytes
            started, started_cpu = time.perf_counter(), time.process_time()
            removed = clean(log)
            wall.append(size_bytes / 1e6 / (time.perf_counter() - started))
            cpu.append(size_bytes / 1e6 / (time.process_time() - started_cpu))
    suffix = "" if codec is Codec.NONE else f", {codec.name.lower()}"
    name = f"cleaned, {record_bytes} B{suffix}, {removed:.0%} of the records go"
    show(name, "MB/s", wall)
    show(f"{name}: by CPU time", "MB/s", cpu)


@contextmanager
def filled_log(
    record_bytes: int, keys_per_record: float, codec: Codec, log_bytes: int
) -> Iterator[PartitionLog]:
    """A log in closed segments, with so many keys for each record, written at random."""
    count = log_bytes // record_bytes
    chooser = random.Random(1)
    keys = int(count * keys_per_record)
    directory = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    config = LogConfig(segment_bytes=SEGMENT_BYTES, is_compacted=True, flush_messages=1 << 40)
    log = PartitionLog(RealDisk(), directory, config, leader_epoch=0, now_ms=NOW_MS)
    per_batch = max(1, BATCH_BYTES // record_bytes)
    values = [payload(record_bytes - 20) for _ in range(1_000)]
    try:
        for start in range(0, count, per_batch):
            records = [
                Record(
                    key=b"key-%09d" % key,
                    value=values[(start + number) % 1_000],
                    timestamp_ms=NOW_MS + start + number,
                )
                for number, key in enumerate(chooser.choices(range(keys), k=per_batch))
            ]
            batch = memoryview(encode_batch(records, codec=codec))
            log.append_own(batch, now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)
        yield log
    finally:
        shutil.rmtree(directory)


def clean(log: PartitionLog) -> float:
    """Clean all of it; the share of the records that went."""
    cleanable = find_cleanable(
        map(segment_facts, log.closed_segments),
        log.config,
        cleaned_offset=0,
        stable_offset=log.last_stable_offset,
        now_ms=NOW_MS * 2,
    )
    assert cleanable is not None
    job = make_job(log, cleanable, keys_max=10**7, bytes_per_second_max=-1, now_ms=NOW_MS)
    run = CompactionRun(RealDisk(), job)
    for _ in run.run():
        pass
    return 1 - run.counts.records_kept / run.counts.records_read


# --- felt --------------------------------------------------------------------------------------


def measure_latency(*, is_quick: bool) -> None:
    rounds, count = (1, 200) if is_quick else (ROUNDS, 1_500)
    quiet: dict[str, list[float]] = {"p50_ms": [], "p99_ms": []}
    busy: dict[str, list[float]] = {"p50_ms": [], "p99_ms": []}
    with Broker(segment_bytes="16MiB", compaction_check_interval_ms="100ms") as broker:
        for number in range(rounds):
            topic = f"compacted-{number}"
            fill(broker, topic, record_count=100_000 if is_quick else 1_000_000)
            measured = measure_once(broker, f"quiet-{number}", count)
            for name, samples in quiet.items():
                samples.append(measured[name])
            set_policy(broker, topic, "compact")
            time.sleep(0.4)  # until it has begun
            measured = measure_once(broker, f"busy-{number}", count)
            if not is_under_way(broker, topic):
                print(f"(round {number}: the cleaning ended first, so it counts for too little)")
            for name, samples in busy.items():
                samples.append(measured[name])
            delete(broker, topic)
    for name in ("p50_ms", "p99_ms"):
        show(f"synchronous produce, {name[:3]}", "ms", quiet[name])
        show(f"synchronous produce, {name[:3]}, during a cleaning", "ms", busy[name])
        print(f"ratio of the medians | | {median(busy[name]) / median(quiet[name]):.2f}")


def measure_once(broker: Broker, topic: str, count: int) -> dict[str, float]:
    create(broker, NewTopic(topic, 1, 1))
    work = Work(bootstrap=broker.bootstrap, topic=topic, count=count)
    return dict(run_client("produce_synchronously", work))


def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 3})


def create(broker: Broker, new: NewTopic) -> None:
    asked = admin(broker)
    asked.create_topics([new])[new.topic].result(30)


def fill(broker: Broker, topic: str, *, record_count: int) -> None:
    """Records of 100 bytes, not compacted yet."""
    config = {"min.cleanable.dirty.ratio": "0.01"}
    create(broker, NewTopic(topic, 1, 1, config=config))
    producer = Producer({"bootstrap.servers": broker.bootstrap, **EAGER_PRODUCER, "linger.ms": 5})
    chooser = random.Random(2)
    for _ in range(record_count // CHUNK):
        keys = chooser.choices(range(record_count // 4), k=CHUNK)
        chunk = [{"key": b"key-%09d" % key, "value": b"v" * 80} for key in keys]
        producer.produce_batch(topic, chunk)
    flush(producer)


def set_policy(broker: Broker, topic: str, policy: str) -> None:
    change = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    asked = admin(broker)  # kept: the answer is lost with its client
    for future in asked.incremental_alter_configs([resource]).values():
        future.result(30)


def delete(broker: Broker, topic: str) -> None:
    asked = admin(broker)
    asked.delete_topics([topic])[topic].result(30)


def is_under_way(broker: Broker, topic: str) -> bool:
    assert broker.data_dir is not None
    checkpoint = broker.data_dir / CLEANED_OFFSETS_FILE
    return not checkpoint.exists() or f"{topic} 0 " not in checkpoint.read_text()


if __name__ == "__main__":
    main()
