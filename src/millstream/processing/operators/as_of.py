"""As-of joins in Spark: `as_of_state.py` on streams and, all at once, on static frames."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.changes import CHANGE
from millstream.base.declared import BadDeclaration, duration_ms
from millstream.processing.operators.as_of_state import LATE_VERSION_POLICIES, AsOf, LateVersions
from millstream.processing.operators.changelog_columns import (
    FILTERED,
    columns_of,
    key_of,
    mark_changes,
    mark_rows,
)
from millstream.processing.operators.enrichment_state import HOWS, How
from millstream.processing.operators.join_columns import (
    On,
    join_key,
    require_alike,
    require_changelog,
    require_key,
    require_one_of,
)
from millstream.processing.operators.stream_table_operator import (
    LATE_VERSIONS,
    Sides,
    run_join,
    side_by_side,
)
from millstream.processing.operators.table_frames import joined_table, only_rows
from millstream.processing.operators.version_time import version_time_of
from millstream.processing.reading.event_time import event_time_of


def as_of(
    stream: DataFrame,
    table: DataFrame,
    *,
    on: On,
    at: str | None = None,
    versions: str | None = None,
    late_versions: LateVersions = "ignore",
    keep: str | float = 0,
    how: How = "left",
) -> DataFrame:
    """Each row of `stream` with the version of the table's row that held at its time `at`.

    That is the last one valid from then or earlier; `versions` names the table's column that says
    from when on. "ignore": a row is given once, when the watermark has reached its time; versions
    that come later are counted. "correct": it is given at once, and again, as an upsert or a
    delete, when a version changes its answer, until the watermark is `keep` beyond its time;
    `keep` is of "correct" alone.
    """
    require_one_of(how, HOWS, what="how")
    require_one_of(late_versions, LATE_VERSION_POLICIES, what="late_versions")
    stream, table = only_rows(stream, "stream side"), joined_table(table)
    require_changelog(table.columns)
    require_alike(stream=stream.isStreaming, table=table.isStreaming)
    sides = Sides(
        stream=stream,
        table=table,
        key=join_key(on, stream.columns, table.columns),
        at=_time_of(stream, at),
        versions=_versions_of(table, versions),
    )
    require_key(sides.key, key_of(table), versions=sides.versions)
    _require_whole(table, sides.versions)
    join = AsOf(how=how, late_versions=late_versions, keep_ms=duration_ms(keep, what="keep"))
    joined = _on_streams(join, sides) if stream.isStreaming else _on_batches(join, sides)
    return mark_rows(joined) if late_versions == "ignore" else mark_changes(joined)


def _require_whole(table: DataFrame, versions: str | None) -> None:
    """Where a version is no row of its own, one that was filtered out says nothing of its time."""
    is_filtered = bool(table.schema[CHANGE].metadata.get(FILTERED))
    if is_filtered and versions not in key_of(table):
        raise BadDeclaration(
            "the versions of the table were filtered, and a version that is left out would take "
            f"the earlier ones along. Join first, then filter; or declare {versions} as a part of "
            "the table's key"
        )


def _time_of(stream: DataFrame, at: str | None) -> str:
    """A stream is judged by its event time alone: no other column says when all has come."""
    event_time = event_time_of(stream)
    found = at or event_time
    if found is None or found not in stream.columns:
        raise BadDeclaration(f"at={at!r} is no column of the stream ({', '.join(stream.columns)})")
    if stream.isStreaming and found != event_time:
        raise BadDeclaration(
            f"at={found!r} is not the event time of the stream ({event_time}): declare its topic "
            f"with event_time={found!r}"
        )
    return found


def _versions_of(table: DataFrame, versions: str | None) -> str:
    found = versions or version_time_of(table)
    if found is None or found not in table.columns:
        raise BadDeclaration(
            f"versions={versions!r}: name the column that says since when a row holds, here or "
            f"with version_time= of the table ({', '.join(table.columns)})"
        )
    return found


def _on_streams(join: AsOf, sides: Sides) -> DataFrame:
    """A row that is given once is given by the batch whose watermark reaches it: it has one still.

    What was late is counted in the job's progress, under a name made of the columns.
    """
    is_once = join.late_versions == "ignore"
    joined = run_join(join, sides, in_time=True, keeps_watermark=is_once)
    counted = joined.observe(metric_of(sides), F.sum(LATE_VERSIONS).alias("late_versions"))
    given = counted.filter(F.col("row").isNotNull())
    return side_by_side(given, sides, with_change=not is_once)


def _on_batches(join: AsOf, sides: Sides) -> DataFrame:
    """All versions are known, so every row has its answer."""
    at_once = AsOf(how=join.how, late_versions="correct")
    joined = run_join(at_once, sides, in_time=False)
    return side_by_side(joined, sides, with_change=join.late_versions == "correct")


def metric_of(sides: Sides) -> str:
    return f"late_versions({', '.join(sides.key.left)}: {', '.join(columns_of(sides.table))})"
