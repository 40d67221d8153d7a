"""How a job, view, capture, group or queue is, in one word, decided from facts. Pure.

A page never looks at a state or a lag itself to say how something is: so no two pages, and no two
places of one page, can disagree. The words, the worst first:

    failed     it has failed, for good or until the next attempt
    stopped    nobody runs it, and it is not done
    behind     it runs, and the oldest record that it has not read waits longer than it should
    not run    it has never run here
    running    it runs, and whether it is behind is not known, or not yet
    starting   it runs, and has not done its first batch
    done       it ran over what was there, and ended
    good       it runs, and is current
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from millstream.base.quantity import MINUTE_MS, SECOND_MS
from millstream.web.console.facts import CaptureSeen, GroupSeen, JobSeen
from millstream.web.console.figures import count, counted, day_clock, duration, short
from millstream.web.console.series import Trend

Word = Literal["failed", "stopped", "behind", "not run", "running", "starting", "done", "good"]
Phase = Literal[
    "never", "starting", "running", "retrying", "refused", "failed", "paused", "stopped", "done"
]
WORDS: Final[tuple[Word, ...]] = (
    "failed",
    "stopped",
    "behind",
    "not run",
    "running",
    "starting",
    "done",
    "good",
)
JOB_PHASES: Final[Mapping[str, Phase]] = {
    "starting": "starting",
    "waiting": "retrying",
    "done": "done",
    "stopped": "stopped",
    "failed": "failed",
}
CAPTURE_PHASES: Final[Mapping[str, Phase]] = {
    "starting": "starting",
    "paused": "paused",
    "waiting": "retrying",
    "failed": "failed",
    "ended": "stopped",
}
COURSES: Final[Mapping[Trend | None, str]] = {"growing": "growing", "shrinking": "catching up"}
# What is unread for no longer than this is no backlog: a look takes a second, a batch a few.
PATIENCE_MS: Final = 30 * SECOND_MS
# A record that comes while a batch runs waits for its end, and for the end of the next one.
PATIENCE_BATCHES: Final = 3
# Batches grow with the backlog: one that takes very long excuses nobody.
PATIENCE_BATCHES_MS_MAX: Final = 5 * MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known. `is_alive`: who runs it gave a sign of life lately; `silent_ms`: how long ago
    the last one was. `has_looked`: since it began it has done a batch, or found nothing to do.

    `lag` is what it has still to read, in records, and `lag_ms` how long the oldest of that has
    been there; `left_ms` how long reading it takes at the last rate. None: not known.
    `was_current`: a little while ago nothing was left.
    """

    phase: Phase
    is_alive: bool = True
    silent_ms: int | None = None
    has_looked: bool = True
    failures: int = 0
    retry_in_ms: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    left_ms: float | None = None
    trend: Trend | None = None
    was_current: bool = False
    patience_ms: int = PATIENCE_MS
    told: str = ""
    now_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`word` says how it is, `note` says more in a few words, and `aside` what of that a table says
    that has the lag in a column; `lag` and `lag_ms` are the facts that it was decided from."""

    word: Word
    note: str = ""
    aside: str = ""
    fresh: str = ""
    lag: int | None = None
    lag_ms: int | None = None

    @property
    def mark(self) -> str:
        """The name of its colour and shape."""
        return self.word.replace(" ", "-")

    @property
    def is_up(self) -> bool:
        """Whether it does something, so that it has a rate."""
        return self.word in ("good", "behind", "starting", "running")

    @property
    def behind(self) -> str:
        """In time where that is known; else in records."""
        if self.lag_ms is not None and (self.lag or self.lag is None):
            return duration(self.lag_ms)
        return "0" if self.lag == 0 else count(self.lag)

    @property
    def behind_records(self) -> str:
        """Beside the time, if there is one."""
        return counted(self.lag, "record") if self.lag and self.lag_ms is not None else ""


def decided(facts: Facts) -> Condition:
    """The one place where it is decided."""
    word = _word(facts)
    lag, aside = _lag_words(word, facts), _joined([_aside(word, facts), facts.told])
    has_lag_first = word in ("behind", "good", "starting")
    return Condition(
        word=word,
        note=_joined([lag, aside] if has_lag_first else [aside, lag]),
        aside=aside,
        fresh=freshness(facts.lag, facts.lag_ms, facts.now_ms),
        lag=facts.lag,
        lag_ms=facts.lag_ms,
    )


def _joined(parts: Iterable[str]) -> str:
    return ", ".join(part for part in parts if part)


def _word(facts: Facts) -> Word:
    if facts.phase == "never":
        return "not run"
    if facts.phase in ("failed", "refused"):
        return "failed"
    if facts.phase == "done":
        return "stopped" if facts.lag else "done"
    if not facts.is_alive or facts.phase in ("stopped", "paused"):
        return "stopped"
    if facts.phase == "retrying" or facts.failures:
        return "failed"
    return _word_of_running(facts)


def _word_of_running(facts: Facts) -> Word:
    if facts.phase == "starting" or not facts.has_looked:
        return "starting"
    is_behind = _is_behind(facts)
    if is_behind is None:
        return "running"
    return "behind" if is_behind else "good"


def _is_behind(facts: Facts) -> bool | None:
    """By time where that is known; else by how long the rest takes, or whether it lasts. None: not
    known, or not yet."""
    if facts.lag == 0:
        return False
    if facts.lag_ms is not None:
        return facts.lag_ms > facts.patience_ms
    if facts.lag is None:
        return None
    if facts.left_ms is not None:
        return facts.left_ms > facts.patience_ms
    if facts.was_current or facts.trend == "shrinking":
        return False
    return None if facts.trend is None else True


# --- a few words more ---------------------------------------------------------------------------


def _aside(word: Word, facts: Facts) -> str:
    match word:
        case "failed":
            return _attempt(facts)
        case "stopped":
            return _silence(facts)
        case "behind":
            return COURSES.get(facts.trend, "")
        case "running":
            return "how far it is behind is not known" if facts.lag is None else ""
    return ""


def _lag_words(word: Word, facts: Facts) -> str:
    match word:
        case "failed" | "stopped":
            return _left(facts)
        case "behind":
            time = "" if facts.lag_ms is None else duration(facts.lag_ms)
            return _joined([time, f"{short(facts.lag)} records" if facts.lag else ""])
        case "starting" | "running":
            return f"{short(facts.lag)} records to read" if facts.lag else ""
        case "good":
            return freshness(facts.lag, facts.lag_ms, facts.now_ms)
        case "done":
            return "all was read" if facts.lag == 0 else ""
    return ""


def _attempt(facts: Facts) -> str:
    if facts.phase == "failed":
        return ""
    if facts.phase == "refused":
        return "cannot write"
    if facts.phase == "retrying":
        soon = facts.retry_in_ms is None or facts.retry_in_ms < SECOND_MS
        return "tries again" + ("" if soon else f" in {duration(facts.retry_in_ms)}")
    return f"tries again, after {counted(facts.failures, 'failure')}"


def _silence(facts: Facts) -> str:
    if facts.phase == "paused":
        return "paused"
    if facts.silent_ms is None or facts.phase in ("stopped", "done"):
        return ""
    return f"no sign of life for {duration(facts.silent_ms)}"


def _left(facts: Facts) -> str:
    """Of what does not run: how much there is by now, and when it was current."""
    if facts.lag == 0:
        return "nothing is left to read"
    if facts.lag is None:
        return ""
    until = "" if facts.lag_ms is None else f", {freshness(facts.lag, facts.lag_ms, facts.now_ms)}"
    return f"{_records_behind(facts.lag)}{until}"


def freshness(lag: int | None, lag_ms: int | None, now_ms: int) -> str:
    """How new what it has read is: by the clock, so that it can be held against another one."""
    if lag == 0 or (lag is None and lag_ms == 0):
        return "current"
    if lag_ms is not None:
        return f"current to {day_clock(now_ms - lag_ms, now_ms)}"
    return "" if lag is None else _records_behind(lag)


def _records_behind(lag: int) -> str:
    return f"{short(lag)} {'record' if lag == 1 else 'records'} behind"


# --- of what there is ---------------------------------------------------------------------------


def job_condition(
    job: JobSeen, *, now_ms: int, trend: Trend | None = None, was_current: bool = False
) -> Condition:
    status = job.status
    if status is None:
        return decided(Facts(phase="never", now_ms=now_ms))
    progress = status.progress
    retry_at_ms = progress.retry_at_ms
    rate, lag = progress.rows_per_second, job.lag.total
    return decided(
        Facts(
            phase=_phase_of_job(progress.state),
            is_alive=not job.is_stale,
            silent_ms=now_ms - status.at_ms,
            has_looked=progress.reported is not None or progress.batch is not None,
            failures=progress.failures,
            retry_in_ms=None if retry_at_ms is None else retry_at_ms - now_ms,
            lag=lag,
            lag_ms=job.lag.oldest_ms,
            left_ms=lag / rate * SECOND_MS if lag is not None and rate > 0 else None,
            trend=trend,
            was_current=was_current,
            patience_ms=patience_of(progress.batch_ms, job.trigger_ms),
            told="rebuilding" if progress.is_building and not job.is_stale else "",
            now_ms=now_ms,
        )
    )


def _phase_of_job(state: str) -> Phase:
    """A word of a newer version is one of a job that runs: whether it lives its file says."""
    return JOB_PHASES.get(state, "running")


def patience_of(batch_ms: int | None, trigger_ms: int | None) -> int:
    """How long a record may wait before the job is behind: as long as its batches take, within
    reason, and as long as it was told to wait between them."""
    batches_ms = min(PATIENCE_BATCHES * (batch_ms or 0), PATIENCE_BATCHES_MS_MAX)
    return max(PATIENCE_MS, batches_ms) + (trigger_ms or 0)


def view_condition(
    of_job: Condition | None, *, lag: int | None, trend: Trend | None, was_current: bool
) -> Condition:
    """A view is as its job is: who is current keeps it so. Of one whose job runs elsewhere only the
    view itself is known: how far it is, in records."""
    if of_job is not None and of_job.word != "not run":
        return of_job
    if lag is None:
        return of_job or decided(Facts(phase="never"))
    return decided(Facts(phase="running", lag=lag, trend=trend, was_current=was_current))


def capture_condition(capture: CaptureSeen, *, now_ms: int) -> Condition:
    """One whose records the broker refuses tells nothing of that: its last status is of before."""
    status = capture.status
    if status is None:
        return decided(Facts(phase="never", now_ms=now_ms))
    phase = "refused" if capture.refusal else CAPTURE_PHASES.get(status.state, "running")
    is_alive = not capture.is_stale
    return decided(
        Facts(
            phase=phase,
            is_alive=is_alive,
            silent_ms=now_ms - status.at_ms,
            has_looked=status.state != "loading",
            lag_ms=status.behind_ms if is_alive and phase == "running" else None,
            told="initial load" if status.state == "loading" and not capture.is_stale else "",
            now_ms=now_ms,
        )
    )


def group_condition(group: GroupSeen, *, trend: Trend | None, was_current: bool) -> Condition:
    """A group that nobody is in stands still; whether that is right only its owner knows.

    A member of a share group, which is a worker of a queue, has a record in its hands for as long
    as it works on it: as many records as there are members are no backlog.
    """
    members = group.members
    is_in_hands = group.protocol == "share" and (group.lag or 0) <= (members or 0)
    return decided(
        Facts(
            phase="stopped" if members == 0 else "running",
            lag=group.lag,
            trend=trend,
            was_current=was_current or is_in_hands,
        )
    )
