"""Timestamps cross into Python as numbers, and come back as timestamps.

A Python datetime from Spark is a wall clock of the worker's zone: an hour of each autumn is there
twice. Microseconds since 1970 are exact, and cheaper. Only whole columns: a timestamp within a
struct or an array crosses as Spark has it.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.types import DataType, LongType, TimestampType


def to_plain(column: Column, type_: DataType) -> Column:
    return F.unix_micros(column) if isinstance(type_, TimestampType) else column


def from_plain(column: Column, type_: DataType) -> Column:
    return F.timestamp_micros(column) if isinstance(type_, TimestampType) else column


def plain_type(type_: DataType) -> DataType:
    return LongType() if isinstance(type_, TimestampType) else type_
