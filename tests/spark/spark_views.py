"""Definitions of views (tests/support/view_definitions.py) as frames, streams or static ones."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.processing.operators import changelog
from millstream.processing.operators.table_join import tables
from tests.support.view_definitions import (
    AtLeast,
    Definition,
    Join,
    Remainder,
    Renamed,
    Table,
    Top,
    Totals,
)

Frames = Mapping[str, DataFrame]


def frame_of(definition: Definition, frames: Frames) -> DataFrame:
    match definition:
        case Table(name, _, key):
            return changelog.mark_key(frames[name], key)
        case AtLeast(of, column, least):
            return changelog.where(frame_of(of, frames), F.col(column) >= least)
        case Remainder(of, column, name):
            return frame_of(of, frames).withColumn(name, F.col(column) % 2)
        case Renamed(of):
            renamed = {name: definition.new(name) for name in of.columns}
            return frame_of(of, frames).withColumnsRenamed(renamed)
        case Totals(of, by, aggregates):
            return changelog.aggregate(frame_of(of, frames), by=by, of=aggregates)
        case Top(of, count, by, order_by, rank):
            return changelog.top(frame_of(of, frames), count, order_by=order_by, by=by, rank=rank)
        case Join(left, right, on, how):
            sides = frame_of(left, frames), frame_of(right, frames)
            return tables(*sides, dict([on]), how=how)  # type: ignore[arg-type]
    raise AssertionError(definition)
