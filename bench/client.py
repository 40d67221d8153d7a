"""The measured client, in a process of its own so that nothing is left over from the last run.

    python -m bench.client TASK '{"bootstrap": ..., "topic": ..., ...}'

prints what it measured as JSON. It is librdkafka with as little Python in the loop as can be:
records are handed over in lists of ten thousand, made beforehand, and taken the same way. The
queues are made large enough that librdkafka never waits for Python.
"""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from statistics import quantiles

from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition

CHUNK = 10_000
DONE_WITHIN_S = 120.0
CLIENT_TIMEOUT_S = 2 * DONE_WITHIN_S
# A member of a share group that gets nothing for so long has taken all there was.
QUIET_S = 2.0

# Without these librdkafka stops fetching for a second whenever 100,000 records wait in its queue.
EAGER_CONSUMER = {
    "queued.min.messages": 10_000_000,
    "queued.max.messages.kbytes": 2_000_000,
    "fetch.queue.backoff.ms": 1,
}
EAGER_PRODUCER = {
    "queue.buffering.max.messages": 10_000_000,
    "queue.buffering.max.kbytes": 2_000_000,
    "delivery.report.only.error": True,
    "acks": "all",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the client is to do; a task reads the fields that concern it."""

    bootstrap: str
    topic: str
    partitions: int = 1
    count: int = 0
    record_bytes: int = 100
    codec: str = "none"
    connections: int = 1
    seconds: float = 0.0


Measured = Mapping[str, float]


def run_client(task: str, work: Work) -> Measured:
    """Run a task in a fresh process and return what it measured."""
    command = [sys.executable, "-m", "bench.client", task, json.dumps(asdict(work))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{task} of {work} failed:\n{done.stdout}\n{done.stderr}")
    measured = json.loads(done.stdout)
    assert isinstance(measured, dict)
    return measured


def produce_batches(work: Work) -> Measured:
    """Send `count` records as fast as they go; the clock stops at the last acknowledgement."""
    producer = open_producer(work, {"compression.type": work.codec, "linger.ms": 5})
    chunk = [{"value": payload(work.record_bytes)} for _ in range(CHUNK)]
    started_s = time.perf_counter()
    for _ in range(work.count // CHUNK):
        if producer.produce_batch(work.topic, chunk) != CHUNK:
            raise RuntimeError("librdkafka's queue is full")
    flush(producer)
    seconds = time.perf_counter() - started_s
    expect_records(work)
    return {"seconds": seconds}


def consume_batches(work: Work) -> Measured:
    """Read `count` records from the beginning; the clock includes the first lookup."""
    consumer = open_consumer(work)
    got = 0
    started_s = time.perf_counter()
    consumer.assign([TopicPartition(work.topic, number, 0) for number in range(work.partitions)])
    while got < work.count:
        if time.perf_counter() - started_s > DONE_WITHIN_S:
            raise RuntimeError(f"{got} of {work.count} records in {DONE_WITHIN_S} s")
        got += len(consumer.consume(CHUNK, 1.0))
    seconds = time.perf_counter() - started_s
    return {"seconds": seconds}


def produce_one_per_request(work: Work) -> Measured:
    """Keep `connections` producers busy, each with one record in flight; count on the broker."""
    config = {"batch.num.messages": 1, "linger.ms": 0, "max.in.flight": 1}
    producers = [open_producer(work, config) for _ in range(work.connections)]
    counter = open_consumer(work)
    chunk = [{"value": payload(work.record_bytes)}] * work.count
    for number, producer in enumerate(producers):
        producer.produce_batch(work.topic, chunk, partition=number % work.partitions)
    time.sleep(0.5)  # past the connecting
    start, started_s = end_offsets(counter, work), time.perf_counter()
    time.sleep(work.seconds)
    end, ended_s = end_offsets(counter, work), time.perf_counter()
    if end >= work.connections * work.count:
        raise RuntimeError(f"{work.count} records for each connection were too few")
    for producer in producers:
        producer.purge()
    return {"records": end - start, "seconds": ended_s - started_s}


def produce_synchronously(work: Work) -> Measured:
    """Send `count` records, each after the last one's acknowledgement; the spread of the waits."""
    producer = open_producer(work, {"linger.ms": 0, "socket.nagle.disable": True})
    value = payload(work.record_bytes)
    waits_ms = []
    for _ in range(work.count):
        started_s = time.perf_counter()
        producer.produce(work.topic, value, partition=0)
        flush(producer)
        waits_ms.append(1000 * (time.perf_counter() - started_s))
    expect_records(work)
    percentiles = quantiles(waits_ms[work.count // 10 :], n=100)  # without the first tenth
    return {"p50_ms": percentiles[49], "p99_ms": percentiles[98]}


def commit_transactions(work: Work) -> Measured:
    """Commit transactions of `count` records for a while; the spread of the waits for commits."""
    config = {"transactional.id": work.topic, "linger.ms": 0, "socket.nagle.disable": True}
    producer = open_producer(work, config)
    producer.init_transactions(DONE_WITHIN_S)
    chunk = [{"value": payload(work.record_bytes)}] * (work.count // work.partitions)
    unmeasured = _commit_for(producer, work, chunk, work.seconds / 3)  # the JVM learns the way
    started_s = time.perf_counter()
    waits_ms = _commit_for(producer, work, chunk, work.seconds)
    seconds = time.perf_counter() - started_s
    stored, sent = end_offsets(open_consumer(work), work), len(unmeasured + waits_ms) * work.count
    if stored < sent:
        raise RuntimeError(f"{stored} of {sent} records are in {work.topic}")
    percentiles = quantiles(waits_ms, n=100)
    return {
        "transactions": len(waits_ms),
        "seconds": seconds,
        "p50_ms": percentiles[49],
        "p99_ms": percentiles[98],
    }


def _commit_for(
    producer: Producer, work: Work, chunk: list[dict[str, bytes]], seconds: float
) -> list[float]:
    """How long each commit took, in ms."""
    waits_ms: list[float] = []
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s or len(waits_ms) < 2:
        producer.begin_transaction()
        for number in range(work.partitions):
            producer.produce_batch(work.topic, chunk, partition=number)
        flush(producer)
        started_s = time.perf_counter()
        producer.commit_transaction(DONE_WITHIN_S)
        waits_ms.append(1000 * (time.perf_counter() - started_s))
    return waits_ms


def share_records(work: Work) -> Measured:
    """Take and accept records of the share group named as the topic, until none come any more.

    The first and the last moment at which some came are on the machine's clock: several members
    are measured at once.
    """
    config = {"bootstrap.servers": work.bootstrap, "group.id": work.topic, "log_level": 3}
    consumer = ShareConsumer(config)
    consumer.subscribe([work.topic])
    got, first_s, last_s = 0, 0.0, 0.0
    deadline_s = time.time() + DONE_WITHIN_S
    while time.time() < deadline_s and not (got and time.time() - last_s > QUIET_S):
        count = len(consumer.poll(0.5))
        if count:
            last_s = time.time()
            first_s, got = first_s or last_s, got + count
        elif not got and time.time() > deadline_s - DONE_WITHIN_S + work.seconds:
            break  # others had it all
    consumer.close()
    return {"records": got, "first_s": first_s, "last_s": last_s}


def payload(size: int) -> bytes:
    """Half noise, half text, so that a codec has something to do and something to gain."""
    noise = os.urandom(size // 2)
    return noise + (b"the mill grinds what the stream brings; " * size)[: size - len(noise)]


def open_producer(work: Work, config: Mapping[str, object]) -> Producer:
    """A connected producer that knows its topic: neither is part of what is measured."""
    producer = Producer({"bootstrap.servers": work.bootstrap, **EAGER_PRODUCER, **config})
    producer.list_topics(work.topic, timeout=DONE_WITHIN_S)
    return producer


def open_consumer(work: Work) -> Consumer:
    config = {"bootstrap.servers": work.bootstrap, "group.id": "bench", **EAGER_CONSUMER}
    consumer = Consumer({**config, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
    consumer.list_topics(work.topic, timeout=DONE_WITHIN_S)
    return consumer


def flush(producer: Producer) -> None:
    left = producer.flush(DONE_WITHIN_S)
    if left:
        raise RuntimeError(f"{left} records were not acknowledged in {DONE_WITHIN_S} s")


def expect_records(work: Work) -> None:
    """What was acknowledged must be there, or the figure is worth nothing."""
    stored = end_offsets(open_consumer(work), work)
    if stored != work.count:
        raise RuntimeError(f"{stored} of {work.count} records are in {work.topic}")


def end_offsets(consumer: Consumer, work: Work) -> int:
    """How many records the topic has, by the ends of its partitions."""
    partitions = [TopicPartition(work.topic, number) for number in range(work.partitions)]
    return sum(consumer.get_watermark_offsets(one, DONE_WITHIN_S)[1] for one in partitions)


TASKS: Mapping[str, Callable[[Work], Measured]] = {
    task.__name__: task
    for task in (
        produce_batches,
        consume_batches,
        produce_one_per_request,
        produce_synchronously,
        commit_transactions,
        share_records,
    )
}


if __name__ == "__main__":
    gc.disable()  # a million small objects are made and dropped; none is part of a cycle
    print(json.dumps(TASKS[sys.argv[1]](Work(**json.loads(sys.argv[2])))))
