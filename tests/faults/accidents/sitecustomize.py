"""Accidents at named points of a job, for tests. Not part of Millstream.

With this directory on PYTHONPATH, Python loads the file before anything else: in the driver, in
Spark's planners and in its workers alike. An accident is a file `<point>@<victim>` in the directory
$MILLSTREAM_ACCIDENTS. Who first comes to the point takes the file away, and the accident happens:

    driver   the application with its JVM is killed, by its process group
    worker   this process is killed
    broker   the broker is killed; its process id is in the file `broker.pid`
    zombie   the application and this process are stopped, and are not dead
    all-N    the application is killed when N have come to the point, each of which waits there
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = os.environ.get("MILLSTREAM_ACCIDENTS")
TAKEN = ".taken"
ALL = "all-"
LOOK_SECONDS = 0.02
# A stop comes through any thread of a process: this one goes on for a moment.
STOPPING_SECONDS = 0.2


def meet(point: str) -> None:
    """The driver claims a topic in a transaction, too: those points are others."""
    assert HERE is not None
    if ended_mark(Path(HERE)).exists():  # a worker that outlives its application
        return
    if is_driver():
        point = point.replace("topic-", "claim-")
    for file in sorted(Path(HERE).glob(f"{point}@*")):
        if file.suffix == TAKEN:
            continue
        victim = file.name.partition("@")[2]
        if victim.startswith(ALL):
            wait_for_all(point, int(victim.removeprefix(ALL)), Path(HERE))
            victim = "driver"
        try:
            file.rename(f"{file}{TAKEN}")
        except FileNotFoundError:  # another process was quicker
            continue
        happen(victim, Path(HERE))
        return


def wait_for_all(point: str, count: int, directory: Path) -> None:
    """Return to one of them, when so many have come; the others wait for their end."""
    here = f"here-{os.environ['MILLSTREAM_ACCIDENTS_GROUP']}-{point}-"
    (directory / f"{here}{os.getpid()}-{threading.get_ident()}").touch()
    while len(list(directory.glob(f"{here}*"))) < count:
        time.sleep(LOOK_SECONDS)
    try:
        (directory / f"all-{here}").mkdir()
    except FileExistsError:
        wait_for_the_end(directory)


def wait_for_the_end(directory: Path) -> None:
    """Of the application, which this process may outlive."""
    while not ended_mark(directory).exists():
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def ended_mark(directory: Path) -> Path:
    return directory / f"ended-{os.environ['MILLSTREAM_ACCIDENTS_GROUP']}"


def is_driver() -> bool:
    return os.environ["MILLSTREAM_ACCIDENTS_GROUP"] == str(os.getpid())


def happen(victim: str, directory: Path) -> None:
    application = int(os.environ["MILLSTREAM_ACCIDENTS_GROUP"])
    match victim:
        case "driver":
            ended_mark(directory).touch()
            os.killpg(application, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        case "worker":
            assert not is_driver(), "a worker was to be killed"
            os.kill(os.getpid(), signal.SIGKILL)
        case "broker":
            kill_the_broker(directory)
        case "zombie":
            (directory / f"stopped-{os.getpid()}").touch()
            os.killpg(application, signal.SIGSTOP)
            if os.getpgrp() == application:  # to stop once more would outlast the waking
                time.sleep(STOPPING_SECONDS)
            else:  # to this thread: others may stop later, it must not run on
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def kill_the_broker(directory: Path) -> None:
    """One that another accident has killed is started again by the test, which says its id."""
    while True:
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int((directory / "broker.pid").read_text()), signal.SIGKILL)
            return
        time.sleep(LOOK_SECONDS)


def around(owner: Any, name: str, *, before: str | None = None, after: str | None = None) -> None:
    """Meet accidents before and after each call of a method."""
    method: Callable[..., Any] = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        if before:
            meet(before)
        found = method(*given, **named)
        if after:
            meet(after)
        return found

    setattr(owner, name, call)


def around_reads_of_each_job(reader: Any) -> None:
    read: Callable[..., Any] = reader.read

    def call(self: Any, *given: Any) -> Any:
        meet(f"source-before-read-of-{self._read.job.rpartition('.')[2]}")
        return read(self, *given)

    reader.read = call


def install() -> None:
    from millstream.processing.jobs.checkpoints import JobDirectory
    from millstream.processing.reading.range_reader import RangeReader
    from millstream.processing.reading.stream_planner import StreamPlanner
    from millstream.processing.writing.row_transaction import RowTransaction
    from millstream.processing.writing.view_changes import ViewChanges
    from millstream.views.stores.sqlite.store import SqliteView

    around(StreamPlanner, "next_position", after="source-planned")
    around(RangeReader, "read", before="source-before-read")
    around_reads_of_each_job(RangeReader)
    around(RowTransaction, "begin", after="topic-after-begin")
    around(RowTransaction, "commit", before="topic-before-commit", after="topic-after-commit")
    around(SqliteView, "write", before="view-before-write", after="view-after-write")
    around(SqliteView, "_keep", after="view-before-commit")
    around(SqliteView, "serve", before="view-before-serve", after="view-after-serve")
    around(ViewChanges, "write", before="changes-before-write", after="changes-after-write")
    around(JobDirectory, "begin", before="generation-before-begin", after="generation-after-begin")
    around(JobDirectory, "settle", after="generation-after-settle")
    if "MILLSTREAM_ACCIDENTS_STORES" in os.environ and (
        is_driver() or "pyspark.worker" in sys.orig_argv
    ):
        install_in_stores()


def install_in_stores() -> None:
    """All but SQLite. The step before the commit is the last one; Delta's merge commits itself."""
    from millstream.views.stores.delta.staging import DeltaStaging
    from millstream.views.stores.delta.store import DeltaRows, DeltaWriter
    from millstream.views.stores.parquet.store import ParquetWriter
    from millstream.views.stores.postgres.staging import PostgresStaging
    from millstream.views.stores.postgres.store import PostgresView
    from millstream.views.stores.redis.link import RedisLink
    from millstream.views.stores.redis.store import RedisView
    from millstream.views.stores.search import index as search_index
    from millstream.views.stores.search.store import SearchWriter
    from millstream.views.stores.topic.notes import KeptGeneration
    from millstream.views.stores.topic.store import TopicView

    writes: list[tuple[type, str]] = [
        (DeltaWriter, "_put"),  # in parts, or whole
        (ParquetWriter, "write"),
        (PostgresView, "_written"),
        (RedisView, "write"),
        (SearchWriter, "write"),
        (TopicView, "write"),
    ]
    for writer, name in writes:
        around(writer, name, before="view-before-write", after="view-after-write")
    around(DeltaRows, "put", before="view-before-commit")
    around(ParquetWriter, "_changed", after="view-before-commit")
    around(PostgresView, "_apply", after="view-before-commit")
    around(PostgresView, "_merge_staged", after="view-before-commit")
    around(RedisLink, "stage", after="view-before-commit")
    around(search_index, "state_document", after="view-before-commit")
    around(KeptGeneration, "extended", after="view-before-commit")
    for staging in (DeltaStaging, PostgresStaging):
        around(staging, "stage", before="part-before-stage", after="part-after-stage")


if HERE is not None:
    # The application starts a session of processes: its id is that of the group to be killed.
    os.environ.setdefault("MILLSTREAM_ACCIDENTS_GROUP", str(os.getpid()))
    install()
