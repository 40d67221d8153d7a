"""How a job gets on, as data: rows, rates, watermark, state, lag, what went wrong. Pure.

Made from the reports that Spark gives of every batch (docs: StreamingQueryProgress). Counts are of
this run of the program; the watermark and the state are of the job.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from millstream.base.ports import Positions
from millstream.processing.jobs.lag import Lag, topics_in

JobState = Literal["starting", "running", "waiting", "done", "stopped", "failed"]
LONG_AGO = "1970-01-01T00:00:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """`lag` is what each source has still to read up to the end of its topics as that is now, in
    offsets, and `lag_ms` how long the oldest record of it has been there. Nothing is in them while
    that is not known: before the first batch, and while the broker does not answer. `left` is what
    the last batch left of what was there when it was planned. None: not known yet.

    `is_building`: readers see the generation before until this one has caught up.
    `stage` says what it waits for while it is starting. `busy_ms`: for how long the present batch
    has taken, 0 for less than a second and between batches.
    "waiting" is for a restart after a failure, "done" for a run over what was there.
    `batch` is the last one that was completed, `reported` when Spark last told. `late` and
    `dead` are events of all runs. `failures` are those in a row, since Spark last told that it gets
    on; the next attempt is at `retry_at_ms`.
    """

    job: str
    state: JobState = "starting"
    generation: int | None = None
    is_building: bool = False
    batch: int | None = None
    reported: str | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    batch_ms: int | None = None
    watermark: str | None = None
    state_rows: int = 0
    state_bytes: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    lag_ms: Mapping[str, int] = field(default_factory=dict)
    left: int | None = None
    late: int | None = None
    dead: int | None = None
    restarts: int = 0
    failures: int = 0
    retry_at_ms: int | None = None
    error: str | None = None
    stage: str = ""
    busy_ms: int = 0

    @property
    def lag_total(self) -> int | None:
        """None: not known."""
        return Lag(records=self.lag).total

    @property
    def lag_ms_max(self) -> int | None:
        """How long the oldest unread record of all sources has been there; None: not known."""
        return Lag(records=self.lag, ms=self.lag_ms).oldest_ms

    @property
    def has_caught_up(self) -> bool:
        """Whether a batch left nothing of what was there when it was planned. While others write
        there may always be more by now: that is the lag."""
        return self.batch is not None and self.left == 0

    @property
    def left_seconds(self) -> float | None:
        """Until it has caught up, at the rate of the last batch; None: not known yet."""
        if self.has_caught_up:
            return 0.0
        total = self.left if self.lag_total is None else self.lag_total
        if self.batch is None or self.rows_per_second <= 0 or total is None:
            return None
        return total / self.rows_per_second

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"lag": dict(self.lag), "lag_ms": dict(self.lag_ms)}


def advanced(progress: JobProgress, report: Mapping[str, Any]) -> JobProgress:
    """The progress after one more report of Spark's. The same report twice counts once."""
    if report["timestamp"] == progress.reported:
        return progress
    # An idle source is reported with the number of the batch to come.
    is_done = "addBatch" in (report.get("durationMs") or {})
    return replace(
        progress,
        state="running",
        failures=0,
        reported=str(report["timestamp"]),
        batch=int(report["batchId"]) if is_done else progress.batch,
        rows=progress.rows + int(report.get("numInputRows") or 0),
        rows_per_second=float(report.get("processedRowsPerSecond") or 0.0),
        batch_ms=int(report.get("batchDuration") or 0),
        watermark=_watermark(report.get("eventTime") or {}) or progress.watermark,
        state_rows=_total(report, "numRowsTotal"),
        state_bytes=_total(report, "memoryUsedBytes"),
        left=_left(report.get("sources") or ()),
    )


def is_behind(reached: Positions, wanted: Positions) -> bool:
    """Whether there is a partition of `wanted` that has been read further there."""
    return any(
        offset > reached.get(topic, {}).get(number, 0)
        for topic, offsets in wanted.items()
        for number, offset in offsets.items()
        if topic in reached
    )


def follows(progress: JobProgress, report: Mapping[str, Any]) -> bool:
    """Whether no report of a batch lies between them: batches can be quicker than who looks."""
    return int(report["batchId"]) <= (-1 if progress.batch is None else progress.batch) + 1


def _watermark(event_time: Mapping[str, str]) -> str | None:
    found = event_time.get("watermark")
    return None if found is None or found.startswith(LONG_AGO) else found


def _total(report: Mapping[str, Any], name: str) -> int:
    return sum(int(one.get(name) or 0) for one in report.get("stateOperators") or ())


def _left(sources: Any) -> int:
    pairs = [(source.get("endOffset"), source.get("latestOffset")) for source in sources]
    return sum(
        lag_between(reached, latest)
        for reached, latest in pairs
        if isinstance(reached, Mapping) and isinstance(latest, Mapping)
    )


def lag_between(reached: Mapping[str, Any], latest: Mapping[str, Any]) -> int:
    """Offsets from a position to the end; markers and compacted records count too."""
    return sum(
        max(0, int(end) - _offset(reached, topic, number))
        for topic in topics_in(latest)
        for number, end in latest[topic]["offsets"].items()
    )


def _offset(reached: Mapping[str, Any], topic: str, number: str) -> int:
    return int(reached.get(topic, {}).get("offsets", {}).get(number, 0))
