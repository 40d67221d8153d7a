"""The rows of a table that meet a condition, as changes: one that no longer does is deleted.

Spark's own filter would lose the change by which a row stops to meet it, and every delete.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.changes import CHANGE, DELETE, ORDER, UPSERT
from millstream.processing.operators.changelog_columns import FILTERED, quoted


def rows_that_meet(frame: DataFrame, condition: Column, key: Sequence[str]) -> DataFrame:
    """Keeps nothing: a delete may be of a row that was never among those that meet it."""
    meets = F.coalesce(condition, F.lit(False))
    said = F.coalesce(CHANGE, F.lit(UPSERT)) if CHANGE in frame.columns else F.lit(UPSERT)
    passed = frame.filter(said.isin(UPSERT, DELETE) | meets)
    change = F.when((said == UPSERT) & ~meets, DELETE).otherwise(said)
    return _with_bare_deletes(passed, change, key)


def _with_bare_deletes(frame: DataFrame, change: Column, key: Sequence[str]) -> DataFrame:
    """A delete has its key alone."""
    kept = {*key, ORDER}
    made = {
        field.name: F.when(change != DELETE, quoted(field.name))
        for field in frame.schema
        if field.name not in kept
    } | {CHANGE: change}
    noted = {field.name: field.metadata for field in frame.schema}
    noted[CHANGE] = noted.get(CHANGE, {}) | {FILTERED: True}
    return frame.select(
        *(
            made[name].alias(name, metadata=noted.get(name, {})) if name in made else quoted(name)
            for name in dict.fromkeys((*frame.columns, CHANGE))
        )
    )
