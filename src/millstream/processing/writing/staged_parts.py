"""A large batch into a view from Spark's tasks, each its part: no process holds all of it.

For stores that can keep parts beside the view and apply them at once (`StagingWriter`). Rows are
spread by the view's key, so that all changes of a key are in one part.
"""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.ports import BatchReceipt, Staging, StagingWriter

# Below, one process is as quick: parts cost connections and tables of their own.
STAGED_RECORDS_MIN = 100_000
FACTS_DDL = "facts BINARY"


def write_in_parts(
    writer: StagingWriter, receipt: BatchReceipt, batch: DataFrame, key: tuple[str, ...]
) -> bool:
    columns = [F.col("`" + name.replace("`", "``") + "`") for name in key]
    tasks = max(1, batch.sparkSession.sparkContext.defaultParallelism)
    spread = batch.repartition(tasks, *columns)
    staged = spread.mapInArrow(staging_part(writer.staging(receipt)), FACTS_DDL).collect()
    return writer.commit(receipt, [pickle.loads(row.facts) for row in staged])


def staging_part(
    staging: Staging,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        facts: Any = staging.stage(_part(), batches)
        for _ in batches:  # operators before keep their state when their last row was asked for
            pass
        yield pa.RecordBatch.from_pydict({"facts": [pickle.dumps(facts)]})

    return stage


def _part() -> int:
    task = TaskContext.get()
    assert task is not None, "Spark runs this in a task"
    return task.partitionId()
