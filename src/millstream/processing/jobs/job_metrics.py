"""The progress of jobs for Prometheus: read when it is asked for, served on loopback.

docs/job_metrics.md lists the families; the label is `job_name`, as `job` is Prometheus' own.
"""

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from millstream.base.errors import Rejected
from millstream.base.quantity import SECOND_MS
from millstream.processing.jobs.progress import JobProgress

JOB = "job_name"


class MetricsBeyondLoopback(Rejected):
    def __init__(self, *, host: str) -> None:
        super().__init__(
            f"metrics of jobs are served on loopback only, not on {host}: they need no login. Give "
            "127.0.0.1:PORT, and let something with a login forward it"
        )
        self.host = host


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFamily:
    """`value` is None where there is nothing to show."""

    name: str
    help: str
    value: Callable[[JobProgress], float | None]
    is_counter: bool = False


def _watermark_seconds(progress: JobProgress) -> float | None:
    if progress.watermark is None:
        return None
    return datetime.fromisoformat(progress.watermark.replace("Z", "+00:00")).timestamp()


def _batch_seconds(progress: JobProgress) -> float | None:
    return None if progress.batch_ms is None else progress.batch_ms / SECOND_MS


FAMILIES = (
    JobFamily(
        name="millstream_job_running",
        help="Whether the job runs (1), or waits, has ended or failed (0).",
        value=lambda one: float(one.state == "running"),
    ),
    JobFamily(
        name="millstream_job_rows_total",
        help="Rows that the job has read since the program started.",
        value=lambda one: one.rows,
        is_counter=True,
    ),
    JobFamily(
        name="millstream_job_restarts_total",
        help="How often the job was started again after a failure.",
        value=lambda one: one.restarts,
        is_counter=True,
    ),
    JobFamily(
        name="millstream_job_rows_per_second",
        help="The rate of the last batch.",
        value=lambda one: one.rows_per_second,
    ),
    JobFamily(
        name="millstream_job_batch_seconds",
        help="How long the last batch took.",
        value=_batch_seconds,
    ),
    JobFamily(
        name="millstream_job_watermark_timestamp_seconds",
        help="The job's watermark, as a Unix time.",
        value=_watermark_seconds,
    ),
    JobFamily(
        name="millstream_job_state_rows",
        help="Rows that the job's operators keep.",
        value=lambda one: one.state_rows,
    ),
    JobFamily(
        name="millstream_job_state_bytes",
        help="The memory of the job's state.",
        value=lambda one: one.state_bytes,
    ),
    JobFamily(
        name="millstream_job_late_events",
        help="Events that were late, all generations of the job together.",
        value=lambda one: one.late,
    ),
    JobFamily(
        name="millstream_job_dead_letters",
        help="Letters in the dead-letter topics of the job's inputs.",
        value=lambda one: one.dead,
    ),
)
LAG = "millstream_job_lag_records"
LAG_HELP = "Offsets up to the end of the log that the job has still to read, by source."
LAG_SECONDS = "millstream_job_lag_seconds"
LAG_SECONDS_HELP = "How long the oldest record that the job has still to read is there, by source."


class JobMetrics(Collector):
    """Reads the progress anew for every scrape."""

    def __init__(self, progress: Callable[[], Sequence[JobProgress]]) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Metric]:
        jobs = self._progress()
        for family in FAMILIES:
            yield _metric(family, jobs)
        lag = GaugeMetricFamily(LAG, LAG_HELP, labels=[JOB, "source"])
        seconds = GaugeMetricFamily(LAG_SECONDS, LAG_SECONDS_HELP, labels=[JOB, "source"])
        for job in jobs:
            for source, behind in job.lag.items():
                lag.add_metric([job.job, source], behind)
            for source, behind_ms in job.lag_ms.items():
                seconds.add_metric([job.job, source], behind_ms / SECOND_MS)
        yield from (lag, seconds)


def _metric(family: JobFamily, jobs: Sequence[JobProgress]) -> Metric:
    kind: Any = CounterMetricFamily if family.is_counter else GaugeMetricFamily
    metric: Metric = kind(family.name, family.help, labels=[JOB])
    for job in jobs:
        value = family.value(job)
        if value is not None:
            metric.add_sample(family.name, {JOB: job.job}, value)
    return metric


def serve_metrics(
    host: str, port: int, progress: Callable[[], Sequence[JobProgress]]
) -> tuple[str, Callable[[], None]]:
    """Serve them; where, and a function that ends it."""
    if host != "localhost" and not _is_loopback(host):
        raise MetricsBeyondLoopback(host=host)
    registry = CollectorRegistry()
    registry.register(JobMetrics(progress))
    server, thread = start_http_server(port, addr=host, registry=registry)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return f"http://{host}:{server.server_address[1]}/metrics", end


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
