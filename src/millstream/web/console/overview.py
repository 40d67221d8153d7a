"""The first page: what flows into what, how fast, and what needs a look."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from millstream.base.errors import MillstreamError
from millstream.web.console.attention import notices_of
from millstream.web.console.condition import (
    WORDS,
    Condition,
    capture_condition,
    job_condition,
    view_condition,
)
from millstream.web.console.facts import AsideTopics, CaptureSeen, JobSeen, Node, aside_of
from millstream.web.console.figures import Curve, curve, rate, short
from millstream.web.console.flow_layout import BOX_HEIGHT, picture_of
from millstream.web.console.series import BATCHES_MS, summed
from millstream.web.console.visits import Visit
from millstream.web.console.watch import Watch

T = TypeVar("T")
CURVE_WIDTH, CURVE_HEIGHT = 60, 18
# Records a second from which a line moves faster.
SPEEDS = (0.0, 10.0, 1_000.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one node: a figure, a few words, how it is, and how fast it goes on to the next."""

    figure: str
    note: str
    condition: Condition | None = None
    curve: Curve | None = None
    per_second: float | None = None

    @property
    def speed(self) -> int:
        """0: it stands still."""
        return sum((self.per_second or 0.0) > limit for limit in SPEEDS)

    @property
    def brief(self) -> str:
        """Where there is room for little: the word, and the figure that it is about."""
        if self.condition is None:
            return self.figure or self.note
        if self.condition.word == "good":
            return f"good · {self.figure}"
        if self.condition.word == "behind":
            return f"behind {self.condition.behind}"
        return self.condition.word

    @property
    def takes(self) -> bool:
        """Whether what comes flows on into it."""
        return self.condition is None or self.condition.is_up

    @property
    def mark(self) -> str:
        return "" if self.condition is None else self.condition.mark


def load(visit: Visit) -> dict[str, Any]:
    declared, watch = visit.source.declared, visit.watch
    flow, jobs = declared.flow(), declared.jobs()
    captures = _if_reached(declared.captures) or ()
    of_jobs = {one.node: job_figures(one, visit) for one in jobs}
    figures = {node: _figures(node, of_jobs, watch) for node in flow.nodes}
    figures |= {Node("capture", one.name): capture_figures(one, visit) for one in captures}
    figures |= of_jobs
    conditions = {node: one.condition for node, one in figures.items() if one.condition}
    picture = picture_of(flow)
    return {
        "flow": flow,
        "figures": figures,
        "picture": picture,
        "box_height": BOX_HEIGHT,
        "notices": notices_of(
            captures,
            jobs,
            watch.views,
            conditions,
            broker=_if_reached(visit.source.topics.troubles) or (),
        ),
        "totals": _totals(visit, figures, jobs),
        "captures": captures,
        "jobs": jobs,
        "aside": aside_topics(jobs, visit),
    }


def _totals(
    visit: Visit, figures: Mapping[Node, Figures], jobs: Sequence[JobSeen]
) -> dict[str, Any]:
    topics = [one for node, one in figures.items() if node.kind == "topic"]
    topics_there = _if_reached(visit.source.topics.partitions)
    found = [one for job in jobs if (one := figures[job.node].condition) is not None]
    running = [one.status for one in jobs if one.status and not one.is_stale]
    return {
        "per_second": summed([one.per_second for one in topics]),
        "topics": None if topics_there is None else len(topics_there),
        "jobs": _counted_words(found),
        "views": len(visit.watch.views),
        "rows": summed([one.rows for one in visit.watch.views.values()]),
        "farthest": farthest(found),
        "state_bytes": sum(one.progress.state_bytes for one in running),
    }


def _counted_words(found: Sequence[Condition]) -> list[tuple[Condition, int]]:
    """How many are how, the worst first."""
    there = {one.word: one for one in reversed(found)}
    count = Counter(one.word for one in found)
    return [(there[word], count[word]) for word in WORDS if word in there]


def farthest(found: Sequence[Condition]) -> Condition | None:
    """By time; who is known only in records comes after those."""
    behind = [one for one in found if one.lag is not None]
    return max(behind, key=lambda one: (one.lag_ms or 0, one.lag or 0), default=None)


def _if_reached(ask: Callable[[], T]) -> T | None:
    """What the application declares is shown while no broker answers: the page says that it does
    not, as the watch cannot reach it either."""
    try:
        return ask()
    except MillstreamError:
        return None


def _figures(node: Node, of_jobs: Mapping[Node, Figures], watch: Watch) -> Figures:
    match node.kind:
        case "topic":
            return topic_figures(node.name, watch)
        case "view":
            job = of_jobs.get(Node("job", node.name))  # which has the name of its view
            return view_figures(node.name, job.condition if job else None, watch)
    return Figures(figure="", note=node.kind)


def topic_figures(name: str, watch: Watch) -> Figures:
    series = watch.series("topic", name)
    per_second = series.rate()
    return Figures(
        figure=rate(per_second),
        note="not there yet" if series.last is None else f"{short(series.last)} written",
        curve=small(series.rates()),
        per_second=per_second,
    )


def view_figures(name: str, of_job: Condition | None, watch: Watch) -> Figures:
    """`of_job`: how the job is that keeps it, which is how the view is."""
    found = watch.views.get(name)
    lags = watch.series("view lag", name)
    condition = view_condition(
        of_job,
        lag=None if found is None else found.lag,
        trend=lags.trend(),
        was_current=lags.was_none(),
    )
    if found is None or found.problem:
        return Figures(figure="–", note=condition.note or "not there yet", condition=condition)
    return Figures(
        figure=f"{short(found.rows)} {'row' if found.rows == 1 else 'rows'}",
        note=condition.note,
        condition=condition,
        curve=small(watch.series("view", name).gauge()),
    )


def capture_figures(capture: CaptureSeen, visit: Visit) -> Figures:
    series = visit.watch.series("capture", capture.name)
    condition = capture_condition(capture, now_ms=visit.now_ms)
    per_second = series.rate()
    if per_second is None and capture.status is not None:
        per_second = capture.status.changes_per_s
    if not condition.is_up:
        per_second = None
    return Figures(
        figure=rate(per_second),
        note=condition.note,
        condition=condition,
        curve=small(series.rates()),
        per_second=per_second,
    )


def job_figures(job: JobSeen, visit: Visit) -> Figures:
    """Of a job whose batches nobody has seen yet, the rate is that of the last one."""
    series, lags = visit.watch.series("job", job.name), visit.watch.series("job lag", job.name)
    condition = job_condition(
        job, now_ms=visit.now_ms, trend=lags.trend(), was_current=lags.was_none()
    )
    per_second = series.rate(BATCHES_MS)
    if per_second is None and job.status is not None:
        per_second = job.status.progress.rows_per_second
    if not condition.is_up:
        per_second = None
    return Figures(
        figure=rate(per_second),
        note=condition.note,
        condition=condition,
        curve=small(series.rates()),
        per_second=per_second,
    )


def aside_topics(jobs: Sequence[JobSeen], visit: Visit) -> dict[str, AsideTopics]:
    """Where the letters and late events of each job are, of those topics that exist."""
    there = _if_reached(visit.source.topics.partitions) or {}
    return {job.name: aside_of(job, there) for job in jobs}


def small(values: list[float | None]) -> Curve:
    return curve(values, width=CURVE_WIDTH, height=CURVE_HEIGHT)
