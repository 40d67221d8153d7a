"""`millstream run`: run captures and jobs of an application, host its commands, or say what a run
would do."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.base.errors import Rejected
from millstream.commands.job_lines import shown_jobs
from millstream.commands.options import BadOption, Json, MetricsListen, OnlyJobs, RebuildJobs
from millstream.commands.output import (
    counted,
    print_json,
    print_table,
    say,
    terminate_as_interrupt,
)
from millstream.setting_kinds import parse_address

if TYPE_CHECKING:
    from millstream.app import App
    from millstream.processing.jobs.prepared_job import PreparedJob
    from millstream.processing.jobs.progress import JobProgress


def run(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="The Python file that makes the App; FILE:NAME if it makes several.",
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="Process what is there now, then end.")
    ] = False,
    only: OnlyJobs = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Say for each job whether it can go on from its checkpoint; run none."
        ),
    ] = False,
    rebuild: RebuildJobs = None,
    repeat_side_effects: Annotated[
        bool,
        typer.Option(
            "--repeat-side-effects",
            help="Rebuild jobs that write into topics or external sinks too: all rows are written "
            "again.",
        ),
    ] = False,
    metrics_listen: MetricsListen = None,
    json: Json = False,
) -> None:
    """Run the jobs of an application until Ctrl-C.

    Its captures run beside them, and its commands are hosted. Ends with 1 if a job failed; the
    others go on until then. Spark runs in this process, or where MILLSTREAM_SPARK says.

    Example: millstream run shop.py --only clicks_a_minute --once
    """
    from millstream.commands.app_file import load_app

    app = load_app(file)
    with terminate_as_interrupt(), contextlib.closing(app):
        if check:
            _check(app, only, as_json=json)
        else:
            _run(
                app,
                once=once,
                only=only,
                rebuild=rebuild or [],
                repeat_side_effects=repeat_side_effects,
                listen=metrics_listen,
                json=json,
            )


def _run(
    app: "App",
    *,
    once: bool,
    only: list[str] | None,
    rebuild: list[str],
    repeat_side_effects: bool,
    listen: str | None,
    json: bool,
) -> None:
    if not app.catalog.jobs and (app.captures.declared or app.hosted.is_needed):
        app.run(once=once)
        return
    app.jobs.make_topics(only, rebuild=rebuild, repeat_side_effects=repeat_side_effects)
    with (
        metrics_served(app, listen),
        app.captures.running(once=once),
        app.hosted_unless(once=once),
        shown_jobs(as_json=json, log=app.jobs.logs.jobs) as look,
    ):
        done = app.jobs.run(
            once=once,
            only=only,
            rebuild=rebuild,
            repeat_side_effects=repeat_side_effects,
            look=look,
        )
    if not json:
        say(ended_line(done))


def ended_line(jobs: "list[JobProgress]") -> str:
    """How many ended in which way: "2 jobs done, 1 stopped"."""
    ways = Counter(job.state for job in jobs)
    first, *others = [f"{number} {state}" for state, number in ways.most_common()]
    number, _, state = first.partition(" ")
    return ", ".join([f"{counted(int(number), 'job')} {state}", *others])


@contextlib.contextmanager
def metrics_served(app: "App", listen: str | None) -> Iterator[None]:
    """The jobs' progress for Prometheus while this is open, if it is wanted."""
    if listen is None:
        yield
        return
    from millstream.processing.jobs.job_metrics import serve_metrics

    try:
        address = parse_address(listen)
    except ValueError:
        allowed = "host:port, port 0 for any free one"
        raise BadOption(option="--metrics-listen", value=listen, allowed=allowed) from None
    url, end = serve_metrics(address.host, address.port, app.progress)
    say(f"metrics on {url}")
    try:
        yield
    finally:
        end()


# --- --check ----------------------------------------------------------------------------------


def _check(app: "App", only: list[str] | None, *, as_json: bool) -> None:
    found = [_checked(name, one) for name, one in app.jobs.prepared(only=only).items()]
    if as_json:
        print_json(found)
    else:
        rows = [[one["job"], one["verdict"], "; ".join(one["reasons"])] for one in found]
        print_table(["JOB", "VERDICT", "WHY"], rows)
    if not all(one["can_start"] for one in found):
        raise typer.Exit(1)


def _checked(name: str, found: "PreparedJob | Rejected") -> dict[str, Any]:
    if isinstance(found, Rejected):
        return {"job": name, "verdict": "refused", "can_start": False, "reasons": [str(found)]}
    advice = [] if found.comparison.can_start else [f"`--rebuild {name}` starts it over"]
    return {
        "job": name,
        "verdict": found.comparison.verdict,
        "can_start": found.comparison.can_start,
        "reasons": [*found.comparison.reasons, *advice, *found.notes],
    }
