"""Turns results into a table for the terminal and into docs/bench.md."""

import os
import platform
import subprocess
from datetime import date
from pathlib import Path
from statistics import median

import confluent_kafka
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tests.support.kafka_jars import KAFKA_VERSION, java_command

from bench.results import Line, Results
from millstream._version import __version__

TABLE_HEAD = (
    "measured | mode | unit | ours | Kafka | ratio | goal | ",
    "---|---|---|---|---|---|---|---",
)
VERDICTS = {True: "met", False: "not met", None: ""}

HEAD = """\
# Benchmark against Apache Kafka

Both brokers on one machine, the same client, in alternation. These are figures of one machine on
one day: read the ratios, and measure on yours before you rely on any of it.

    python -m bench.against_kafka            # everything: about {minutes:.0f} minutes
    python -m bench.against_kafka --quick    # small counts, to see that it works
    python -m bench.against_kafka --only latency --rounds 5

It needs Java 17+ and Maven; it fetches Apache Kafka itself on the first run. Each question has its
file in `bench/`, whose head says what exactly is measured.

"""

METHOD = """\

- The sides take turns (ours, Kafka, ours, Kafka, ...), {rounds} rounds, each on a fresh topic. A
  cell is the median, with the lowest and the highest in brackets. A ratio is ours / Kafka.
- *synced*: the acknowledgement comes after the sync to disk: our default, and `flush.messages=1`
  for Kafka's topic. *relaxed*: the sync comes later: `--durability relaxed`, and Kafka's default.
- Before measuring, each broker is warmed up with {warm_up_records:,} small records, a fifth as
  many large ones and two seconds of single-record requests, in each mode, so that Kafka's JVM has
  compiled what it runs. Kafka's heap is 1 GB; its other settings are the defaults, apart from
  what a single node needs and a shorter wait before the files of a deleted topic go.
- Client and brokers share the cores: where the client is the limit, both sides look alike, and a
  broker with several busy threads gets a larger share of a crowded machine than one with one.
- How much sharing one sync among many requests gains depends on what a sync costs on the disk: on
  a slow one the synced lines differ more, on a fast one less.
"""


def print_table(results: Results) -> None:
    table = Table(title=escape("ours against Apache Kafka: median [lowest - highest]"))
    for column in ("measured", "mode", "unit", "ours", "Kafka", "ratio", "goal", ""):
        table.add_column(column, justify="left" if column in ("measured", "goal") else "right")
    for line in results.lines:
        table.add_row(*(escape(cell) for cell in _cells(line)))
    Console(width=None if os.isatty(1) else 160).print(table)


def write_markdown(
    path: Path,
    results: Results,
    *,
    rounds: int,
    warm_up_records: int,
    elapsed_s: float,
    others_percent: float,
) -> None:
    rows = [" | ".join(_cells(line)) for line in results.lines]
    table = [
        "measured | mode | unit | ours | Kafka | ratio | goal | ",
        "---|---|---|---|---|---|---|---",
    ]
    text = HEAD.format(minutes=max(1.0, elapsed_s / 60))
    text += _machine() + f" Others used {others_percent:.0f} % of the CPU meanwhile.\n\n"
    text += "\n".join(table + rows) + "\n"
    text += METHOD.format(rounds=rounds, warm_up_records=warm_up_records)
    path.write_text(text)


def _cells(line: Line) -> list[str]:
    metric = line.metric
    return [
        metric.name,
        metric.mode or "",
        metric.unit,
        _figures(line.ours),
        _figures(line.kafka),
        f"{line.ratio:.2f}",
        metric.goal.text if metric.goal else "",
        VERDICTS[line.is_met],
    ]


def _figures(samples: list[float]) -> str:
    if len(samples) == 1:
        return _number(samples[0])
    return f"{_number(median(samples))} [{_number(min(samples))} - {_number(max(samples))}]"


def _number(value: float) -> str:
    """Three digits that mean something: 0.123, 12.3, 12,345."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _machine() -> str:
    librdkafka = confluent_kafka.libversion()[0]
    kernel = ".".join(platform.release().split(".")[:2])
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"Measured {date.today().isoformat()} on {os.cpu_count()} cores, {memory_gb:.0f} GB, "
        f"{platform.system()} {kernel}: Millstream {__version__} on Python "
        f"{platform.python_version()}, Apache Kafka {KAFKA_VERSION} on {_java_version()}, client "
        f"confluent-kafka {confluent_kafka.version()} (librdkafka {librdkafka})."
    )


def _java_version() -> str:
    done = subprocess.run([java_command(), "-version"], capture_output=True, text=True, timeout=30)
    return done.stderr.splitlines()[0].replace('"', "")
