"""The first page: what flows into what, how fast, and what needs a look."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from millstream.base.errors import MillstreamError
from millstream.web.console.attention import notices_of
from millstream.web.console.facts import CaptureSeen, JobSeen, Node
from millstream.web.console.figures import Curve, curve, duration, rate, short
from millstream.web.console.flow_layout import BOX_HEIGHT, BOX_WIDTH, picture_of
from millstream.web.console.series import BATCHES_MS, summed
from millstream.web.console.visits import Visit
from millstream.web.console.watch import Watch

T = TypeVar("T")
Health = Literal["ok", "idle", "warn", "bad"]
CURVE_WIDTH, CURVE_HEIGHT = 60, 18
# Records a second from which a line moves faster.
SPEEDS = (0.0, 10.0, 1_000.0)
RUNNING = ("running", "streaming", "loading", "done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one node: a figure, a few words, and how fast it goes on to the next."""

    figure: str
    note: str
    health: Health = "ok"
    curve: Curve | None = None
    per_second: float | None = None

    @property
    def speed(self) -> int:
        """0: it stands still."""
        return sum((self.per_second or 0.0) > limit for limit in SPEEDS)


def load(visit: Visit) -> dict[str, Any]:
    declared, watch = visit.source.declared, visit.watch
    flow, jobs = declared.flow(), declared.jobs()
    captures = _if_reached(declared.captures) or ()
    figures = {node: _figures(node, watch) for node in flow.nodes}
    figures |= {Node("capture", one.name): capture_figures(one, watch) for one in captures}
    figures |= {one.node: job_figures(one, watch) for one in jobs}
    return {
        "flow": flow,
        "figures": figures,
        "picture": picture_of(flow),
        "box_width": BOX_WIDTH,
        "box_height": BOX_HEIGHT,
        "notices": notices_of(
            captures, jobs, watch.views, broker=_if_reached(visit.source.topics.troubles) or ()
        ),
        "totals": _totals(visit, figures, jobs),
        "captures": captures,
        "jobs": jobs,
    }


def _totals(
    visit: Visit, figures: Mapping[Node, Figures], jobs: Sequence[JobSeen]
) -> dict[str, Any]:
    topics = [one for node, one in figures.items() if node.kind == "topic"]
    running = [one for one in jobs if one.status and one.status.progress.state == "running"]
    topics_there = _if_reached(visit.source.topics.partitions)
    lags = [one.lag for one in visit.watch.views.values() if one.lag is not None]
    return {
        "per_second": summed([one.per_second for one in topics]),
        "topics": None if topics_there is None else len(topics_there),
        "jobs": len(jobs),
        "jobs_running": sum(not one.is_stale for one in running),
        "views": len(visit.watch.views),
        "rows": summed([one.rows for one in visit.watch.views.values()]),
        "view_lag": max(lags, default=None),
        "state_bytes": sum(one.status.progress.state_bytes for one in running if one.status),
    }


def _if_reached(ask: Callable[[], T]) -> T | None:
    """What the application declares is shown while no broker answers: the page says that it does
    not, as the watch cannot reach it either."""
    try:
        return ask()
    except MillstreamError:
        return None


def _figures(node: Node, watch: Watch) -> Figures:
    match node.kind:
        case "topic":
            return topic_figures(node.name, watch)
        case "view":
            return view_figures(node.name, watch)
    return Figures(figure="", note=node.kind, health="idle")


def topic_figures(name: str, watch: Watch) -> Figures:
    series = watch.series("topic", name)
    per_second = series.rate()
    written = "not there yet" if series.last is None else f"{short(series.last)} written"
    return Figures(
        figure=rate(per_second),
        note=written,
        health="ok" if per_second else "idle",
        curve=small(series.rates()),
        per_second=per_second,
    )


def view_figures(name: str, watch: Watch) -> Figures:
    found = watch.views.get(name)
    if found is None or found.problem:
        return Figures(figure="–", note="not there yet", health="idle" if found is None else "warn")
    note = "current" if found.lag == 0 else f"{short(found.lag)} behind"
    return Figures(
        figure=f"{short(found.rows)} {'row' if found.rows == 1 else 'rows'}",
        note=note if found.lag is not None else "in another topic's time",
        curve=small(watch.series("view", name).gauge()),
    )


def capture_figures(capture: CaptureSeen, watch: Watch) -> Figures:
    series = watch.series("capture", capture.name)
    per_second, status = series.rate(), capture.status
    if status is None or capture.is_stale:
        state = "not run yet" if status is None else "nobody runs it"
        return Figures(figure="–", note=state, health="idle" if status is None else "bad")
    behind = "" if status.behind_ms is None else f", {duration(status.behind_ms)} behind"
    return Figures(
        figure=rate(per_second),
        note=f"{status.state}{behind}",
        health=health_of(status.state),
        curve=small(series.rates()),
        per_second=per_second,
    )


def job_figures(job: JobSeen, watch: Watch) -> Figures:
    status = job.status
    if status is None:
        return Figures(figure="–", note="not run yet", health="idle")
    if job.is_stale:
        return Figures(figure="–", note="nobody runs it", health="bad")
    progress, series = status.progress, watch.series("job", job.name)
    per_second = series.rate(BATCHES_MS)
    if progress.state == "failed":
        return Figures(figure="–", note="failed", health="bad", curve=small(series.rates()))
    return Figures(
        figure=rate(per_second),
        note=f"{progress.state}{_lag_note(progress.lag_total, progress.lag_ms_max)}",
        health=health_of(progress.state),
        curve=small(series.rates()),
        per_second=per_second,
    )


def _lag_note(lag: int | None, age_ms: int | None) -> str:
    """Nothing while it is not known."""
    if not lag:
        return "" if lag is None else ", caught up"
    return f", {short(lag)} behind" + (f" ({duration(age_ms)})" if age_ms else "")


def health_of(state: str) -> Health:
    if state in RUNNING:
        return "ok"
    return "bad" if state == "failed" else "warn" if state in ("waiting", "paused") else "idle"


def small(values: list[float | None]) -> Curve:
    return curve(values, width=CURVE_WIDTH, height=CURVE_HEIGHT)
