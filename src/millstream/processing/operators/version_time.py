"""Which column of a table's frame says since when a row holds: kept in the frame, as metadata."""

from pyspark.sql import DataFrame

VERSION_TIME = "millstream.version_time"


def version_time_of(frame: DataFrame) -> str | None:
    """The column of versions; None when the table has none."""
    marked = [field.name for field in frame.schema if field.metadata.get(VERSION_TIME)]
    return marked[0] if len(marked) == 1 else None


def mark_version_time(frame: DataFrame, column: str) -> DataFrame:
    known = frame.schema[column].metadata
    return frame.withMetadata(column, known | {VERSION_TIME: True})
