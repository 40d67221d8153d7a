"""Rows whose group is null, left out of an aggregate and counted.

A view has no row of a null key, so a job that brings it one stops. The count is in the progress of
the job's query, among its observed metrics.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import BadDeclaration
from millstream.processing.operators.changelog_columns import is_coming, quoted
from millstream.processing.operators.row_filter import rows_that_meet

NullGroups = Literal["keep", "leave_out"]
NULL_GROUPS = ("keep", "leave_out")


def with_groups(
    frame: DataFrame, by: Sequence[str], null_groups: str, key: Sequence[str] | None = None
) -> DataFrame:
    """The rows whose group has no null, if the others are to be left out.

    `key` is a table's: a row that comes to have a null leaves its group.
    """
    if null_groups not in NULL_GROUPS:
        raise BadDeclaration(f"null_groups={null_groups!r}: one of {', '.join(NULL_GROUPS)}")
    if null_groups == "keep" or not by:
        return frame
    has_null = reduce(or_, (quoted(name).isNull() for name in by))
    counted = frame.observe(metric_of(by), _count(is_coming(frame) & has_null))
    return counted.filter(~has_null) if key is None else rows_that_meet(counted, ~has_null, key)


def _count(condition: Column) -> Column:
    return F.count_if(condition).alias("rows_left_out")


def metric_of(by: Sequence[str]) -> str:
    return f"null_groups({', '.join(by)})"
