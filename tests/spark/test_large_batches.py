"""Large batches go into a view from Spark's tasks, each its part, where the store takes parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from millstream.base.ports import BatchReceipt
from millstream.processing.writing.staged_parts import write_in_parts


@dataclass
class PartFiles:
    """A staging area of Parquet files; a part may have been staged before."""

    directory: Path

    def stage(self, part: int, batches: Iterator[pa.RecordBatch]) -> Any:
        found = list(batches)
        if not found:
            return None
        path = self.directory / f"{part}.parquet"
        pq.write_table(pa.Table.from_batches(found), path)
        return path


@dataclass
class PartsWriter:
    directory: Path
    committed: list[list[Any]] = field(default_factory=list)

    def staging(self, receipt: BatchReceipt) -> PartFiles:
        return PartFiles(self.directory)

    def commit(self, receipt: BatchReceipt, facts: Sequence[Any]) -> bool:
        self.committed.append([pq.read_table(path) for path in facts if path is not None])
        return True


def test_all_changes_of_a_key_are_in_one_part(spark: SparkSession, tmp_path: Path) -> None:
    writer: Any = PartsWriter(tmp_path)
    receipt = BatchReceipt(job="counts", epoch=1, query="a", batch=0)
    frame = spark.range(1000).selectExpr("id % 50 AS `a key`", "id AS n").repartition(7)
    assert write_in_parts(writer, receipt, frame, ("a key",))
    ((*parts,),) = writer.committed
    keys = [set(part.column("a key").to_pylist()) for part in parts]
    assert sum(map(len, keys)) == len(set.union(*keys)) == 50
    assert sum(part.num_rows for part in parts) == 1000
