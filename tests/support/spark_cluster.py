"""A real Spark standalone cluster on loopback: a master and two workers, each a JVM of its own.

    with SparkCluster() as cluster:
        os.environ["MILLSTREAM_SPARK"] = cluster.master

Started from the jars that pyspark brings. Each worker has one core; its executors run the Python
of these tests, so they find this very Millstream. All it writes goes away with it.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from millstream.processing.class_archive import archive_path, use_options
from millstream.processing.java import find_java, make_quiet_home
from millstream.processing.session import QUICK_START_JAVA_OPTIONS
from tests.support.apache_kafka import free_ports
from tests.support.waiting import eventually

WORKERS = 2
READY_WITHIN_S = 120.0
STOP_WITHIN_S = 20.0
LOOPBACK = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
REGISTERED = "Successfully registered with master"
# What the cluster's own settings would be: nothing that a job needs is among them.
CONF = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "700m",
    "spark.cores.max": str(WORKERS),
    "spark.sql.shuffle.partitions": str(WORKERS),
}


class SparkCluster:
    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        (port,) = free_ports(1)
        self.master = f"spark://{LOOPBACK}:{port}"

    @property
    def environment(self) -> dict[str, str]:
        """What an application needs to run its jobs here."""
        options = f"{QUICK_START_JAVA_OPTIONS} {use_options(archive_path(find_java()))}".strip()
        java = {f"spark.{who}.extraJavaOptions": options for who in ("driver", "executor")}
        conf = ";".join(f"{name}={value}" for name, value in (CONF | java).items())
        return {"MILLSTREAM_SPARK": self.master, "MILLSTREAM_SPARK_CONF": conf}

    def __enter__(self) -> Self:
        try:
            self._start()
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

    def _start(self) -> None:
        port = self.master.rpartition(":")[2]
        self._run("master", f"{DEPLOY}.master.Master", "--port", port)
        for number in range(WORKERS):
            name = f"worker-{number}"
            room = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._directory / name)]
            self._run(name, f"{DEPLOY}.worker.Worker", *room, self.master)
        eventually(self._is_ready, what=f"{WORKERS} workers\n{self.said}", within_s=READY_WITHIN_S)

    def _run(self, name: str, main: str, *arguments: str) -> None:
        place = ["--host", LOOPBACK, "--webui-port", "0"]
        command = [str(SPARK_HOME / "bin" / "spark-class"), main, *place, *arguments]
        with (self._directory / f"{name}.txt").open("wb") as output:
            process = subprocess.Popen(
                command,
                env=os.environ | self._variables(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)

    def _variables(self) -> dict[str, str]:
        home = make_quiet_home(find_java(), self._directory / "java")
        return {
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_START_JAVA_OPTIONS,
            "PYSPARK_PYTHON": sys.executable,
        }

    def _is_ready(self) -> bool:
        ended = [process.args for process in self._processes if process.poll() is not None]
        assert not ended, f"{ended} ended\n{self.said}"
        return self.said.count(REGISTERED) == WORKERS

    @property
    def said(self) -> str:
        """All that the master and the workers have written."""
        return "\n".join(file.read_text() for file in sorted(self._directory.glob("*.txt")))

    def executors_used(self) -> int:
        """How many executors have run, each in a directory of its worker."""
        return len(list(self._directory.glob("worker-*/app-*/*")))

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            with contextlib.suppress(ProcessLookupError):  # executors that outlived their worker
                os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(self._directory, ignore_errors=True)
