"""The progress of jobs as metrics."""

import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from millstream.processing.jobs.job_metrics import (
    FAMILIES,
    LAG,
    JobMetrics,
    MetricsBeyondLoopback,
    serve_metrics,
)
from millstream.processing.jobs.progress import JobProgress

DOCUMENT = Path(__file__).parents[4] / "docs" / "job_metrics.md"
BUSY = JobProgress(
    job="per_url",
    state="running",
    batch=4,
    rows=1_000,
    batch_ms=250,
    watermark="2026-01-01T00:00:00.000Z",
    state_rows=7,
    lag={"clicks": 3},
    lag_ms={"clicks": 1500},
    late=2,
    restarts=1,
)


def exposed(*jobs: JobProgress) -> list[str]:
    registry = CollectorRegistry()
    registry.register(JobMetrics(lambda: jobs))
    return generate_latest(registry).decode().splitlines()


def test_every_job_has_its_samples() -> None:
    lines = exposed(BUSY)
    assert 'millstream_job_rows_total{job_name="per_url"} 1000.0' in lines
    assert 'millstream_job_running{job_name="per_url"} 1.0' in lines
    assert 'millstream_job_batch_seconds{job_name="per_url"} 0.25' in lines
    assert 'millstream_job_lag_records{job_name="per_url",source="clicks"} 3.0' in lines
    assert 'millstream_job_lag_seconds{job_name="per_url",source="clicks"} 1.5' in lines
    stamp = 'millstream_job_watermark_timestamp_seconds{job_name="per_url"} 1.7672256e+09'
    assert stamp in lines
    assert "# TYPE millstream_job_rows_total counter" in lines


def test_what_is_not_known_is_not_shown() -> None:
    lines = exposed(JobProgress(job="new"))
    assert 'millstream_job_running{job_name="new"} 0.0' in lines
    assert not [line for line in lines if line.startswith("millstream_job_batch_seconds")]
    assert not [line for line in lines if line.startswith("millstream_job_dead_letters")]


def test_a_scrape_reads_the_progress_anew() -> None:
    found = [BUSY]
    url, end = serve_metrics("127.0.0.1", 0, lambda: found)
    try:
        assert b'rows_total{job_name="per_url"} 1000.0' in urllib.request.urlopen(url).read()
        found[0] = JobProgress(job="per_url", rows=1_001)
        assert b'rows_total{job_name="per_url"} 1001.0' in urllib.request.urlopen(url).read()
    finally:
        end()


def test_metrics_stay_on_loopback() -> None:
    for host in ("0.0.0.0", "192.0.2.1", "example.org"):
        with pytest.raises(MetricsBeyondLoopback, match="served on loopback only"):
            serve_metrics(host, 0, list)


def test_every_metric_is_documented() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for family in FAMILIES:
        kind = "counter" if family.is_counter else "gauge"
        assert f"| `{family.name}` | {kind} | {family.help} |" in text
    assert f"| `{LAG}` | gauge |" in text
