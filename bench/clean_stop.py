"""Question: how long does a clean stop of a broker with many partitions take?

Reproduce:  python -m bench.clean_stop [PARTITIONS]     (4,800 unless given; about two minutes)

One topic of so many partitions. Timed: its creation, the stop after it, a start, the stop of a
broker in which nothing has changed, and the stop after one record for each partition.
"""

import sys
import tempfile
from pathlib import Path
from time import perf_counter

from confluent_kafka import Producer

from millstream import Broker
from millstream.base.librdkafka import admin_api

TOPIC = "wide"
PARTITIONS = 4_800
WITHIN_S = 300.0


def timed(what: str, began: float) -> None:
    print(f"{what:<42} {perf_counter() - began:6.1f} s", flush=True)


def create(bootstrap: str, partitions: int) -> None:
    api = admin_api()
    admin = api.AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.create_topics([api.NewTopic(TOPIC, partitions, 1)], request_timeout=WITHIN_S)
    asked[TOPIC].result(WITHIN_S)


def write_to_each(bootstrap: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(partitions):
        producer.produce(TOPIC, b"x", partition=number)
    left = producer.flush(WITHIN_S)
    assert left == 0, f"{left} records were not written"


def main() -> None:
    partitions = int(sys.argv[1]) if len(sys.argv) > 1 else PARTITIONS
    with tempfile.TemporaryDirectory(dir=".") as directory:
        broker = Broker(Path(directory) / "data")
        broker.start()
        began = perf_counter()
        create(broker.bootstrap, partitions)
        timed(f"creation of {partitions:,} partitions", began)
        for what in ("the creation", "nothing has changed", "a record in each"):
            if what != "the creation":
                began = perf_counter()
                broker.start()
                timed("start", began)
            if what == "a record in each":
                write_to_each(broker.bootstrap, partitions)
            began = perf_counter()
            broker.stop()
            timed(f"stop: {what}", began)


if __name__ == "__main__":
    main()
