"""A stream enriched with a table, in Spark: `enrichment_state.py` on streams, a join on batches."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.declared import BadDeclaration, duration_ms
from millstream.processing.operators.changelog import latest
from millstream.processing.operators.changelog_columns import key_of, mark_rows, quoted
from millstream.processing.operators.enrichment_state import HOWS, Enrichment, How
from millstream.processing.operators.join_columns import (
    On,
    join_key,
    require_alike,
    require_changelog,
    require_key,
    require_one_of,
)
from millstream.processing.operators.stream_table_operator import (
    Sides,
    key_columns,
    row_of,
    run_join,
    side_by_side,
)
from millstream.processing.operators.table_frames import joined_table, only_rows
from millstream.processing.reading.event_time import event_time_of


def enrich(
    stream: DataFrame,
    table: DataFrame,
    *,
    on: On,
    how: How = "left",
    wait: str | float | None = None,
) -> DataFrame:
    """Each row of `stream` with the table's row of its key, as it is when the row comes.

    Within a batch the table's changes come first; the first batch holds the whole table. A row that
    finds none has nulls there ("left") or is left out ("inner"); with `wait` it first waits for
    one, until the watermark has passed its event time by that much. Of static frames the table is
    as it is at the end, and there is nothing to wait for.
    """
    require_one_of(how, HOWS, what="how")
    stream, table = only_rows(stream, "stream side"), joined_table(table)
    require_changelog(table.columns)
    require_alike(stream=stream.isStreaming, table=table.isStreaming)
    sides = Sides(
        stream=stream,
        table=table,
        key=join_key(on, stream.columns, table.columns),
        at=event_time_of(stream),
    )
    require_key(sides.key, key_of(table))
    join = Enrichment(how=how, wait_ms=_wait_ms(wait, sides.at))
    run = _on_streams if stream.isStreaming else _on_batches
    return mark_rows(run(join, sides))


def _wait_ms(wait: str | float | None, at: str | None) -> int | None:
    if wait is None:
        return None
    if at is None:
        raise BadDeclaration(
            f"wait={wait!r} goes by event time, and the stream has none: declare its topic with "
            "event_time="
        )
    return duration_ms(wait, what="wait")


def _on_streams(join: Enrichment, sides: Sides) -> DataFrame:
    """Who waits may be given after the watermark: only without that does the result have one."""
    is_timed = sides.at is not None
    joined = run_join(
        join, sides, in_time=is_timed, keeps_watermark=is_timed and join.wait_ms is None
    )
    return side_by_side(joined, sides)


def _on_batches(join: Enrichment, sides: Sides) -> DataFrame:
    """The table as its changes left it."""
    rows = latest(sides.table, sides.key.right)
    at = quoted(sides.at) if sides.at else F.lit(None).cast("timestamp")
    lefts = sides.stream.select(
        *key_columns(sides.key.left, side="left"), at.alias("at"), row_of(sides.stream).alias("row")
    )
    rights = rows.select(
        *key_columns(sides.key.right, side="right"), row_of(rows).alias("table_row")
    )
    places = range(len(sides.key.left))
    equal = [F.col(f"left_{place}") == F.col(f"right_{place}") for place in places]
    return side_by_side(lefts.join(rights, equal, join.how), sides)
