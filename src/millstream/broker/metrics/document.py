"""docs/metrics.md, made from the families.

python -m millstream.broker.metrics.document > docs/metrics.md
"""

import sys
from collections.abc import Iterator
from itertools import groupby

import millstream.broker.metrics.families  # noqa: F401 - fills the table of families
from millstream.broker.metrics.family import FAMILIES, Family

INTRODUCTION = """\
# Metrics

<!-- Generated: python -m millstream.broker.metrics.document > docs/metrics.md -->

The broker serves what it counts for [Prometheus](https://prometheus.io), if it is told where:

```sh
millstream broker --metrics-listen 127.0.0.1:9644
curl http://127.0.0.1:9644/metrics
curl http://127.0.0.1:9644/healthz    # ok, or 503 when the broker is about to stop
```

Without `metrics_listen` nothing is served: the broker needs no second port. There is no login, and
names of topics and groups are in the text, so beyond loopback it is served only if `open_metrics`
says so in words (the broker's refusal has the sentence). Counting is always on, and costs 1 to 2
µs for each request. A scrape takes 0.1 to 0.2 s of CPU for 1,000 partitions, in slices of a few
milliseconds between which clients are served (`bench/metrics.py`).

Of 32 connections at one time one address has 8 at most, each for one request that comes within
5 s. Beyond that `/metrics` is answered with 503, and `/healthz` still with what is so, if it is
asked for within a second; of such connections there are as many again.

```yaml
scrape_configs:
  - job_name: millstream
    scrape_interval: 15s
    static_configs:
      - targets: ["127.0.0.1:9644"]
```

In Python: `Broker(metrics_listen="127.0.0.1:0")`, then `broker.metrics_url`.

Counters start at 0 with the broker. Of one family at most 20,000 series are shown;
`millstream_metrics_left_out_series` says of which family how many are left out. The process's CPU,
memory and file descriptors are there too, under the names that Prometheus' clients give them
(`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds`).
"""

ALERTS = """\
## Alerts worth having

```yaml
groups:
  - name: millstream
    rules:
      - alert: BrokerDown
        expr: up{job="millstream"} == 0
        for: 1m
      - alert: PartitionReadOnly          # a write or sync failed: look at the disk, restart
        expr: millstream_read_only_partitions > 0
      - alert: PartitionDamaged           # restore its files from a copy
        expr: millstream_damaged_partitions > 0
      - alert: DiskFull                   # producers wait until there is room
        expr: millstream_disk_full > 0
      - alert: DiskFillsUp
        expr: predict_linear(millstream_disk_free_bytes[1h], 4 * 3600) < 0
        for: 15m
      - alert: SlowSyncs                  # producers with acks=all wait for them
        expr: |
          histogram_quantile(0.99, rate(millstream_sync_duration_seconds_bucket[5m])) > 0.5
        for: 10m
      - alert: LoopIsBusy                 # everything waits: too much load for one core
        expr: |
          histogram_quantile(0.9, rate(millstream_loop_delay_seconds_bucket[5m])) > 0.25
        for: 10m
      - alert: GroupFallsBehind
        expr: |
          sum by (group, topic) (millstream_group_lag_records) > 10000
          and sum by (group, topic) (delta(millstream_group_lag_records[10m])) > 0
        for: 10m
      - alert: GroupWithoutMembers        # it has read, and nobody reads any more
        expr: |
          sum by (group) (millstream_group_lag_records) > 0
          unless on (group) millstream_group_members > 0
        for: 10m
      - alert: HangingTransaction         # read_committed consumers stand still behind it
        expr: millstream_oldest_transaction_seconds > 900
      - alert: RequestsFail
        expr: |
          rate(millstream_request_errors_total{error="KAFKA_STORAGE_ERROR"}[5m]) > 0
          or rate(millstream_request_errors_total{error="UNKNOWN_SERVER_ERROR"}[5m]) > 0
      - alert: ConnectionsRefused
        expr: increase(millstream_connections_closed_total{reason="refused"}[5m]) > 0
```
"""


def to_markdown() -> str:
    sections = groupby(FAMILIES, key=lambda family: family.function.__module__)
    return "\n".join([INTRODUCTION, *(_section(*item) for item in sections), ALERTS])


def _section(module: str, families: Iterator[Family]) -> str:
    title = str(sys.modules[module].__doc__).splitlines()[0]
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|", *map(_row, families)]
    return "\n".join([f"## {title.removesuffix('.')}", "", *rows]) + "\n"


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"


if __name__ == "__main__":
    print(to_markdown(), end="")
