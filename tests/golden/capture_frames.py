"""Captures the requests of real clients, one file for each API, version and client:

    python -m tests.golden.capture_frames

A file holds one request as it came from the socket, without its size. The clients are librdkafka
and Kafka's Java tools. Run it again when a client has a new version; the tests take what is there.
"""

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from millstream.broker.connection import Connection
from millstream.broker.wire import ApiKey, read_request_header
from tests.support.broker_thread import BrokerThread
from tests.support.java_tools import run_tool

FRAMES = Path(__file__).parent / "frames"
TOPIC = "orders"
GROUP = "readers"
# Larger ones are many records: they prove nothing that a few do not.
FRAME_BYTES_MAX = 4_096


class Captured:
    """The first request of each kind."""

    def __init__(self) -> None:
        self.frames: dict[str, bytes] = {}
        self.client = ""

    def note(self, frame: bytes) -> None:
        header = read_request_header(frame)
        name = ApiKey(header.api_key).name.lower().replace("_", "-")
        if len(frame) <= FRAME_BYTES_MAX:
            self.frames.setdefault(f"{self.client}-{name}-v{header.api_version}", frame)


def capture(captured: Captured) -> None:
    handle = Connection._handle

    def note_and_handle(connection: Connection, frame: bytearray) -> None:
        captured.note(bytes(frame))
        handle(connection, frame)

    with (
        patch.object(Connection, "_handle", note_and_handle),
        tempfile.TemporaryDirectory() as data_dir,
        BrokerThread(Path(data_dir)) as broker,
    ):
        captured.client = "librdkafka"
        use_librdkafka(broker.bootstrap)
        captured.client = "java"
        use_java(broker.bootstrap)


def use_librdkafka(bootstrap: str) -> None:
    config: dict[str, Any] = {"bootstrap.servers": bootstrap}
    admin = AdminClient(config)
    admin.create_topics([NewTopic(TOPIC, 2, 1, config={"retention.ms": "3600000"})])[TOPIC].result()
    producer = Producer({**config, "enable.idempotence": True})
    for number in range(10):
        producer.produce(TOPIC, b"value %d" % number, key=b"key", headers=[("h", b"x")])
    producer.flush(10)
    consumer = Consumer({**config, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    consumer.consume(10, timeout=10)
    consumer.commit(asynchronous=False)
    consumer.committed([TopicPartition(TOPIC, 0)], timeout=10)
    consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1)], timeout=10)
    admin.list_consumer_groups().result()
    admin.describe_consumer_groups([GROUP])[GROUP].result()
    consumer.close()
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    admin.describe_configs([resource])[resource].result()
    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result()
    admin.delete_records([TopicPartition(TOPIC, 0, 0)])
    admin.describe_cluster().result()
    admin.delete_consumer_groups([GROUP])[GROUP].result()
    admin.delete_topics([TOPIC])[TOPIC].result()


def use_java(bootstrap: str) -> None:
    def run(tool: str, *arguments: str, stdin: str = "") -> None:
        run_tool(tool, *arguments, bootstrap=bootstrap, stdin=stdin).checked()

    topic = ("--topic", TOPIC)
    run("TopicCommand", "--create", *topic, "--partitions", "2")
    run("ConsoleProducer", *topic, stdin="one\ntwo\n")
    run(
        "consumer.ConsoleConsumer",
        *topic,
        *("--from-beginning", "--max-messages", "2", "--group", GROUP),
    )
    run("consumer.group.ConsumerGroupCommand", "--describe", "--group", GROUP)
    run(
        "consumer.group.ConsumerGroupCommand",
        *("--delete-offsets", "--group", GROUP, *topic),
    )
    run("GetOffsetShell", *topic, "--time", "1")
    run("TopicCommand", "--describe", *topic)
    run("LogDirsCommand", "--describe")
    run("TopicCommand", "--delete", *topic)


def main() -> None:
    captured = Captured()
    capture(captured)
    FRAMES.mkdir(exist_ok=True)
    for old in FRAMES.glob("*.bin"):
        old.unlink()
    for name, frame in captured.frames.items():
        (FRAMES / f"{name}.bin").write_bytes(frame)
    print(f"{len(captured.frames)} frames in {FRAMES.name}/")


if __name__ == "__main__":
    main()
