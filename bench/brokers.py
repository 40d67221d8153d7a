"""The two contenders: our broker and Apache Kafka, as processes of their own on loopback.

A contender is a broker in one mode. `synced` acknowledges after the disk has the record: our
default, and flush.messages=1 for a topic of Kafka. `relaxed` leaves the sync to later: our
`--durability relaxed`, and Kafka's default. Does not measure: see the question files.
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported in its types
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from tests.support.apache_kafka import ApacheKafka

Side = Literal["ours", "kafka"]
Mode = Literal["synced", "relaxed"]
SIDES: tuple[Side, ...] = ("ours", "kafka")
MODES: tuple[Mode, ...] = ("synced", "relaxed")

READY_WITHIN_S = 60.0
ADMIN_TIMEOUT_S = 30.0

# ApiVersions version 0 of no named client: size, key 18, version 0, correlation id, null name.
API_VERSIONS_REQUEST = b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00" + b"\x00\x00\x00\x01" + b"\xff\xff"

# Kafka removes a deleted topic's files after a minute; the disk should not fill meanwhile.
KAFKA_PROPERTIES = {"log.segment.delete.delay.ms": "1000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A running broker and how its topics are made to sync, or not, before the answer."""

    side: Side
    mode: Mode
    bootstrap: str
    pid: int
    topic_config: Mapping[str, str] = field(default_factory=dict)

    def create_topic(self, topic: str, *, partitions: int) -> None:
        new = NewTopic(topic, partitions, 1, config=dict(self.topic_config))
        admin = self._admin()  # kept: the answer is lost with its client
        admin.create_topics([new])[topic].result(ADMIN_TIMEOUT_S)

    def delete_topic(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(ADMIN_TIMEOUT_S)

    def set_flush(self, internal_topic: str) -> None:
        """Let Kafka sync, or not, what it writes to a topic of its own. Ours always syncs them."""
        if self.side == "ours":
            return
        is_synced = self.mode == "synced"
        entry = ConfigEntry(
            "flush.messages",
            "1" if is_synced else None,
            incremental_operation=AlterConfigOpType.SET if is_synced else AlterConfigOpType.DELETE,
        )
        self.configure(ConfigResource("topic", internal_topic, incremental_configs=[entry]))

    def configure(self, resource: ConfigResource) -> None:
        admin = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(ADMIN_TIMEOUT_S)

    def has_topic(self, topic: str) -> bool:
        return topic in self._admin().list_topics(timeout=ADMIN_TIMEOUT_S).topics

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})


Contenders = Mapping[tuple[Side, Mode], Contender]


@contextmanager
def contenders(*, is_ours_kafka: bool) -> Iterator[Contenders]:
    """Both sides in both modes. Kafka needs one process for that, ours one per mode.

    `is_ours_kafka` lets a second Kafka play our part: for work on the bench itself.
    """
    with ApacheKafka(extra_properties=KAFKA_PROPERTIES) as kafka:
        theirs = _kafka_contenders(kafka, "kafka")
        if is_ours_kafka:
            with ApacheKafka(extra_properties=KAFKA_PROPERTIES) as other:
                yield theirs | _kafka_contenders(other, "ours")
        else:
            with millstream("synced") as synced, millstream("relaxed") as relaxed:
                yield theirs | {("ours", "synced"): synced, ("ours", "relaxed"): relaxed}


def _kafka_contenders(kafka: ApacheKafka, side: Side) -> dict[tuple[Side, Mode], Contender]:
    configs: dict[Mode, dict[str, str]] = {"synced": {"flush.messages": "1"}, "relaxed": {}}
    return {
        (side, mode): Contender(
            side=side,
            mode=mode,
            bootstrap=kafka.bootstrap,
            pid=kafka.pid,
            topic_config=config,
        )
        for mode, config in configs.items()
    }


@contextmanager
def millstream(mode: Mode) -> Iterator[Contender]:
    """Our broker in a fresh directory, ready to be used."""
    with millstream_process(mode) as (process, bootstrap):
        wait_for_answer(bootstrap, process)
        yield Contender(side="ours", mode=mode, bootstrap=bootstrap, pid=process.pid)


@contextmanager
def millstream_process(mode: Mode) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Our broker as its command line starts it, and its address; perhaps not ready yet."""
    directory = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    bootstrap = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "millstream", "broker"]
    command += ["--data", str(directory / "data"), "--listen", bootstrap]
    command += ["--durability", "relaxed"] if mode == "relaxed" else []
    with (directory / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process, bootstrap
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


def wait_for_answer(bootstrap: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Return at the first answer to ApiVersions; poll tightly, for it is being timed."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"the broker ended with {process.returncode} while starting")
        if _answers(bootstrap):
            return
        time.sleep(0.002)
    raise RuntimeError(f"no answer from {bootstrap} in {READY_WITHIN_S} s")


def _answers(bootstrap: str) -> bool:
    host, _, port = bootstrap.partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=READY_WITHIN_S) as connection:
            connection.sendall(API_VERSIONS_REQUEST)
            return len(connection.recv(4)) == 4
    except ConnectionError:
        return False


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    assert isinstance(port, int)
    return port
