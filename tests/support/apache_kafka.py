"""A real Apache Kafka on loopback: one node, broker and KRaft controller in one JVM.

    with ApacheKafka() as kafka:
        AdminClient({"bootstrap.servers": kafka.bootstrap})

The contract tests and the benchmarks run against it, to hold our broker to what Kafka does.
Everything it writes is in a temporary directory that goes away with it. Does not offer TLS, SASL
or more than one node.
"""

import atexit
import base64
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from millstream.base.listening_ports import free_port
from tests.support.java_tools import java_class_command, run_class

READY_WITHIN_S = 180.0
STOP_WITHIN_S = 30.0
# What Kafka's own start script gives a broker, apart from the heap.
SERVER_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# One tier of the compiler and one thread of the collector: for tests, where Kafka is to be right
# and to leave the cores to others. A benchmark gives it the options above.
QUICK_START_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
)
# One node can hold one replica; groups need not wait three seconds for members to gather; one
# partition of each internal topic keeps the first group and the first transaction quick.
ONE_NODE_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class KafkaNotReadyError(RuntimeError):
    """The JVM ended or stayed silent; the message holds the tail of what it wrote."""

    def __init__(self, *, why: str, output: str) -> None:
        super().__init__(f"Apache Kafka {why}:\n{output[-4000:]}")


class ApacheKafka:
    """One Kafka process and its directory, owned by whoever entered the context.

    `start` and `stop` are for a caller that measures the steps; `with` does both and waits for
    readiness in between.
    """

    def __init__(
        self,
        *,
        extra_properties: Mapping[str, str] | None = None,
        heap: str = "1g",
        jvm_options: Sequence[str] = SERVER_OPTIONS,
        bootstrap: str | None = None,
    ) -> None:
        """`bootstrap`: where it listens, if the properties have listeners of their own."""
        self._jvm_options = [f"-Xms{heap}", f"-Xmx{heap}", *jvm_options]
        self._directory = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        port, controller_port = free_ports(2)
        self.bootstrap = bootstrap or f"127.0.0.1:{port}"
        self.data_dir = self._directory / "data"
        properties = {
            **ONE_NODE_PROPERTIES,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "log.dirs": str(self.data_dir),
            **(extra_properties or {}),
        }
        self._properties_file = self._directory / "server.properties"
        self._properties_file.write_text("".join(f"{k}={v}\n" for k, v in properties.items()))
        self._output_file = self._directory / "output.txt"

    @property
    def pid(self) -> int:
        return self._started().pid

    def __enter__(self) -> Self:
        try:
            self.format()
            self.start()
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def format(self) -> None:
        """Prepare the empty data directory; a KRaft node refuses to start without it."""
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        configuration = str(self._properties_file)
        run_class(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", configuration
        ).checked()

    def start(self) -> None:
        """Start the JVM and return at once."""
        command = _dies_with_us() + java_class_command(
            "kafka.Kafka", str(self._properties_file), jvm_options=self._jvm_options
        )
        with self._output_file.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        atexit.register(self.kill)

    def wait_until_ready(self) -> None:
        """Return when a real client has been told of the broker."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline:
            if self._started().poll() is not None:
                raise KafkaNotReadyError(why="ended while starting", output=self.output)
            try:
                if admin.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                continue
        raise KafkaNotReadyError(why=f"was not ready after {READY_WITHIN_S} s", output=self.output)

    @property
    def output(self) -> str:
        """Everything that the JVM has written to its standard output and error."""
        return self._output_file.read_text() if self._output_file.exists() else ""

    def stop(self) -> None:
        """Shut down in order, by force if that takes too long, and remove the directory."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.kill()
        atexit.unregister(self.kill)
        shutil.rmtree(self._directory, ignore_errors=True)

    def kill(self) -> None:
        """End the JVM at once, as a crash would; the directory stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("Apache Kafka has not been started")
        return self._process


def _dies_with_us() -> list[str]:
    """A prefix, where util-linux has it, that ends the JVM even when we are killed with -9."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "KILL"]


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)
