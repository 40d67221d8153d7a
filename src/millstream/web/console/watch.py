"""Looks at counters every two seconds, so that pages can show rates and figures over time.

One thread, from the first page that somebody opens until an hour after the last. What it cannot
learn it says on every page, and asks again.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError
from millstream.base.ports import Positions
from millstream.views.store import ViewNotFound
from millstream.web.console.facts import CaptureSeen, JobSeen
from millstream.web.console.ports import Source
from millstream.web.console.series import Series
from millstream.web.ports import Application

logger = logging.getLogger(__name__)

SAMPLE_SECONDS = 2.0
# What takes more requests is asked every so many samples.
SLOW_EVERY = 3
IDLE_SECONDS_MAX = 3_600.0
# The first page has figures, and is not long in coming. Its rates are of so short a time, which is
# longer than an answer of the broker is kept: of the same answer twice a rate would be 0.
FIRST_RATE_SECONDS = 1.1
FIRST_SECONDS_MAX = 3.0
# Beside those that the application declares: the ones whose pages were opened last.
OPENED_TOPICS_MAX = 20
GROUPS_MAX = 100
SERIES_MAX = 5_000
STOP_SECONDS_MAX = 10.0

Key = tuple[str, str]  # what it is a figure of, and whose


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFigures:
    """`lag`: records that its topics have and it has not seen. `problem`: why nothing is known.
    `is_missing`: its job has not made it yet."""

    rows: int | None = None
    lag: int | None = None
    batch: int | None = None
    problem: str = ""
    is_missing: bool = False


class Watch:
    """Its figures may be read from any thread."""

    def __init__(self, source: Source, application: Application, now_ms: Clock) -> None:
        self._source, self._application, self._now_ms = source, application, now_ms
        self._series: OrderedDict[Key, Series] = OrderedDict()
        self._opened: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._looked_at = time.monotonic()
        self._begun = threading.Event()
        self._samples = 0
        self.views: dict[str, ViewFigures] = {}
        self._troubles: dict[str, str] = {}

    # --- asked by pages

    def look(self, *, topic: str | None = None) -> None:
        """Somebody looks: the thread runs; and samples this topic, too."""
        with self._lock:
            self._looked_at = time.monotonic()
            if topic is not None:
                self._opened[topic] = None
                self._opened.move_to_end(topic)
                while len(self._opened) > OPENED_TOPICS_MAX:
                    self._opened.popitem(last=False)
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="console", daemon=True)
                self._thread.start()

    def await_figures(self) -> None:
        """Until there are some, for the first page that anybody opens: not longer than one likes to
        wait for a page. A rate needs two samples."""
        self._begun.wait(FIRST_SECONDS_MAX)

    def series(self, what: str, name: str) -> Series:
        """A copy; of what nothing is known it is empty."""
        with self._lock:
            return (self._series.get((what, name)) or Series()).copy()

    @property
    def trouble(self) -> str:
        """One of what cannot be learnt at present: the first that went wrong."""
        return next(iter(self._troubles.values()), "")

    def stop(self) -> None:
        self._stopping.set()
        self._begun.set()
        thread = self._thread
        if thread is not None:
            thread.join(STOP_SECONDS_MAX)

    # --- the thread

    def _run(self) -> None:
        self.sample()
        self._stopping.wait(FIRST_RATE_SECONDS)
        self._try("topics", self._look_at_topics)
        self._begun.set()
        while not self._stopping.wait(SAMPLE_SECONDS) and self._is_wanted():
            self.sample()

    def _is_wanted(self) -> bool:
        with self._lock:
            if time.monotonic() - self._looked_at > IDLE_SECONDS_MAX:
                self._thread = None
                self._begun.clear()
            return self._thread is not None

    def sample(self) -> None:
        """All figures once; those that are slow every few times."""
        is_turn_of_slow = self._samples % SLOW_EVERY == 0
        self._samples += 1
        self._try("topics", self._look_at_topics)
        self._try("declared", self._look_at_declared)
        if is_turn_of_slow or "groups" in self._troubles:
            self._try("groups", self._look_at_groups)
        if is_turn_of_slow or "views" in self._troubles:
            self._try("views", self._look_at_views)

    def _try(self, what: str, look: Callable[[], None]) -> None:
        """What is wrong with it stays known until it succeeds."""
        trouble = self._tried(look)
        troubles = dict(self._troubles)  # pages read the other one meanwhile
        if trouble:
            troubles[what] = trouble
        else:
            troubles.pop(what, None)
        self._troubles = troubles

    def _tried(self, look: Callable[[], None]) -> str:
        try:
            look()
        except MillstreamError as error:
            return str(error)
        except Exception:  # what nobody foresaw ends this look, and not the next one
            logger.exception("the console cannot look at everything")
            return "The console cannot look at everything: see the server's stderr"
        return ""

    def _look_at_topics(self) -> None:
        flow = self._source.declared.flow()
        with self._lock:
            opened = list(self._opened)
        names = dict.fromkeys([one.name for one in flow.nodes if one.kind == "topic"] + opened)
        at_ms = self._now_ms()
        ends = self._source.topics.ends(list(names))
        for name, end in ends.items():
            self._add("topic", name, end, at_ms)

    def _look_at_declared(self) -> None:
        at_ms = self._now_ms()
        for capture in self._source.declared.captures():
            self._add_capture(capture, at_ms)
        for job in self._source.declared.jobs():
            self._add_job(job, at_ms)

    def _add_capture(self, capture: CaptureSeen, at_ms: int) -> None:
        status = capture.status
        if status is None or capture.is_stale:
            return
        self._add("capture", capture.name, status.changes + status.rows_loaded, status.at_ms)
        for what, value in (
            ("capture behind", status.behind_ms),
            ("capture retained", status.retained_bytes),
        ):
            if value is not None:
                self._add(what, capture.name, value, at_ms)

    def _add_job(self, job: JobSeen, at_ms: int) -> None:
        status = job.status
        if job.lag.total is not None:
            self._add("job lag", job.name, job.lag.total, at_ms)
        if status is None or job.is_stale:
            return
        self._add("job", job.name, status.progress.rows, status.at_ms)
        self._add("job state", job.name, status.progress.state_rows, at_ms)

    def _look_at_groups(self) -> None:
        names = self._source.groups.names()[:GROUPS_MAX]
        at_ms = self._now_ms()
        for group in self._source.groups.seen(names):
            if group.lag is not None:
                self._add("group", group.name, group.lag, at_ms)

    def _look_at_views(self) -> None:
        names = list(self._application.views())
        positions = {name: self._figures(name) for name in names}
        topics = {topic for _, found in positions.values() for topic in found}
        ends = self._source.topics.ends(sorted(topics))
        at_ms = self._now_ms()
        for name, (figures, position) in positions.items():
            lag = None if figures.problem else lag_of(position, ends)
            self.views[name] = replace(figures, lag=lag)
            for what, value in (("view", figures.rows), ("view lag", lag)):
                if value is not None:
                    self._add(what, name, value, at_ms)

    def _figures(self, name: str) -> tuple[ViewFigures, Positions]:
        try:
            view = self._application.view(name)
            served = [one for one in self._application.generations(name) if one.is_served]
            batch = served[0].batch if served else None
            return ViewFigures(rows=view.count(), batch=batch), view.position()
        except MillstreamError as error:
            is_missing = isinstance(error, ViewNotFound)
            return ViewFigures(problem=str(error), is_missing=is_missing), {}

    def _add(self, what: str, name: str, value: float, at_ms: int) -> None:
        with self._lock:
            series = self._series.setdefault((what, name), Series())
            self._series.move_to_end((what, name))
            series.add(value, at_ms=at_ms)
            while len(self._series) > SERIES_MAX:
                self._series.popitem(last=False)


def lag_of(position: Positions, ends: Mapping[str, int]) -> int | None:
    """Offsets from a position to the ends of its topics; None if a topic is not there."""
    if not position or any(topic not in ends for topic in position):
        return None
    return sum(max(0, ends[topic] - sum(offsets.values())) for topic, offsets in position.items())
