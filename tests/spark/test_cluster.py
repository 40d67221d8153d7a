"""One application, unchanged, on one machine and on a cluster: the output is the same.

The one machine has an embedded broker and Spark in the application's process; the cluster is Apache
Kafka and a Spark standalone cluster, a master and two workers.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream import App
from millstream.processing.reading.range_reader import RangeReader
from millstream.processing.reading.stream_planner import batch_ranges
from millstream.processing.reading.topic_read import TopicRead
from tests.support.apache_kafka import QUICK_START_OPTIONS, ApacheKafka
from tests.support.spark_cluster import WORKERS, SparkCluster

APPLICATION = Path(__file__).parents[2] / "examples" / "clicks.py"
CLICKS = 400
RUNS = 2
PAGES = ("/", "/search", "/cart", "/health")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUN_SECONDS_MAX = 500

Output = tuple[dict[tuple[str, datetime], int], list[tuple[bytes, dict[str, Any]]]]


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_an_application_gives_the_same_on_one_machine_and_on_a_cluster(tmp_path: Path) -> None:
    one_machine = {"MILLSTREAM_SPARK": "local[2]", "MILLSTREAM_SPARK_QUICK_START": "true"}
    alone = output_of(tmp_path / "alone", one_machine)
    with ApacheKafka(jvm_options=QUICK_START_OPTIONS) as kafka, SparkCluster() as cluster:
        place = {"MILLSTREAM_BROKERS": kafka.bootstrap, **cluster.environment}
        together = output_of(tmp_path / "together", place)
        assert cluster.executors_used() == RUNS * WORKERS
    assert alone == together == expected_output()


def output_of(directory: Path, environment: Mapping[str, str]) -> Output:
    """Clicks in several runs: each goes on from the checkpoint of the one before."""
    directory.mkdir()
    for some in batched(CLICKS // RUNS):
        with application(directory, environment) as app:
            app.publish("clicks", [click(number) for number in some])
        run(directory, environment)
    with application(directory, environment) as app:
        counts = {
            (row["page"], row["window"]["start"]): row["count"]
            for row in app.view("clicks_a_minute").scan()
        }
        return counts, visits_in(app.bootstrap)


def batched(count: int) -> list[range]:
    return [range(number * count, (number + 1) * count) for number in range(RUNS)]


def application(directory: Path, environment: Mapping[str, str]) -> App:
    """The same application in this process, to publish and to read."""
    app = App(
        "clicks",
        data=directory / "clicks.millstream",
        brokers=environment.get("MILLSTREAM_BROKERS"),
    )
    app.topic("clicks", schema="id BIGINT, page STRING, at TIMESTAMP", partitions=2)
    return app


def run(directory: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "run", str(APPLICATION), "--once"],
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def visits_in(bootstrap: str) -> list[tuple[bytes, dict[str, Any]]]:
    read = TopicRead(brokers=bootstrap, topics=("visits",))
    rows = [
        (message.key() or b"", json.loads(message.value() or b"null"))
        for part, within in batch_ranges(read)
        for messages in RangeReader(read).read(part, within)
        for message in messages
    ]
    return sorted(rows, key=lambda row: int(row[1]["id"]))


def click(number: int) -> dict[str, Any]:
    at = NOON + timedelta(seconds=number)
    return {"id": number, "page": PAGES[number % len(PAGES)], "at": at}


def expected_output() -> Output:
    counts: dict[tuple[str, datetime], int] = {}
    visits = []
    for number in range(CLICKS):
        page, at = click(number)["page"], click(number)["at"]
        place = (page, at.replace(second=0))
        counts[place] = counts.get(place, 0) + 1
        if page != "/health":
            visits.append((page.encode(), {"page": page, "id": number}))
    return counts, visits
