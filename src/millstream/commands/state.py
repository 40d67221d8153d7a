"""`millstream state`: what a stopped job has on disk; a look inside, copies, and their way back."""

import json as json_lines
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.base.errors import Rejected
from millstream.base.quantity import format_size
from millstream.commands.options import BadUsage, Json, Yes
from millstream.commands.output import confirm, counted, print_json, say
from millstream.commands.plain_help import PlainCommand

if TYPE_CHECKING:
    from millstream.processing.jobs.checkpoints import JobDirectory
    from millstream.processing.state.state_view import StoreContent

app = typer.Typer(
    no_args_is_help=True, help="The state of jobs: a look inside, copies, partitions."
)

Job = Annotated[str, typer.Argument(metavar="JOB", help="The name of a job that is not running.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The app's data. Otherwise the only *.millstream of this directory.",
    ),
]
Copy = Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the copy.")]


class NoSuchJob(Rejected):
    def __init__(self, *, job: str, data: Path, known: list[str]) -> None:
        super().__init__(f"no job {job} has run in {data}. There are: {', '.join(known) or 'none'}")
        self.job, self.data = job, data


def data_directory(given: Path | None) -> Path:
    if given is not None:
        return given
    found = sorted(Path().glob("*.millstream"))
    if len(found) != 1:
        names = ", ".join(map(str, found)) or "none"
        raise BadUsage(f"say whose data, with --data DIR (here are: {names})")
    return found[0]


def _job_directory(data: Path, job: str, *, must_exist: bool = True) -> "JobDirectory":
    from millstream.jobs import JOBS_DIRECTORY
    from millstream.processing.jobs.checkpoints import JobDirectory

    jobs = data / JOBS_DIRECTORY
    if must_exist and not (jobs / job).is_dir():
        known = sorted(path.name for path in jobs.glob("*") if path.is_dir())
        raise NoSuchJob(job=job, data=data, known=known)
    return JobDirectory(jobs / job, job=job)


def _view_file(data: Path, job: str) -> Path:
    from millstream.views.stores.sqlite.file import view_file

    return view_file(data, job)


def _session() -> Any:
    from millstream.processing.session import open_session

    return open_session("millstream-state", master="local[2]", quick_start=True, log_level="off")


# --- show -------------------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def show(
    job: Job,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Rows of each store.")] = 10,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show what a job keeps: its operators, how many keys, and the first rows.

    Example: millstream state show clicks_a_minute --data shop.millstream
    """
    directory = _job_directory(data_directory(data), job)
    contents = _contents(directory, limit)
    if json:
        print_json([_to_json(content) for content in contents])
    elif not contents:
        say(f"Job {job} keeps no state.")
    for content in contents if not json else []:
        _print_store(content)


def _contents(directory: "JobDirectory", limit: int) -> "list[StoreContent]":
    from millstream.processing.state.state_view import content_of, state_stores

    manifest = directory.manifest()
    if manifest is None:
        return []
    checkpoint = directory.checkpoint(manifest.generation)
    if not (checkpoint / "state").exists():  # Spark need not start for that
        return []
    session = _session()
    stores = state_stores(session, checkpoint)
    return [content_of(session, checkpoint, store, limit=limit) for store in stores]


def _print_store(content: "StoreContent") -> None:
    store = content.store
    title = " ".join(part for part in (f"{store.operator}: {store.name}", str(store)) if part)
    say(f"{title}, {counted(content.keys, 'row')}, {format_size(content.size_bytes)} on disk")
    for row in content.rows:
        print(f"  {json_lines.dumps(row, ensure_ascii=False, default=str)}")


def _to_json(content: "StoreContent") -> dict[str, object]:
    store = content.store
    return {
        "operator": store.operator,
        "name": store.name,
        "store": store.store,
        "variable": store.variable,
        "keys": content.keys,
        "bytes": content.size_bytes,
        "rows": content.rows,
    }


# --- copy, restore ----------------------------------------------------------------------------


@app.command(cls=PlainCommand)
def copy(job: Job, to: Copy, data: Data = None) -> None:
    """Copy a job's checkpoint and view, all of one moment, into a new directory.

    Example: millstream state copy clicks_a_minute ./copy --data shop.millstream
    """
    from millstream.processing.state.checkpoint_copy import copy_job
    from millstream.views.stores.sqlite.copy import copy_view

    directory = _job_directory(data_directory(data), job)
    view = _view_file(data_directory(data), job)
    with (
        directory.held("is being copied"),
        tempfile.TemporaryDirectory(prefix="millstream-view-") as scratch,
    ):
        resting = Path(scratch) / "view.sqlite"
        if view.exists():
            copy_view(view, resting)
        made = copy_job(
            directory,
            to,
            view=resting if view.exists() else None,
            now_ms=time.time_ns() // 1_000_000,
        )
    say(f"Copied job {job} as of batch {made.batch} ({format_size(made.size_bytes)}) to {to}.")


@app.command(cls=PlainCommand)
def restore(job: Job, source: Copy, data: Data = None, yes: Yes = False) -> None:
    """Put a copy in the place of what a job has; the job goes on from there.

    Example: millstream state restore clicks_a_minute ./copy --data shop.millstream
    """
    from millstream.processing.state.checkpoint_copy import VIEW, read_copy, restore_job
    from millstream.views.stores.sqlite.copy import restore_view

    found = read_copy(source)
    directory = _job_directory(data_directory(data), job, must_exist=False)
    question = f"Replace the checkpoint of job {job} by its copy of batch {found.batch}?"
    confirm(question, yes=yes)

    def put_view() -> None:
        if found.has_view and found.job == job:
            restore_view(source / VIEW, _view_file(data_directory(data), job))

    with directory.held("is being restored"):
        keeps_name = restore_job(source, directory, put_view=put_view)
    say(f"Restored job {job}: it goes on after batch {found.batch}.")
    if not keeps_name:
        say("What it wrote into a topic since then, it writes again.")


# --- repartition ------------------------------------------------------------------------------


@app.command("repartition", cls=PlainCommand)
def move(
    job: Job,
    count: Annotated[int, typer.Argument(metavar="N", min=1, help="How many partitions.")],
    data: Data = None,
) -> None:
    """Spread a job's state over another number of partitions; the job goes on with them.

    Example: millstream state repartition clicks_a_minute 8 --data shop.millstream
    """
    from millstream.processing.state.state_view import repartition

    directory = _job_directory(data_directory(data), job)
    with directory.held("is being repartitioned"):
        repartition(_session(), directory, count)
    say(f"The state of job {job} is in {counted(count, 'partition')} now.")
