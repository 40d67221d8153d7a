"""Topics behind the gate of a script: takes the place of `TopicSource`, under its name.

Streams that have no gate beside their checkpoint are read as ever. camelCase is Spark's.
"""

from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from millstream.processing.reading.topic_read import TopicRead, read_from
from millstream.processing.reading.topic_source import StreamReader, TopicSource
from millstream.processing.steps.gate import Entrance, gate_of


class GatedSource(TopicSource):
    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        read = read_from(self.options)
        if not read.checkpoint or not gate_of(read.checkpoint).exists():
            return super().streamReader(schema)
        return GatedReader(read, schema, gate_of(read.checkpoint))


class GatedReader(StreamReader):
    def __init__(self, read: TopicRead, schema: StructType, gate: Path) -> None:
        super().__init__(read, schema)
        self._entrance = Entrance(gate, read.source)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return super().latestOffset(start, limit) if self._entrance.may_enter() else start
