"""Accidents at named points of a job, for tests. Not part of Millstream.

With this directory on PYTHONPATH, Python loads the file before anything else: in the driver, in
Spark's planners and in its workers alike. An accident is a file `<point>@<victim>` in the directory
$MILLSTREAM_ACCIDENTS. Who first comes to the point takes the file away, and the accident happens:

    driver   the application with its JVM is killed, by its process group
    worker   this process is killed
    broker   the broker is killed; its process id is in the file `broker.pid`
    zombie   the application and this process are stopped, and are not dead
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = os.environ.get("MILLSTREAM_ACCIDENTS")
TAKEN = ".taken"


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
        try:
            file.rename(f"{file}{TAKEN}")
        except FileNotFoundError:  # another process was quicker
            continue
        happen(file.name.partition("@")[2], Path(HERE))
        return


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
            os.kill(int((directory / "broker.pid").read_text()), signal.SIGKILL)
        case "zombie":
            (directory / f"stopped-{os.getpid()}").touch()
            os.killpg(application, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)


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


def install() -> None:
    from millstream.processing.jobs.checkpoints import JobDirectory
    from millstream.processing.reading.range_reader import RangeReader
    from millstream.processing.reading.stream_planner import StreamPlanner
    from millstream.processing.writing.row_transaction import RowTransaction
    from millstream.processing.writing.view_changes import ViewChanges
    from millstream.views.stores.sqlite.store import SqliteView

    around(StreamPlanner, "next_position", after="source-planned")
    around(RangeReader, "read", before="source-before-read")
    around(RowTransaction, "begin", after="topic-after-begin")
    around(RowTransaction, "commit", before="topic-before-commit", after="topic-after-commit")
    around(SqliteView, "write", before="view-before-write", after="view-after-write")
    around(SqliteView, "_keep", after="view-before-commit")
    around(SqliteView, "serve", before="view-before-serve", after="view-after-serve")
    around(ViewChanges, "write", before="changes-before-write", after="changes-after-write")
    around(JobDirectory, "begin", before="generation-before-begin", after="generation-after-begin")
    around(JobDirectory, "settle", after="generation-after-settle")


if HERE is not None:
    # The application starts a session of processes: its id is that of the group to be killed.
    os.environ.setdefault("MILLSTREAM_ACCIDENTS_GROUP", str(os.getpid()))
    install()
