"""How `millstream run` shows its jobs: a table that refreshes at a terminal, lines elsewhere."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from millstream.base.quantity import SECOND_MS, format_duration_ms, format_size
from millstream.commands.output import counted, say, table

if TYPE_CHECKING:
    from millstream.processing.jobs.progress import JobProgress

Look = Callable[["list[JobProgress]"], None]

LINE_SECONDS = 10.0
REFRESH_SECONDS = 0.5
HEADER = ("JOB", "STATE", "ROWS", "ROWS/S", "LAG", "WATERMARK", "STATE ROWS", "LATE", "DEAD")
ERROR_LENGTH_SHOWN = 200


@contextmanager
def shown_jobs(*, as_json: bool) -> Iterator[Look]:
    """Yields what is told of the progress, as often as one likes."""
    if sys.stderr.isatty() and not as_json:
        with _live_table() as look:
            yield look
    else:
        yield JobLines(as_json=as_json).look


@contextmanager
def _live_table() -> Iterator[Look]:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    due = 0.0
    with Live(console=Console(stderr=True), auto_refresh=False) as live:

        def look(jobs: "list[JobProgress]") -> None:
            nonlocal due
            if time.monotonic() >= due:
                due = time.monotonic() + REFRESH_SECONDS
                live.update(Text("\n".join(_all_lines(jobs))), refresh=True)

        yield look


def _all_lines(jobs: "Sequence[JobProgress]") -> list[str]:
    return [table(HEADER, [row_of(job) for job in jobs]), *_errors(jobs)]


def _errors(jobs: "Sequence[JobProgress]") -> list[str]:
    return [f"{job.job}: {job.error[:ERROR_LENGTH_SHOWN]}" for job in jobs if job.error]


def left_text(job: "JobProgress") -> str:
    """How long a rebuild may still take, at the rate of the last batch."""
    if job.left_seconds is None:
        return "starting"
    if job.left_seconds == 0:
        return "comparing"
    return f"about {format_duration_ms(max(1, round(job.left_seconds)) * SECOND_MS)} left"


def row_of(job: "JobProgress") -> list[object]:
    """State rows with the memory that they take."""
    kept = f"{job.state_rows:,} ({format_size(job.state_bytes)})" if job.state_rows else None
    rate = round(job.rows_per_second)
    return [
        job.job,
        f"rebuilding, {left_text(job)}" if job.is_building else job.state,
        job.rows,
        rate,
        job.lag_total,
        job.watermark,
        kept,
        job.late,
        job.dead,
    ]


class JobLines:
    """One line for a job when its state changes, and every while when it got on."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._told: dict[str, tuple[Any, ...]] = {}
        self._due = 0.0

    def look(self, jobs: "list[JobProgress]") -> None:
        is_due = time.monotonic() >= self._due
        for job in jobs:
            facts = (job.state, job.restarts, (job.rows, job.lag_total, job.late, job.dead))
            told = self._told.get(job.job)
            if told is None or told[:2] != facts[:2] or (is_due and told[2] != facts[2]):
                self._told[job.job] = facts
                self._tell(job)
        if is_due:
            self._due = time.monotonic() + LINE_SECONDS

    def _tell(self, job: "JobProgress") -> None:
        if self._as_json:
            typer.echo(json.dumps(job.to_json()))
        else:
            say(line_of(job))


def lag_text(job: "JobProgress") -> str:
    """With how old the oldest unread record is, if that is a second or more."""
    if job.lag_total is None:
        return "lag not known"
    age_ms = job.lag_ms_max or 0
    age = f" ({format_duration_ms(age_ms // SECOND_MS * SECOND_MS)})" if age_ms >= SECOND_MS else ""
    return f"lag {job.lag_total:,}{age}"


def line_of(job: "JobProgress") -> str:
    facts = [f"{job.job}: {job.state}"]
    if job.batch is not None:
        facts.append(f"{job.rows:,} rows, {job.rows_per_second:,.0f}/s, {lag_text(job)}")
    if job.is_building:
        facts.append(f"rebuilding as generation {job.generation}, {left_text(job)}")
    if job.watermark is not None:
        facts.append(f"watermark {job.watermark}")
    if job.late:
        facts.append(f"{job.late:,} late")
    if job.dead:
        facts.append(f"{job.dead:,} dead letters of its topics")
    if job.restarts:
        facts.append(counted(job.restarts, "restart"))
    return ", ".join(facts) + (f" ({job.error})" if job.error else "")
