"""How `millstream run` shows its jobs: a table that refreshes at a terminal, lines elsewhere."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
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
REMIND_SECONDS = 60.0
ENDED = ("done", "stopped", "failed")


@contextmanager
def shown_jobs(*, as_json: bool, log: Path | None = None) -> Iterator[Look]:
    """Yields what is told of the progress, as often as one likes. `log`: the file that has all of
    what a job failed with."""
    if sys.stderr.isatty() and not as_json:
        with _live_table() as look:
            yield look
    else:
        yield JobLines(as_json=as_json, log=log).look


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
    """One line for a job when its state changes and after its first batch, every while when it got
    on or is still starting, and once a minute if nothing changes."""

    def __init__(
        self,
        *,
        as_json: bool,
        log: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`log`: the file that has all of a failure."""
        self._as_json, self._log, self._clock = as_json, log, clock
        self._told: dict[str, tuple[Any, ...]] = {}
        self._told_at: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._due = 0.0

    def look(self, jobs: "list[JobProgress]") -> None:
        now = self._clock()
        is_due = now >= self._due
        news = []
        for job in jobs:
            facts = _facts(job)
            told = self._told.get(job.job)
            if told is None or told[0] != job.state:
                self._since[job.job] = now
            if (
                told is None
                or told[:3] != facts[:3]
                or (is_due and told[3] != facts[3])
                or self._must_remind(job, now, is_due)
            ):
                self._told[job.job], self._told_at[job.job] = facts, now
                news.append(job)
        self._tell_all(news, now)
        if is_due:
            self._due = now + LINE_SECONDS

    def _must_remind(self, job: "JobProgress", now: float, is_due: bool) -> bool:
        """That nothing has changed; in JSON a line is a change."""
        if self._as_json or job.state in ENDED:
            return False
        is_coming = job.state == "starting" or (job.busy_ms and job.batch is None)
        return (is_due and bool(is_coming)) or now - self._told_at[job.job] >= REMIND_SECONDS

    def _tell_all(self, news: "list[JobProgress]", now: float) -> None:
        """Those that wait for the same, as Spark's start, in one line."""
        stages: dict[str, list[JobProgress]] = {}
        for job in news:
            stages.setdefault(job.stage if job.state == "starting" else "", []).append(job)
        for stage, waiting in stages.items():
            if stage and len(waiting) > 1 and not self._as_json:
                lasted = now - min(self._since[job.job] for job in waiting)
                say(f"{len(waiting)} jobs: {starting_text(stage, lasted)}")
            else:
                for job in waiting:
                    self._tell(job, now)

    def _tell(self, job: "JobProgress", now: float) -> None:
        if self._as_json:
            typer.echo(json.dumps(job.to_json()))
        else:
            log = f"; all of it: {self._log}" if self._log and job.state == "waiting" else ""
            say(line_of(job, seconds=now - self._since[job.job]) + log)


def _facts(job: "JobProgress") -> tuple[Any, ...]:
    """What is told at once, and at the end what is told now and then."""
    has_begun = (job.stage, job.batch is not None)
    return (job.state, job.restarts, has_begun, (job.rows, job.lag_total, job.late, job.dead))


def lag_text(job: "JobProgress") -> str:
    """With how old the oldest unread record is, if that is a second or more."""
    if job.lag_total is None:
        return "lag not known"
    age_ms = job.lag_ms_max or 0
    age = f" ({format_duration_ms(age_ms // SECOND_MS * SECOND_MS)})" if age_ms >= SECOND_MS else ""
    return f"lag {job.lag_total:,}{age}"


def starting_text(stage: str, seconds: float) -> str:
    lasted = f" for {seconds:.0f} s" if seconds >= 1 else ""
    return f"starting{lasted}" + (f" ({stage})" if stage else "")


def line_of(job: "JobProgress", *, seconds: float = 0.0) -> str:
    """`seconds`: for how long its state has been so."""
    facts = [f"{job.job}: {job.state}"]
    if job.state == "starting":
        facts = [f"{job.job}: {starting_text(job.stage, seconds)}"]
    elif job.state == "running" and job.batch is None and seconds >= 1:
        words = "its first batch takes" if job.busy_ms else "nothing to do yet after"
        facts.append(f"{words} {seconds:.0f} s")
    if job.batch is not None:
        facts.append(f"{job.rows:,} rows, {job.rows_per_second:,.0f}/s, {lag_text(job)}")
    if job.is_building:
        facts.append(f"rebuilding as generation {job.generation}, {left_text(job)}")
    if job.watermark is not None:
        facts.append(f"watermark {job.watermark}")
    if job.late:
        facts.append(f"{job.late:,} late")
    if job.dead:
        facts.append(f"{counted(job.dead, 'dead letter')} of its topics")
    if job.restarts:
        facts.append(counted(job.restarts, "restart"))
    return ", ".join(facts) + _error_text(job)


def _error_text(job: "JobProgress") -> str:
    """Unless it has failed or waits, a job has got over it: it is that of its last restart."""
    if not job.error:
        return ""
    is_over = job.state not in ("failed", "waiting") and job.restarts > 0
    return f" (the last: {job.error})" if is_over else f" ({job.error})"
