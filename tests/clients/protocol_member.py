"""A group member in a process of its own that says, line by line, what it owns and when.

python -m tests.clients.protocol_member BOOTSTRAP GROUP TOPIC CONFIG_JSON

Each line is a JSON object: `event` (assigned, revoked, failed), `ms` of the machine's monotonic
clock, and `partitions` as "topic-number". SIGTERM makes it leave as a consumer does.
"""

import json
import signal
import sys
import time
from types import FrameType

from confluent_kafka import Consumer, TopicPartition

from tests.clients.steps import Config, open_consumer

# What the broker decides in a consumer group cannot be set by its members.
CLASSIC_ONLY = ("session.timeout.ms", "heartbeat.interval.ms")


def config_of(protocol: str) -> Config:
    if protocol == "consumer":
        return {"group.protocol": "consumer"}
    return {"partition.assignment.strategy": protocol}


def open_member(bootstrap: str, group: str, config: Config) -> Consumer:
    if config.get("group.protocol") == "consumer":
        settings = dict(config) | {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
        return Consumer(settings)
    return open_consumer(bootstrap, group, config)


def say(event: str, partitions: list[TopicPartition], **more: str) -> None:
    names = [f"{one.topic}-{one.partition}" for one in partitions]
    line = {"event": event, "ms": time.monotonic_ns() // 1_000_000, "partitions": names, **more}
    print(json.dumps(line), flush=True)


def main(bootstrap: str, group: str, topic: str, config: str) -> None:
    is_leaving = False

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal is_leaving
        is_leaving = True

    signal.signal(signal.SIGTERM, leave)
    consumer = open_member(bootstrap, group, json.loads(config))
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: say("assigned", partitions),
        on_revoke=lambda _, partitions: say("revoked", partitions),
        on_lost=lambda _, partitions: say("revoked", partitions),
    )
    while not is_leaving:
        message = consumer.poll(0.05)
        if message is not None and message.error() is not None:
            say("failed", [], reason=str(message.error()))
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
