"""Steps that the tests of topics in Spark share: run a stream, order its rows, catch its error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.query import StreamingQuery

WITHIN_S = 120


def run_to_the_end(frame: DataFrame, checkpoint: Path) -> list[list[Row]]:
    """Run a stream over all that is there now; the rows of each batch, in order of offset."""
    batches: list[list[Row]] = []

    def keep(batch: DataFrame, _number: int) -> None:
        batches.append(batch.collect())

    query = start(frame, checkpoint, keep, availableNow=True)
    assert query.awaitTermination(WITHIN_S), f"not done in {WITHIN_S} s"
    return batches


def start(
    frame: DataFrame, checkpoint: Path, keep: Callable[[DataFrame, int], None], **trigger: Any
) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start() if trigger else writer.start()


def values_in(batches: list[list[Row]]) -> list[bytes]:
    """In the order of the log."""
    rows = [row for batch in batches for row in batch]
    rows.sort(key=lambda row: (row.topic, row.partition, row.offset))
    return [bytes(row.value) for row in rows]


def error_of(run: Callable[[], object]) -> str:
    """What a run of Spark that must fail says."""
    with pytest.raises(Exception) as caught:  # Spark's own types vary
        run()
    return str(caught.value)


def numbered(count: int, *, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]
