"""A SparkSession: with defaults for one machine, or a cluster's own settings left as they are.

Finds Java, starts without a storm of warnings, and listens on loopback only. One session per
process, as Spark has it: who asks again gets the running one.
"""

import contextlib
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millstream.processing.class_archive import archive_path, use_options
from millstream.processing.java import Java, find_java, make_quiet_home
from millstream.processing.log_files import LOG_BYTES_MAX, WORKERS_VARIABLE, LogFiles
from millstream.processing.reading.topic_source import TopicSource
from millstream.processing.scratch import is_fit, scratch_of_process
from millstream.processing.worker_python import quiet_python

__all__ = ["SparkSession", "open_session"]

LOOPBACK = "127.0.0.1"
STATE_STORE = "spark.sql.streaming.stateStore"
STREAMING = "org.apache.spark.sql.execution.streaming"

# Stops of a query inside a Python callback recurse deeply: the default stack is too small.
JAVA_OPTIONS = "-Xss16m"
# Of Spark's levels those that say more than errors.
LOUDER_LEVELS = ("warn", "info")
# Half the time to start; lower peak rates. For tests and short commands.
QUICK_START_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


def open_session(
    name: str,
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    quick_start: bool = False,
    log_level: str = "error",
    scratch: Path | None = None,
    logs: LogFiles | None = None,
) -> SparkSession:
    """A session on this machine (`master` None or "local..."), or on the cluster of `master`.

    `settings` win over every default. `quick_start` trades peak rates for half the time to start.
    `scratch`: a directory of the caller's alone for what Spark puts aside (scratch.py); a cluster
    has its own. It must be there until the session has stopped. `logs`: the files for what Spark
    and its workers on this machine say at length.
    """
    cores = os.cpu_count() or 1
    chosen = {"spark.app.name": name, "spark.master": master or f"local[{cores}]"}
    java = find_java()
    if is_local(chosen["spark.master"]):
        chosen |= one_machine_settings(cores_of(chosen["spark.master"], cores))
        chosen["spark.local.dir"] = str(scratch or scratch_of_process())
        options = java_options(quick_start=quick_start, log_level=log_level, logs=logs)
        archived = use_options(archive_path(java))
        chosen |= {"spark.driver.extraJavaOptions": f"{options} {archived}".strip()}
    chosen |= everywhere_settings() | dict(settings or {})
    session = _start(chosen, java, logs)
    if is_local(chosen["spark.master"]) and _workers_have_this_pyspark():
        session.sparkContext.pythonExec = quiet_python()
    register_sources(session)
    return session


def register_sources(session: SparkSession) -> None:
    session.dataSource.register(TopicSource)


def make_active(session: SparkSession) -> None:
    """Spark looks sources and sinks up in the session of the thread; a thread of ours has none."""
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)


def is_local(master: str) -> bool:
    return master.startswith("local")


def cores_of(master: str, cores: int) -> int:
    """How many tasks run at once under a local `master`: "local[2]", "local[*]", "local[2, 4]"."""
    count = master.partition("[")[2].rstrip("]").partition(",")[0].strip()
    if not count:
        return 1
    return cores if count == "*" else int(count)


def one_machine_settings(cores: int) -> dict[str, str]:
    """What one machine needs to be quick; on a cluster these would be wrong."""
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # With 200 partitions, Spark's default, a tiny stateful batch takes seconds.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.enabled": "false",
        # Hadoop's default forks chmod and stat: most of the time of a small batch.
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # A worker on a busy machine says its secret late, and a laptop may sleep for a night: with
        # Spark's 15 and 120 s a job fails, or its only executor is given up. Nothing is remote.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.network.timeout": "12h",
        # How long an idle job waits before it asks again: at 10 ms it takes a third of a core.
        "spark.sql.streaming.pollingDelay": "50ms",
    }


def everywhere_settings() -> dict[str, str]:
    """What jobs rely on: times in UTC, state that can be large, sources that can be changed, tasks
    that stay the same.

    State in Avro, which could evolve, is not for all: Spark refuses it to aggregations. A job of
    transformWithState alone sets it for its own query.
    """
    return {
        "spark.sql.session.timeZone": "UTC",
        f"{STATE_STORE}.providerClass": f"{STREAMING}.state.RocksDBStateStoreProvider",
        f"{STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{STATE_STORE}.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
        "spark.sql.streaming.offsetLog.formatVersion": "2",
        # What a task has written is known by the task's number: a repeated batch must fall into
        # the same ones, whatever the sizes and the executors of the moment.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
    }


def java_options(*, quick_start: bool, log_level: str, logs: LogFiles | None = None) -> str:
    name = "log4j2.properties" if logs is None else "log4j2_file.properties"
    temporary = scratch_of_process()
    options = [
        JAVA_OPTIONS,
        # Java keeps it for all sessions of this process, so it is in no directory of one of them.
        *([f"-Djava.io.tmpdir={temporary}"] if is_fit(temporary) else []),
        f"-Dlog4j2.configurationFile={resources.files('millstream.processing') / name}",
        f"-Dmillstream.spark.log.level={log_level}",
    ]
    if logs is not None:
        root = log_level if log_level in LOUDER_LEVELS else "error"
        options += [
            f"-Dmillstream.spark.root.level={root}",
            f"-Dmillstream.spark.log.file={shlex.quote(str(logs.spark))}",
            f"-Dmillstream.spark.log.bytes={LOG_BYTES_MAX}",
        ]
    return " ".join(options + [QUICK_START_JAVA_OPTIONS] * quick_start)


def _start(settings: Mapping[str, str], java: Java, logs: LogFiles | None) -> SparkSession:
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    with contextlib.ExitStack() as starting:
        directory = starting.enter_context(tempfile.TemporaryDirectory(prefix="millstream-java-"))
        variables = _variables(settings["spark.master"], java, Path(directory))
        if logs is not None and is_local(settings["spark.master"]):
            variables[WORKERS_VARIABLE] = str(logs.workers)
        starting.enter_context(_environment(variables))
        return builder.getOrCreate()


def _variables(master: str, java: Java, directory: Path) -> dict[str, str]:
    """What Spark's launcher reads. Workers run this very Python, not the `python3` of the PATH."""
    hides = is_local(master) and _workers_have_this_pyspark()
    variables = {"JAVA_HOME": str(make_quiet_home(java, directory, hides_spark_home=hides))}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return variables | ({"SPARK_LOCAL_IP": LOOPBACK} if is_local(master) else {})


def _workers_have_this_pyspark() -> bool:
    """Not if another Python runs them. Who names a SPARK_HOME wants what is in it."""
    worker_python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return worker_python == sys.executable and "SPARK_HOME" not in os.environ


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables for a moment: the application's own environment stays as it was."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
