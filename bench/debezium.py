"""Debezium as its users run it: one connector in a standalone Kafka Connect, on loopback.

The jars come from Maven, once per checkout. Heap and collector are those of Kafka's own start
script for Connect. Offsets go to a file in `directory`, so that a connector that was stopped goes
on where it was. Does not know what is measured.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.support.apache_kafka import SERVER_OPTIONS
from tests.support.java_tools import QUIET_OPTIONS
from tests.support.maven_jars import MavenJars, java_command

from bench.brokers import free_port

POSTGRES_VERSION = "3.6.1"
MARIADB_VERSION = "3.5.0"
POSTGRES_JARS = MavenJars(
    name=f"debezium-postgres-{POSTGRES_VERSION}",
    pom=Path(__file__).with_name("debezium-pom.xml"),
    sign="debezium-connector-postgres-*.jar",
)
MARIADB_JARS = MavenJars(
    name=f"debezium-mariadb-{MARIADB_VERSION}",
    pom=Path(__file__).with_name("debezium-mariadb-pom.xml"),
    sign="debezium-connector-mariadb-*.jar",
)
HEAP_OPTIONS = ("-Xms256M", "-Xmx2G")  # of connect-standalone.sh
# It warns of every measurement of its own that it drops when it is busy.
SILENCED = "-Dorg.slf4j.simpleLogger.log.io.debezium.metrics.stats=error"
STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
STOP_WITHIN_S = 60.0
PLAIN_JSON = {
    f"{part}.converter{rest}": value
    for part in ("key", "value")
    for rest, value in (
        ("", "org.apache.kafka.connect.json.JsonConverter"),
        (".schemas.enable", "false"),
    )
}
# What a person would try first who finds it slow: larger batches and queues, no waiting.
TUNED_CONNECTOR = {
    "max.batch.size": "20480",
    "max.queue.size": "81920",
    "poll.interval.ms": "5",
}
TUNED_WORKER = {
    "producer.batch.size": "1048576",
    "producer.linger.ms": "5",
    "producer.buffer.memory": "134217728",
}


class ConnectEndedError(RuntimeError):
    """The JVM ended, or its connector did; the message holds the tail of what it wrote."""

    def __init__(self, *, name: str, output: str) -> None:
        super().__init__(f"the connector {name} has ended:\n{output[-4000:]}")


class Connect:
    """One worker with one connector; may be started again after it was stopped."""

    def __init__(
        self,
        name: str,
        jars: MavenJars,
        *,
        bootstrap: str,
        connector: Mapping[str, str],
        is_tuned: bool = False,
    ) -> None:
        self._name, self._jars = name, jars
        self.directory = Path(tempfile.mkdtemp(prefix="debezium-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        worker = {
            "bootstrap.servers": bootstrap,
            "listeners": f"http://127.0.0.1:{free_port()}",
            "offset.storage.file.filename": str(self.directory / "offsets"),
            "plugin.discovery": "only_scan",
            **PLAIN_JSON,
            **(TUNED_WORKER if is_tuned else {}),
        }
        history = {  # of connectors that read a binlog; others pass it over
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": str(self.directory / "schemas"),
        }
        tuned = TUNED_CONNECTOR if is_tuned else {}
        self._write("worker", worker)
        self._write("connector", {"name": name, "tasks.max": "1", **history, **connector, **tuned})

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the JVM and return at once."""
        classpath = f"{self._jars.fetched()}/*"
        command = [java_command(), *HEAP_OPTIONS, *SERVER_OPTIONS, *QUIET_OPTIONS, SILENCED]
        command += ["-cp", classpath, STANDALONE, self._path("worker"), self._path("connector")]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )

    def require_alive(self) -> None:
        """A task that failed leaves the worker alive: its words tell."""
        output = self._output.read_text(errors="replace")
        has_failed = "Task threw an uncaught and unrecoverable exception" in output
        if self._process is None or self._process.poll() is not None or has_failed:
            raise ConnectEndedError(name=self._name, output=output)

    def stop(self) -> None:
        """In order, so that it keeps its offsets; by force if that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def _output(self) -> Path:
        return self.directory / "output.txt"

    def _path(self, name: str) -> str:
        return str(self.directory / f"{name}.properties")

    def _write(self, name: str, properties: Mapping[str, str]) -> None:
        lines = [f"{key}={value}\n" for key, value in properties.items()]
        Path(self._path(name)).write_text("".join(lines))
