"""Question: what does one slow record cost the records behind it, in a group and in a queue?

Reproduce:  python -m bench.head_of_line

One partition: a record whose work takes a second, and behind it records whose work takes a
millisecond. Four workers, as a consumer group (of which one owns the partition) and as a queue (of
which each takes a record at a time). What is measured is when the work on the quick records was
done, counted from the first record's start. Our broker, embedded; both clients in this process, so
that the ratio is what counts. Then the same without the slow record: what a queue costs.
"""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException

from millstream import App, Broker

WORKERS = 4
GIVE_UP_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The first record takes `slow_seconds`; then `quick` records of `quick_seconds` each."""

    slow_seconds: float
    quick: int
    quick_seconds: float = 0.001


@dataclass(slots=True)
class Clock:
    """When the work on each record was done."""

    load: Load
    started: float = 0.0
    done: dict[int, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, number: int) -> None:
        with self._lock:
            self.started = self.started or time.perf_counter()
        time.sleep(self.load.slow_seconds if number == 0 else self.load.quick_seconds)
        with self._lock:
            self.done[number] = time.perf_counter() - self.started

    @property
    def is_done(self) -> bool:
        return len(self.done) == self.load.quick + 1

    def quick_seconds(self) -> list[float]:
        return sorted(at for number, at in self.done.items() if number)


def by_group(app: App, topic: str, load: Load) -> Clock:
    clock = Clock(load)

    def read() -> None:
        config = {**app.client_config, "group.id": topic, "auto.offset.reset": "earliest"}
        consumer = Consumer(config)
        consumer.subscribe([topic])
        while not clock.is_done:
            message = consumer.poll(0.1)
            if message is not None and message.error():
                raise KafkaException(message.error())
            if message is not None:
                clock.work(int(message.value() or b"0"))
        consumer.close()

    app.queue(topic, partitions=1).put_many(range(load.quick + 1))
    _together(read)
    return clock


def by_queue(app: App, topic: str, load: Load) -> Clock:
    clock = Clock(load)
    queue = app.queue(topic, partitions=1)
    queue.put_many(range(load.quick + 1))

    def read() -> None:
        while not clock.is_done:
            job = queue.get(timeout=0.1)
            if job is not None:
                with job:
                    clock.work(job.value)

    _together(read)
    return clock


def _together(task: Callable[[], None]) -> None:
    threads = [threading.Thread(target=task, daemon=True) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP_SECONDS)


def measure(app: App, load: Load, *, suffix: str) -> tuple[float, float]:
    """The median time of the quick records, in a group and in a queue."""
    group = by_group(app, f"by-group-{suffix}", load)
    queue = by_queue(app, f"by-queue-{suffix}", load)
    return statistics.median(group.quick_seconds()), statistics.median(queue.quick_seconds())


def main() -> None:
    with Broker() as broker, App("bench", brokers=broker.bootstrap) as app:
        for title, load in {
            "one slow record in front": Load(slow_seconds=1.0, quick=200),
            "no slow record": Load(slow_seconds=0.001, quick=200),
        }.items():
            group, queue = measure(app, load, suffix=title.replace(" ", "-"))
            print(f"{title}: the median quick record is done after")
            print(f"  group  {group * 1000:7.0f} ms")
            print(f"  queue  {queue * 1000:7.0f} ms   {queue / group:.2f} of the group's")


if __name__ == "__main__":
    main()
