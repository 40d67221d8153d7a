"""Every operator of Spark over a table: what it does there, by a case of each.

A case that is right has the same function over the plain table as its proof; one that is refused
names its reason in `REFUSED` (operators/table_plan.py). docs/guides/tables.md has them as a table.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import DoubleType

from millstream.processing.operators.table_plan import REFUSED

Frames = Mapping[str, DataFrame]
Function = Callable[[DataFrame, Frames], DataFrame]
RIGHT = "right"


@dataclass(frozen=True)
class Case:
    """`operator` is what the guide calls it; `verdict` is `RIGHT` or a name of `REFUSED`.

    `of_table` is the function over the plain table, if it is another.
    """

    operator: str
    function: Function
    verdict: str = RIGHT
    key: tuple[str, ...] = ("id",)
    note: str = ""
    of_table: Function | None = None

    @property
    def answer(self) -> str:
        """What the guide says of it."""
        if self.verdict == RIGHT:
            return f"right{self.note and f': {self.note}'}"
        _, why, instead = REFUSED[self.verdict]
        return f"refused: {why}. {instead}"


def guide_lines(cases: Iterable[Case]) -> list[str]:
    """The lines of the guide's table: operators of one answer are in one."""
    operators: dict[str, dict[str, None]] = {}
    for case in cases:
        operators.setdefault(case.answer, {})[case.operator] = None
    return [f"| {', '.join(names)} | {answer} |" for answer, names in operators.items()]


def rank() -> Any:
    return F.row_number().over(Window.partitionBy("name").orderBy("id"))


def same(batches: Any) -> Any:
    return batches


def same_group(rows: Any) -> Any:
    return rows


def with_state(key: Any, rows: Any, state: Any) -> Any:
    return rows


def asked(frame: DataFrame, query: str) -> DataFrame:
    frame.createOrReplaceTempView("table_in_test")
    return frame.sparkSession.sql(query)


half = F.udf(lambda number: None if number is None else number / 2, DoubleType())
unsteady = F.udf(lambda number: number, DoubleType()).asNondeterministic()
ROWS = "id BIGINT, name STRING, amount DOUBLE, tags ARRAY<STRING>, at TIMESTAMP"

PROJECTIONS = [
    Case(
        "`select`",
        lambda t, _: t.select("id", "name"),
        note="`_change` and `_order` are carried along",
    ),
    Case("`drop`", lambda t, _: t.drop("amount", "_change", "_order")),
    Case("`selectExpr`", lambda t, _: t.selectExpr("id", "upper(name) AS name")),
    Case(
        "SQL over a temporary view",
        lambda t, _: asked(t, "SELECT id, name FROM table_in_test WHERE amount > 1"),
    ),
    Case("`withColumn`, `withColumns`", lambda t, _: t.withColumn("tax", F.col("amount") * 2)),
    Case(
        "`withColumnRenamed`, `withColumnsRenamed`",
        lambda t, _: t.withColumnRenamed("id", "number"),
        key=("number",),
    ),
    Case("`toDF`", lambda t, _: t.select("id", "name").toDF("number", "title"), key=("number",)),
    Case(
        "`to`, `withMetadata`, `colRegex`",
        lambda t, _: t.withMetadata("name", {"a": 1}).select(t.colRegex("`(id|name)`")),
    ),
    Case(
        "a key under another type (integers, dates and booleans to wider ones or to text)",
        lambda t, _: t.select(F.col("id").cast("string").alias("id"), "name"),
    ),
    Case("a copy of the key", lambda t, _: t.withColumn("copy", F.col("id"))),
    Case(
        "a copy of the key as the view's",
        lambda t, _: t.withColumn("copy", F.col("id")).drop("id"),
        key=("copy",),
    ),
    Case("a UDF", lambda t, _: t.select("id", half("amount").alias("half"))),
    Case("`na.fill`, `fillna`", lambda t, _: t.na.fill("none").na.fill(0)),
    Case(
        "`na.replace`, `replace` with `subset=`",
        lambda t, _: t.na.replace(["a"], "b", subset=["name"]),
    ),
    Case(
        "`F.window` of a tumbling window, as a column",
        lambda t, _: t.select("id", F.window("at", "1 minute").alias("window")),
    ),
    Case(
        "`current_timestamp()` as a column",
        lambda t, _: t.select("id", (F.current_timestamp() > "2000-01-01").alias("seen")),
        note="the time of the batch that brought the row",
    ),
    Case("`alias`", lambda t, _: t.alias("a").select("a.id", "a.name")),
    Case(
        "a struct of columns", lambda t, _: t.select("id", F.struct("name", "amount").alias("both"))
    ),
]
FILTERS = [
    Case(
        "`filter`, `where`, SQL's `WHERE`",
        lambda t, _: t.filter("amount > 1"),
        note="a row that no longer meets the condition is deleted",
    ),
    Case("`filter` by the key", lambda t, _: t.filter("id > 1")),
    Case(
        "`filter`, then other columns",
        lambda t, _: (
            t.filter("amount > 1")
            .select("id", (F.lit(10) / F.col("amount")).alias("x"))
            .filter("x > 2")
        ),
    ),
    Case(
        "`na.drop`, `dropna`",
        lambda t, _: t.select("id", "name", "amount").na.drop(subset=["amount"]),
    ),
    Case(
        "a condition on the current time",
        lambda t, _: t.filter("at < current_timestamp()"),
        "clock",
    ),
    Case(
        "a condition on a random number",
        lambda t, _: t.filter(F.rand() < 2),
        "nondeterministic",
    ),
    Case("`sampleBy`", lambda t, _: t.sampleBy("id", {1: 0.5}), "nondeterministic"),
    Case(
        "a condition on `_change` or `_order`",
        lambda t, _: t.filter("amount > 1 OR _change = 'delete'"),
        note="that of the row's last change, so that deletes need no mention",
        of_table=lambda t, _: t.filter("amount > 1"),
    ),
    Case(
        "`filter` after the key was left out",
        lambda t, _: t.select("name", "amount").filter("amount > 1"),
        "filter without key",
    ),
]
PLACES = [
    Case(
        "`repartition`, `repartitionById`",
        lambda t, _: t.repartition(2).select("id", "name"),
    ),
    Case("`coalesce`", lambda t, _: t.coalesce(1).select("id", "name")),
    Case("`repartitionByRange`", lambda t, _: t.repartitionByRange(2, "name").select("id", "name")),
    Case(
        "`orderBy`, `sort`",
        lambda t, _: t.orderBy("name").select("id", "name"),
        note="rows have no order in a view",
    ),
    Case(
        "`sortWithinPartitions`", lambda t, _: t.sortWithinPartitions("name").select("id", "name")
    ),
    Case("`hint`", lambda t, _: t.hint("broadcast").select("id", "name")),
    Case(
        "`observe`",
        lambda t, _: t.observe("seen", F.count("id").alias("n")).select("id", "name"),
        note="its metrics are of changes",
    ),
    Case(
        "`cache`, `persist`, `unpersist`", lambda t, _: t.select("id", "name").cache().unpersist()
    ),
    Case("`checkpoint`, `localCheckpoint`", lambda t, _: t.localCheckpoint().select("id", "name")),
    Case(
        "`localCheckpoint` without `_change`",
        lambda t, _: t.select("id", "name").localCheckpoint(),
        "checkpoint",
    ),
    Case("`transform`", lambda t, _: t.transform(lambda one: one.select("id", "name"))),
]
GROUPS = [
    Case(
        "`groupBy`, `groupby`, `agg`, `count` by group",
        lambda t, _: t.groupBy("name").count(),
        "Aggregate",
        ("name",),
    ),
    Case("`agg` of all rows", lambda t, _: t.agg(F.sum("amount").alias("id")), "Aggregate"),
    Case(
        "`rollup`",
        lambda t, _: t.rollup("name").count(),
        "Aggregate",
        ("name",),
    ),
    Case("`cube`", lambda t, _: t.cube("name").count(), "Aggregate", ("name",)),
    Case(
        "`groupingSets`",
        lambda t, _: t.groupingSets([["name"]], "name").count(),
        "Aggregate",
        ("name",),
    ),
    Case("`pivot`", lambda t, _: t.groupBy("id").pivot("name", ["a", "b"]).count(), "Aggregate"),
    Case(
        "a tumbling window in `groupBy`",
        lambda t, _: t.groupBy(F.window("at", "1 minute")).count(),
        "Aggregate",
        ("window",),
    ),
    Case(
        "a hopping window in `groupBy`",
        lambda t, _: t.groupBy(F.window("at", "2 minutes", "1 minute")).count(),
        "Aggregate",
        ("window",),
    ),
    Case(
        "a session window in `groupBy`",
        lambda t, _: t.groupBy(F.session_window("at", "1 minute")).count(),
        "Aggregate",
        ("session_window",),
    ),
    Case(
        "a hopping window as a column",
        lambda t, _: t.select("id", F.window("at", "2 minutes", "1 minute")),
        "Expand",
    ),
    Case(
        "`distinct`, `dropDuplicates` of all columns",
        lambda t, _: t.select("id", "name").distinct(),
        "Deduplicate",
    ),
    Case(
        "`dropDuplicates`, `drop_duplicates`",
        lambda t, _: t.dropDuplicates(["name"]),
        "Deduplicate",
    ),
    Case(
        "`dropDuplicatesWithinWatermark`",
        lambda t, _: t.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["name"]),
        "DeduplicateWithinWatermark",
    ),
    Case("`freqItems`", lambda t, _: t.freqItems(["id"]), "Aggregate"),
    Case("`describe`, `summary`", lambda t, _: t.describe(), "Aggregate"),
    Case(
        "SQL's `GROUP BY`, `HAVING`",
        lambda t, _: asked(
            t, "SELECT name, count(*) FROM table_in_test GROUP BY name HAVING count(*) > 1"
        ),
        "Aggregate",
        ("name",),
    ),
]
SEVERAL = [
    Case(
        "`explode`",
        lambda t, _: t.select("id", F.explode("tags")),
        "Generate",
    ),
    Case("`posexplode`", lambda t, _: t.select("id", F.posexplode("tags")), "Generate"),
    Case("`explode_outer`", lambda t, _: t.select("id", F.explode_outer("tags")), "Generate"),
    Case("`inline`", lambda t, _: t.selectExpr("id", "inline(array(struct(1, 2)))"), "Generate"),
    Case("`stack`", lambda t, _: t.selectExpr("id", "stack(2, 1, 2)"), "Generate"),
    Case(
        "`LATERAL VIEW`",
        lambda t, _: asked(
            t, "SELECT id, tag FROM table_in_test LATERAL VIEW explode(tags) AS tag"
        ),
        "Generate",
    ),
    Case("`unpivot`, `melt`", lambda t, _: t.unpivot("id", ["name"], "what", "value"), "Expand"),
    Case("`union`, `unionAll`", lambda t, f: t.union(f["other"]), "Union"),
    Case("`unionByName`", lambda t, f: t.unionByName(f["other"]), "Union"),
    Case(
        "`union` with a stream",
        lambda t, f: t.select("id", "name").union(f["rows"].select("id", "name")),
        "Union",
    ),
    Case("`intersect`", lambda t, f: t.intersect(f["other"]), "Intersect"),
    Case("`intersectAll`", lambda t, f: t.intersectAll(f["other"]), "Intersect All"),
    Case("`subtract`", lambda t, f: t.subtract(f["other"]), "Except"),
    Case("`exceptAll`", lambda t, f: t.exceptAll(f["other"]), "Except All"),
]
JOINS = [
    Case(f"`join` with a {what}, `{how}`", _join, "Join")
    for what, name in (("table", "other"), ("stream or a static frame", "rows"))
    for how in ("inner", "left", "right", "full", "left_semi", "left_anti")
    for _join in [
        lambda t, f, name=name, how=how: t.join(
            f[name].select("id", F.lit(1).alias("one")), "id", how
        )
    ]
] + [
    Case(
        "`join` of a stream with a table", lambda t, f: f["rows"].join(t.select("id"), "id"), "Join"
    ),
    Case(
        "`nearestByJoin`",
        lambda t, f: t.nearestByJoin(
            f["rows"].select("amount"), f["rows"].amount, 1, "exact", "distance"
        ),
        "NearestByJoin",
    ),
    Case("`zip`", lambda t, _: t.select("id").zip(t.select("name"))),
    Case("`crossJoin`", lambda t, f: t.select("id").crossJoin(f["rows"].select("name")), "Join"),
    Case(
        "`lateralJoin`, `LATERAL`",
        lambda t, _: asked(
            t, "SELECT id, more FROM table_in_test, LATERAL (SELECT id + 1 AS more)"
        ),
        "LateralJoin",
    ),
    Case(
        "`IN (SELECT ...)`",
        lambda t, f: f["rows"].filter(F.col("id").isin(0) | _in_table(t)),
        "subquery",
    ),
    Case("`exists`", lambda t, f: f["rows"].filter(t.select("id").exists()), "subquery"),
    Case(
        "`scalar`",
        lambda t, f: f["rows"].select("id", t.select(F.max("id")).scalar().alias("most")),
        "subquery",
    ),
    Case(
        "a subquery of a stream in a table's column",
        lambda t, f: t.select("id", f["rows"].select(F.max("id")).scalar().alias("most")),
        "subquery",
    ),
    Case(
        "`WITH` in SQL",
        lambda t, _: asked(t, "WITH one AS (SELECT * FROM table_in_test) SELECT id, name FROM one"),
        "WithCTE",
    ),
]
OTHERS = [
    Case("window functions (`over`)", lambda t, _: t.withColumn("place", rank()), "Window"),
    Case("`limit`", lambda t, _: t.limit(1), "GlobalLimit"),
    Case("`offset`", lambda t, _: t.offset(1), "Offset"),
    Case("`zipWithIndex`", lambda t, _: t.zipWithIndex(), "AttachDistributedSequence"),
    Case("`sample`", lambda t, _: t.sample(0.5), "Sample"),
    Case("`randomSplit`", lambda t, _: t.randomSplit([0.5, 0.5], 1)[0], "Sample"),
    Case(
        "`rand` and other columns that differ each time",
        lambda t, _: t.withColumn("x", F.rand()),
        "nondeterministic",
    ),
    Case("`uuid`", lambda t, _: t.withColumn("x", F.expr("uuid()")), "nondeterministic"),
    Case(
        "`monotonically_increasing_id`",
        lambda t, _: t.withColumn("x", F.monotonically_increasing_id()),
        "nondeterministic",
    ),
    Case(
        "a nondeterministic UDF",
        lambda t, _: t.select("id", unsteady("amount")),
        "nondeterministic",
    ),
    Case(
        "a column `_change` of your own",
        lambda t, _: t.withColumn("_change", F.lit("upsert")),
        "_change",
    ),
    Case("a column `_order` of your own", lambda t, _: t.withColumn("_order", F.lit(0)), "_order"),
    Case("`mapInPandas`", lambda t, _: t.mapInPandas(same, t.schema), "MapInPandas"),
    Case("`mapInArrow`", lambda t, _: t.mapInArrow(same, t.schema), "MapInArrow"),
    Case(
        "`applyInPandas`",
        lambda t, _: t.groupBy("id").applyInPandas(same_group, ROWS),
        "FlatMapGroupsInPandas",
    ),
    Case(
        "`applyInArrow`",
        lambda t, _: t.groupBy("id").applyInArrow(same_group, ROWS),
        "FlatMapGroupsInArrow",
    ),
    Case(
        "`cogroup`",
        lambda t, f: (
            t.groupBy("id").cogroup(f["other"].groupBy("id")).applyInPandas(lambda a, _b: a, ROWS)
        ),
        "FlatMapCoGroupsInPandas",
    ),
]


def _in_table(table: DataFrame) -> Any:
    table.createOrReplaceTempView("table_in_test")
    return F.expr("id IN (SELECT id FROM table_in_test)")


class Passing(StatefulProcessor):
    """Does nothing: only its plan is looked at."""

    def init(self, handle: Any) -> None:
        """Keeps nothing."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
        return iter(())

    def close(self) -> None:
        """Nothing is open."""


# Static frames have no such node.
STREAMS = [
    Case("`withWatermark`", lambda t, _: t.withWatermark("at", "1 minute"), "EventTimeWatermark"),
    Case(
        "`transformWithState`, `transformWithStateInPandas`",
        lambda t, _: t.groupBy("id").transformWithStateInPandas(Passing(), ROWS, "Update", "None"),
        "TransformWithStateInPySpark",
    ),
    Case(
        "`applyInPandasWithState`",
        lambda t, _: t.groupBy("id").applyInPandasWithState(
            with_state, ROWS, "n INT", "update", "NoTimeout"
        ),
        "FlatMapGroupsInPandasWithState",
    ),
]
CASES = [*PROJECTIONS, *FILTERS, *PLACES, *GROUPS, *SEVERAL, *JOINS, *OTHERS]
