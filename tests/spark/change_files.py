"""Changes of a table in files, one for each batch of a stream: streams without a broker."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millstream.base.changes import CHANGE, DELETE, ORDER, UPSERT

Row = Mapping[str, Any]


@dataclass
class ChangeFiles:
    """A changelog in a directory: `add` writes the next batch."""

    directory: Path
    schema: str
    batches: int = 0
    changes: int = 0

    def __post_init__(self) -> None:
        self.directory.mkdir()

    def add(self, *changes: Row) -> None:
        """Spark takes files by their age, one for each batch."""
        hidden = self.directory / f"_{self.batches}"
        hidden.write_text("\n".join(json.dumps(self._numbered(change)) for change in changes))
        self.batches += 1
        os.utime(hidden, (self.batches, self.batches))
        hidden.rename(self.directory / f"{self.batches}.json")

    def _numbered(self, change: Row) -> Row:
        self.changes += 1
        return {ORDER: self.changes, CHANGE: UPSERT, **change}

    def stream(self, session: SparkSession) -> DataFrame:
        files = session.readStream.schema(self._ddl).option("maxFilesPerTrigger", 1)
        return files.name(self.directory.name).json(str(self.directory))

    def batch(self, session: SparkSession) -> DataFrame:
        return session.read.schema(self._ddl).json(str(self.directory))

    @property
    def _ddl(self) -> str:
        return f"{self.schema}, {CHANGE} STRING, {ORDER} BIGINT"


def gone(**key: Any) -> Row:
    return {**key, CHANGE: DELETE}
