"""Writes docs/grafana/millstream.json: a dashboard of the broker's metrics and the jobs'.

Import the file in Grafana (Dashboards, New, Import), and choose the Prometheus that scrapes them.

python codegen/grafana_dashboard.py
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "docs" / "grafana" / "millstream.json"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH, HEIGHT, COLUMNS = 8, 7, 24


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: PromQL, and what its lines are called."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


def _quantile(metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile(0.99, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))"


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Is anything wrong",
        (
            Panel(
                "Read-only logs",
                "short",
                (("sum(millstream_read_only_partitions)", "logs"),),
                "stat",
            ),
            Panel(
                "Damaged partitions",
                "short",
                (("sum(millstream_damaged_partitions)", "partitions"),),
                "stat",
            ),
            Panel("Full disks", "short", (("sum(millstream_disk_full)", "brokers"),), "stat"),
            Panel("Free disk", "bytes", (("min(millstream_disk_free_bytes)", "free"),), "stat"),
            Panel(
                "Jobs that do not run",
                "short",
                (("count(millstream_job_running == 0) or vector(0)", "jobs"),),
                "stat",
            ),
            Panel(
                "Dead letters",
                "short",
                (
                    ("sum(increase(millstream_dead_letters_total[1h]))", "of queues, in an hour"),
                    ("sum(millstream_job_dead_letters)", "of jobs"),
                ),
                "stat",
            ),
            Panel(
                "Failed syncs",
                "short",
                (("sum(increase(millstream_sync_failures_total[1h]))", "in an hour"),),
                "stat",
            ),
            Panel(
                "Request errors",
                "reqps",
                ((_rate("millstream_request_errors_total", "api, error"), "{{api}} {{error}}"),),
            ),
        ),
    ),
    (
        "Records through the log",
        (
            Panel(
                "Records in",
                "cps",
                ((_rate("millstream_topic_received_records_total", "topic"), "{{topic}}"),),
            ),
            Panel(
                "Bytes in",
                "Bps",
                ((_rate("millstream_topic_received_bytes_total", "topic"), "{{topic}}"),),
            ),
            Panel(
                "Bytes out",
                "Bps",
                ((_rate("millstream_topic_sent_bytes_total", "topic"), "{{topic}}"),),
            ),
            Panel(
                "Size on disk",
                "bytes",
                (("sum by (topic) (millstream_partition_size_bytes)", "{{topic}}"),),
            ),
            Panel(
                "Lag of consumer groups",
                "short",
                (
                    (
                        "sum by (group, topic) (millstream_group_lag_records)",
                        "{{group}} {{topic}}",
                    ),
                ),
            ),
            Panel(
                "Pending in queues",
                "short",
                (
                    (
                        "sum by (group, topic) (millstream_share_group_pending_records)",
                        "{{group}} {{topic}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "The broker",
        (
            Panel("Requests", "reqps", ((_rate("millstream_requests_total", "api"), "{{api}}"),)),
            Panel(
                "Time of requests (99 %)",
                "s",
                ((_quantile("millstream_request_duration_seconds", "api"), "{{api}}"),),
            ),
            Panel(
                "Syncs and loop delay (99 %)",
                "s",
                (
                    (_quantile("millstream_sync_duration_seconds"), "sync"),
                    (_quantile("millstream_loop_delay_seconds"), "loop delay"),
                ),
            ),
            Panel(
                "Connections",
                "short",
                (
                    ("sum(millstream_connections)", "open"),
                    (_rate("millstream_connections_closed_total", "reason"), "closed: {{reason}}"),
                ),
            ),
            Panel(
                "Memory",
                "bytes",
                (
                    ("process_resident_memory_bytes", "{{instance}} {{job}}"),
                    ("sum(millstream_unsynced_bytes)", "not yet synced"),
                    ("sum(millstream_request_memory_bytes)", "requests on their way"),
                ),
            ),
            Panel(
                "Open transactions",
                "s",
                (("max(millstream_oldest_transaction_seconds)", "the oldest"),),
            ),
        ),
    ),
    (
        "Jobs",
        (
            Panel(
                "Lag in time",
                "s",
                (
                    (
                        "max by (job_name, source) (millstream_job_lag_seconds)",
                        "{{job_name}} {{source}}",
                    ),
                ),
            ),
            Panel(
                "Lag in records",
                "short",
                (
                    (
                        "sum by (job_name, source) (millstream_job_lag_records)",
                        "{{job_name}} {{source}}",
                    ),
                ),
            ),
            Panel(
                "Rows read",
                "cps",
                ((_rate("millstream_job_rows_total", "job_name"), "{{job_name}}"),),
            ),
            Panel("Last batch", "s", (("millstream_job_batch_seconds", "{{job_name}}"),)),
            Panel(
                "State",
                "bytes",
                (("sum by (job_name) (millstream_job_state_bytes)", "{{job_name}}"),),
            ),
            Panel(
                "Restarts in an hour, late events",
                "short",
                (
                    (
                        "sum by (job_name) (increase(millstream_job_restarts_total[1h]))",
                        "restarts: {{job_name}}",
                    ),
                    ("sum by (job_name) (millstream_job_late_events)", "late: {{job_name}}"),
                ),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    return {
        "uid": "millstream",
        "title": "Millstream",
        "tags": ["millstream"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": _panels(),
    }


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    y = 0
    for title, panels in ROWS:
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        found.append({"id": len(found) + 1, "type": "row", "title": title, "gridPos": place})
        y += 1
        for start in range(0, len(panels), COLUMNS // WIDTH):
            for column, panel in enumerate(panels[start : start + COLUMNS // WIDTH]):
                place = {"x": column * WIDTH, "y": y, "w": WIDTH, "h": HEIGHT}
                found.append({"id": len(found) + 1, **_panel(panel), "gridPos": place})
            y += HEIGHT
    return found


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {"refId": ref, "datasource": DATASOURCE, "expr": expr, "legendFormat": legend}
            for ref, (expr, legend) in zip("ABC", panel.queries, strict=False)
        ],
    }


def to_json() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(to_json(), encoding="utf-8")
