"""Question: what does our layer of jobs cost over plain PySpark on the same source?

    python -m bench.job_layer [--records 2000000] [--rounds 5]

The same windowed count of the same JSON records, as one run of a stream over all that is there,
into a function that does nothing with its batches: once as a job of an App, with its watermark,
late events, progress, receipts and supervision, and once as plain PySpark reads it through our
source. One broker, one session, in turns; the first round is not counted. A part of the cost is
paid once for each start, so the batches are timed alone too, by Spark's own clock.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from bench.spark_source import PARTITIONS, SCHEMA, TOPIC, counted, fill
from millstream import App, Broker
from millstream.processing.reading.topic_read import TopicRead
from millstream.processing.reading.topic_source import stream_topics
from millstream.processing.session import open_session
from millstream.values.json_decoder import JsonDecoder

OVERHEAD_PERCENT_MAX = 5.0
# Spark tells listeners of a batch a moment after it has ended.
LISTENER_SECONDS = 1.0


def drain(batch: DataFrame) -> None:
    batch.write.format("noop").mode("overwrite").save()


def run_plain(session: SparkSession, brokers: str) -> None:
    read = TopicRead(brokers=brokers, topics=(TOPIC,), decoder=JsonDecoder(SCHEMA))
    frame = stream_topics(session, read, name=TOPIC).withWatermark("at", "10 seconds")
    writer = counted(frame).writeStream.outputMode("update").trigger(availableNow=True)
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as checkpoint:
        writer = writer.foreachBatch(lambda batch, _number: drain(batch))
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()


def run_job(brokers: str) -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as directory:
        job_app(brokers, Path(directory)).run(once=True)


def job_app(brokers: str, directory: Path) -> App:
    app = App("bench", data=directory, brokers=brokers)
    app.topic(TOPIC, schema=SCHEMA, event_time="at", lateness="10 seconds")

    @app.sink(lambda rows, _receipt: drain(rows))
    def counts(clicks: Any) -> Any:
        return counted(clicks)

    return app


class BatchSeconds(StreamingQueryListener):
    """How long the batches with rows took that ended since it was last asked."""

    def __init__(self) -> None:
        self._taken_ms = 0

    def taken(self) -> float:
        taken_ms, self._taken_ms = self._taken_ms, 0
        return taken_ms / 1000

    def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802

    def onQueryIdle(self, event: Any) -> None: ...  # noqa: N802

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if event.progress.numInputRows:
            self._taken_ms += event.progress.durationMs["triggerExecution"]


@dataclass
class Taken:
    """Seconds of one side, round by round: of the whole run, and of its batches."""

    whole: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)

    def add(self, run: Callable[[], None], batches: BatchSeconds) -> None:
        started = time.perf_counter()
        run()
        self.whole.append(time.perf_counter() - started)
        time.sleep(LISTENER_SECONDS)
        self.batches.append(batches.taken())


def compare(session: SparkSession, brokers: str, *, records: int, rounds: int) -> None:
    batches = BatchSeconds()
    session.streams.addListener(batches)
    plain, job = Taken(), Taken()
    for _ in range(rounds + 1):
        plain.add(lambda: run_plain(session, brokers), batches)
        job.add(lambda: run_job(brokers), batches)
    print_overhead("batches alone", plain.batches[1:], job.batches[1:], records)
    print_overhead("with the start", plain.whole[1:], job.whole[1:], records)


def print_overhead(what: str, plain: list[float], job: list[float], records: int) -> None:
    plain_s, job_s = median(plain), median(job)
    overhead = 100 * (job_s / plain_s - 1)
    verdict = "met" if overhead < OVERHEAD_PERCENT_MAX else "not met"
    print(
        f"{what:15} plain PySpark {plain_s:5.2f} s {records / plain_s:9,.0f} records/s   "
        f"as a job {job_s:5.2f} s {records / job_s:9,.0f} records/s   "
        f"overhead {overhead:4.1f} % (goal: < {OVERHEAD_PERCENT_MAX:.0f} %: {verdict})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with Broker(durability="relaxed", default_partitions=PARTITIONS) as broker:
        fill(broker.bootstrap, options.records)
        session = open_session("bench", master="local[2]", log_level="off")
        compare(session, broker.bootstrap, records=options.records, rounds=options.rounds)
        session.stop()


if __name__ == "__main__":
    main()
