"""Streams for tests of operators: a directory of files, one for each batch.

Two feeds of one query go in step: its batch N reads file N of each. No broker is needed, the same
rows can be read as a static frame, and a run over what is there now ends by itself.
"""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.streaming.query import StreamingQuery

from millstream.processing.reading.event_time import mark_event_time
from tests.spark.steps import WITHIN_S

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
BEAT = "beat"


def noon(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def seconds_of(moment: datetime | None) -> float | None:
    """Rows of Spark have local times without a zone."""
    return None if moment is None else (moment.astimezone(UTC) - NOON).total_seconds()


class Feed:
    """Rows batch by batch. A row whose `beat` is its event time only tells the time."""

    def __init__(self, spark: SparkSession, directory: Path, schema: str) -> None:
        directory.mkdir()
        self._spark = spark
        self._directory = directory
        self._schema = f"{schema}, {BEAT} TIMESTAMP"
        self._batches = 0

    def add(self, *rows: Mapping[str, Any]) -> None:
        """One more batch. Files are read in the order of their times."""
        self._batches += 1
        file = self._directory / f"{self._batches:06}.json"
        unseen = file.with_name(f".{file.name}")
        unseen.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(unseen, (1e9 + self._batches, 1e9 + self._batches))
        unseen.rename(file)

    def stream(self, *, event_time: str | None = None, lateness: str = "0 seconds") -> DataFrame:
        reader = self._spark.readStream.name(self._directory.name).schema(self._schema)
        frame = reader.option("maxFilesPerTrigger", 1).json(str(self._directory))
        if event_time is None:
            return frame.drop(BEAT)
        timed = mark_event_time(frame.withWatermark(event_time, lateness), event_time)
        # As in frames.py: nothing may be filtered below the watermark.
        is_event = ~F.col(event_time).eqNullSafe(F.col(BEAT)) & (F.spark_partition_id() >= 0)
        return timed.filter(is_event).drop(BEAT)

    def static(self, *, event_time: str | None = None) -> DataFrame:
        frame = self._spark.read.schema(self._schema).json(str(self._directory))
        rows = frame.filter(F.col(BEAT).isNull()).drop(BEAT)
        return mark_event_time(rows, event_time) if event_time else rows


@dataclass(frozen=True)
class Run:
    """What a stream gave: its rows by batch, and what was counted on the way."""

    batches: list[list[Row]]
    counts: Counter[str]

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]


def run_to_the_end(frame: DataFrame, checkpoint: Path, *, mode: str = "append") -> Run:
    """Run a stream over all that is there now."""
    batches: list[list[Row]] = []

    def keep(batch: DataFrame, _number: int) -> None:
        batches.append(batch.collect())

    writer = frame.writeStream.foreachBatch(keep).outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(WITHIN_S), f"not done in {WITHIN_S} s"
    return Run(batches, _counts_of(query))


def _counts_of(query: StreamingQuery) -> Counter[str]:
    counts: Counter[str] = Counter()
    for progress in query.recentProgress:
        for observed in progress.observedMetrics.values():
            counts.update({name: count or 0 for name, count in observed.asDict().items()})
    return counts
