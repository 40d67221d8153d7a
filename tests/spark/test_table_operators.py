"""Spark's own operators over the changes of a table: right as on the table itself, or refused.

All static: a plan is judged before it runs, on streams as here. That a stream's batches come to
the same is tried by steps at the end of this file and in test_changelog_views.py.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.changes import CHANGE, DELETE, ORDER, UPSERT
from millstream.base.declared import DeclaredTable
from millstream.base.errors import Rejected
from millstream.processing.jobs.job import Job, ToTopic, ToView
from millstream.processing.jobs.prepared_job import FunctionRaised, called
from millstream.processing.jobs.table_result import NotATable, require_topic_key
from millstream.processing.operators import changelog, joins, windows
from millstream.processing.operators.clock_skew import correct_clock
from millstream.processing.operators.table_plan import (
    REFUSED,
    NotOnTables,
    Step,
    TableChanges,
    judge,
)
from millstream.processing.steps.query import rows_of
from millstream.processing.steps.results import Results
from millstream.processing.steps.stage import Stage
from millstream.schemas.ddl import schema_from_ddl
from tests.spark.table_operators import CASES, RIGHT, STREAMS, Case, Frames, guide_lines

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "tables.md"
COLUMNS = "id BIGINT, name STRING, amount DOUBLE, tags ARRAY<STRING>, at TIMESTAMP"
SCHEMA = f"{COLUMNS}, {CHANGE} STRING, {ORDER} BIGINT"
# Rows come, change, stop to meet conditions, go, and come again.
CHANGES: list[tuple[Any, ...]] = [
    (1, "a", 5.0, ["x", "y"], 10),
    (2, "b", 4.0, ["x"], 20),
    (3, "a", 3.0, [], 70),
    (4, "d", 9.0, None, 130),
    (2, "b", 0.5, ["x", "z"], 20),  # no longer more than 1
    (3, None, None, None, None),  # gone
    (1, "c", 6.0, ["y"], 70),
    (4, None, None, None, None),
    (4, "e", None, ["w"], None),  # here again, without an amount
]


def moment(second: int | None) -> datetime | None:
    return None if second is None else datetime.fromtimestamp(second, UTC)


def change(row: tuple[Any, ...], order: int) -> tuple[Any, ...]:
    is_gone = all(value is None for value in row[1:])
    return (*row[:4], moment(row[4]), DELETE if is_gone else UPSERT, order)


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> Frames:
    changes = [change(row, order) for order, row in enumerate(CHANGES)]
    table = spark.createDataFrame(changes, SCHEMA).coalesce(1)
    plain = changelog.latest(table, "id").localCheckpoint()
    return {
        "table": changelog.mark_key(table, "id"),
        "other": changelog.mark_key(table, "id"),
        "rows": plain.select("*"),
    }


def result_of(case: Case, frames: Frames) -> DataFrame:
    job = Job(
        name="tried",
        function=lambda table: case.function(table, frames),
        inputs={"table": "table"},
        output=ToView(key=case.key),
    )
    return called(job, {"table": frames["table"]}, None)


def view_of(frame: DataFrame, key: tuple[str, ...]) -> list[str]:
    results = Results(key)
    results.write(0, rows_of(frame.toArrow()))
    return sorted(repr(sorted(row.items())) for row in results.rows())


def ids(case: Case) -> str:
    return case.operator.replace("`", "")


@pytest.mark.parametrize("case", [one for one in CASES if one.verdict == RIGHT], ids=ids)
def test_an_operator_that_is_allowed_gives_the_rows_that_it_gives_of_the_table(
    case: Case, frames: Frames
) -> None:
    found = result_of(case, frames)
    plain = changelog.latest(frames["table"])
    of_table = (case.of_table or case.function)(plain, frames)
    assert view_of(found, case.key) == view_of(of_table, case.key)
    assert {CHANGE, ORDER} <= set(found.columns)


@pytest.mark.parametrize("case", [one for one in CASES if one.verdict != RIGHT], ids=ids)
def test_an_operator_that_would_be_wrong_is_refused_with_what_to_write(
    case: Case, frames: Frames
) -> None:
    with pytest.raises(NotATable) as refused:
        result_of(case, frames)
    assert REFUSED[case.verdict][2] in str(refused.value)
    assert "job tried (at " in str(refused.value)


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> DataFrame:
    """A table as a stream: its plan is looked at, and never runs."""
    rate = spark.readStream.name("table").format("rate").load()
    made = rate.select(
        F.col("value").alias("id"),
        F.lit("a").alias("name"),
        F.lit(1.0).alias("amount"),
        F.array(F.lit("x")).alias("tags"),
        F.col("timestamp").alias("at"),
        F.lit(UPSERT).alias(CHANGE),
        F.lit(0).cast("bigint").alias(ORDER),
    )
    return changelog.mark_key(made, "id")


def test_streams_are_judged_as_static_frames_are(frames: Frames, stream: DataFrame) -> None:
    """And the operators that only they have are refused."""
    on_stream = {**frames, "table": stream, "other": stream}
    for case in (*CASES, *STREAMS):
        if "heckpoint" in case.operator:
            continue
        try:
            verdict = RIGHT if CHANGE in result_of(case, on_stream).columns else "wrong"
        except NotATable as error:
            verdict = case.verdict if REFUSED[case.verdict][2] in str(error) else str(error)
        except FunctionRaised:
            verdict = case.verdict  # Spark itself refuses it
        assert verdict == case.verdict, case.operator


# Which names a frame has, and which of them are not operators.
# `transpose` runs at once, on static frames alone.
ACTIONS = set(
    """
    approxQuantile asTable colRegex collect columns corr count cov createGlobalTempView
    createOrReplaceGlobalTempView createOrReplaceTempView createTempView crosstab dtypes
    executionInfo explain first foreach foreachPartition head inputFiles isEmpty isLocal
    isStreaming is_cached join mergeInto metadataColumn na pandas_api plot printSchema
    rdd registerTempTable sameSemantics schema semanticHash show sparkSession stat
    storageLevel tail take toArrow toJSON toLocalIterator toPandas transpose write
    writeStream writeTo
    """.split()  # noqa: SIM905  # as a text they are read at a glance
)


def test_every_operator_of_a_frame_has_a_case() -> None:
    """One that comes with a later Spark is refused until it has one."""
    names = {name for name in dir(DataFrame) if not name.startswith("_")}
    text = " ".join(case.operator for case in (*CASES, *STREAMS))
    tried = set(re.findall(r"`(?:na\.)?(\w+)`", text))
    assert names - ACTIONS - tried == set()


def test_a_node_that_nobody_knows_is_refused() -> None:
    step, table = Step(name="Transmogrify"), TableChanges(change=1)
    with pytest.raises(NotOnTables, match=r"Spark's Transmogrify.*changelog\.events"):
        judge(step, [table])
    assert judge(step, [None]) is None
    with pytest.raises(NotOnTables):
        judge(Step(name="Project"), [table, None])


def test_the_guide_has_every_operator_and_what_to_write() -> None:
    lines = guide_lines((*CASES, *STREAMS))
    found = GUIDE.read_text(encoding="utf-8").partition("| Spark's operator |")[2]
    table = found.partition("\n\n")[0].splitlines()[2:]
    assert table == lines, "write into docs/guides/tables.md:\n" + "\n".join(lines)


# Keys


def refusal_of(function: Any, frames: Frames, *key: str) -> str:
    with pytest.raises(NotATable) as refused:
        result_of(Case("", lambda table, _: function(table), key=key), frames)
    return str(refused.value)


def test_a_view_has_the_key_of_its_table(frames: Frames) -> None:
    """Under another one, rows that change or go would stay."""
    by_name = refusal_of(lambda table: table, frames, "name")
    assert "key=name is not the key of the table (id)" in by_name
    assert "is not the key" in refusal_of(lambda table: table, frames, "id", "name")
    assert "without the key" in refusal_of(lambda table: table.select("name"), frames, "name")
    computed = table_with_computed_key
    assert "without the key" in refusal_of(computed, frames, "text")
    said = Case("", lambda table, _: changelog.mark_key(computed(table), "text"), key=("text",))
    assert view_of(result_of(said, frames), ("text",))[0] == "[('name', 'b'), ('text', 'n2')]"


def table_with_computed_key(table: DataFrame) -> DataFrame:
    return table.select(F.concat(F.lit("n"), "id").alias("text"), "name")


def test_operators_of_ours_get_the_changes_that_a_selection_left_out(frames: Frames) -> None:
    chosen = frames["table"].select("id", "name", "amount").filter("amount > 1")
    counted = changelog.aggregate(chosen, by="name", of={"n": windows.count()})
    assert view_of(counted, ("name",)) == ["[('n', 1), ('name', 'c')]"]
    joined = joins.tables(chosen, frames["other"].select("id", "tags"), on="id")
    assert view_of(joined, ("id",)) == [
        "[('amount', 6.0), ('id', 1), ('name', 'c'), ('tags', ['y'])]"
    ]
    assert [row.id for row in changelog.latest(chosen).collect()] == [1]


def test_operators_of_ours_refuse_another_key_and_a_key_that_is_gone(frames: Frames) -> None:
    table = frames["table"]
    calls: dict[str, Callable[[], object]] = {
        "key=name is not the key": lambda: changelog.top(table, 1, order_by="id", key="name"),
        "without the key": lambda: changelog.retracting(table.select("name")),
        "left_key=name is not": lambda: joins.tables(table, table, on="id", left_key="name"),
        "groupBy or agg": lambda: changelog.where(table.groupBy("id").count(), "count > 1", "id"),
        "side of the stream, over": lambda: joins.enrich(table, table, on="id"),
        "joins.within, over": lambda: joins.within(table, table, on="id", within="1 s"),
        "windows.aggregate, over": lambda: windows.aggregate(
            table, windows.tumbling("1 minute", on="at"), of={"n": windows.count()}
        ),
        "correct_clock, over": lambda: correct_clock(table, device="id"),
        "without the key of": lambda: joins.enrich(
            frames["rows"], table.select("name", "amount"), on="name"
        ),
    }
    for reason, call in calls.items():
        with pytest.raises(Rejected, match=reason):
            call()


def test_a_copy_of_the_key_leaves_the_key_as_it_is(frames: Frames) -> None:
    copied = frames["table"].withColumn("copy", F.col("id"))
    assert changelog.key_of(copied) == ("id",)
    assert changelog.key_of(copied.drop("id")) == ("copy",)
    assert changelog.key_of(copied.select("copy", "id")) == ("id",)


def test_the_history_of_a_table_is_rows_that_stay(frames: Frames) -> None:
    """For who really wants to count changes."""
    history = changelog.events(frames["table"])
    counted = result_of(
        Case(
            "", lambda table, _: changelog.events(table).groupBy("change").count(), key=("change",)
        ),
        frames,
    )
    assert history.count() == len(CHANGES)
    assert {tuple(row) for row in counted.collect()} == {(UPSERT, 7), (DELETE, 2)}
    with pytest.raises(Rejected, match="name is a column of the table"):
        changelog.events(frames["table"], change="name")


def test_rows_without_a_group_are_left_out_and_counted(frames: Frames) -> None:
    """One that comes to have none leaves the group that it had."""
    table = frames["table"].withColumn("big", F.when(F.col("amount") > 1, "yes"))
    counted = changelog.aggregate(
        table, by="big", of={"n": windows.count()}, null_groups="leave_out"
    )
    assert view_of(counted, ("big",)) == ["[('big', 'yes'), ('n', 1)]"]
    assert "null_groups(big)" in str(counted._jdf.queryExecution().analyzed())
    values = changelog.distinct(table, "big", null_groups="leave_out")
    assert view_of(values, ("big",)) == ["[('big', 'yes')]"]
    kept = changelog.aggregate(table, by="big", of={"n": windows.count()})
    assert {row["big"] for row in kept.collect()} == {"yes", None}
    minute = windows.tumbling("1 minute", on="at")
    events = frames["rows"].withColumn("big", F.when(F.col("amount") > 1, "yes"))
    in_windows = windows.aggregate(
        events, minute, by="big", of={"n": windows.count()}, null_groups="leave_out"
    )
    assert [row["n"] for row in in_windows.collect()] == [1]
    with pytest.raises(Rejected, match="one of keep, leave_out"):
        changelog.distinct(table, "big", null_groups="drop")  # type: ignore[arg-type]


def test_windows_that_change_are_a_table_too(frames: Frames) -> None:
    """A session that is merged is deleted: a filter must not lose that."""
    found = windows.aggregate(
        frames["rows"].withColumn("user", F.lit("ada")),
        windows.session("1 second", on="at"),
        by="user",
        of={"n": windows.count()},
    )
    assert changelog.key_of(found) == ("user", "session_start")
    kept = result_of(
        Case("", lambda *_: found.filter("n > 5"), key=("user", "session_start")), frames
    )
    assert {row[CHANGE] for row in kept.collect()} == {DELETE}
    by_user = refusal_of(lambda _: found, frames, "user")
    assert "key=user is not the key of the table (user, session_start)" in by_user


# Whole rows that go and come: what goes must be what came


def refusal_of_whole(
    function: Callable[[DataFrame], DataFrame], frames: Frames, *key: str
) -> str | None:
    """Why a view of whole rows is refused; None if it is not."""
    whole = dict(frames) | {"table": changelog.retracting(frames["table"])}
    try:
        result_of(Case("", lambda table, _: function(table), key=key), whole)
    except Rejected as error:
        return str(error)
    return None


def test_whole_rows_go_as_they_came_or_are_refused(frames: Frames) -> None:
    def tags(of: Any, frame: DataFrame) -> DataFrame:
        return frame.select("id", F.explode(of).alias("tag"), CHANGE, ORDER)

    some = F.slice("tags", 1, (1 + F.rand()).cast("int"))
    refused: dict[str, list[Callable[[DataFrame], DataFrame]]] = {
        "rows that would stay": [
            lambda t: t.filter("_change <> 'retract'"),
            lambda t: t.filter("_order > 3 AND amount > 1"),
            lambda t: changelog.where(t, "_change = 'insert'"),
        ],
        "another time than when it came": [
            lambda t: t.withColumn("now", F.current_timestamp()),
            lambda t: tags(F.array(F.current_date()), t),
        ],
        "rand, uuid or another value": [lambda t: tags(some, t)],
        "which share its key": [
            lambda t: tags("tags", t),
            lambda t: tags("tags", t).withColumn("id", F.col("id").cast("string")),
            lambda t: changelog.upserting(tags("tags", t), key="id"),
            lambda t: changelog.top(
                tags("tags", t).withColumn("id", F.col("id").cast("string")), 1, order_by="tag"
            ),
        ],
    }
    for reason, functions in refused.items():
        for function in functions:
            assert reason in (refusal_of_whole(function, frames, "id") or "passed")
    assert refusal_of_whole(lambda t: tags("tags", t), frames, "id", "tag") is None
    assert refusal_of_whole(lambda t: t.filter("amount > 1"), frames, "id") is None


def test_changes_that_were_moved_are_put_in_order_before_a_topic(frames: Frames) -> None:
    """Whatever was done to them since."""
    moves: list[Callable[[DataFrame], DataFrame]] = [
        lambda t: t.repartition(3),
        lambda t: t.repartition(3).withColumn("id", F.col("id").cast("string")),
        lambda t: changelog.where(t.repartition(3), "amount > 1"),
        lambda t: changelog.mark_key(t.repartition(3), "id"),
    ]
    for move in moves:
        job = Job(
            name="tried",
            function=lambda table, move=move: move(table),
            inputs={"table": "table"},
            output=ToTopic(topic="there", key=("id",)),
        )
        found = called(job, {"table": frames["table"]}, None)
        assert found.groupBy("id").count().filter("count > 1").count() == 0


# One row that becomes several


def test_a_row_becomes_several_and_takes_them_along(frames: Frames) -> None:
    tags = changelog.explode(frames["table"].select("id", "tags"), "tags", name="tag")
    assert changelog.key_of(tags) == ("id", "tag")
    assert view_of(tags, ("id", "tag")) == [
        "[('id', 1), ('tag', 'y')]",
        "[('id', 2), ('tag', 'x')]",
        "[('id', 2), ('tag', 'z')]",
        "[('id', 4), ('tag', 'w')]",
    ]
    placed = changelog.explode(frames["table"].select("id", "tags"), "tags", position="place")
    assert changelog.key_of(placed) == ("id", "place")
    assert placed.count() == 4


def test_a_row_is_in_every_window_of_its_time(frames: Frames) -> None:
    table = frames["table"].select("id", "at")
    placed = changelog.windowed(table, windows.hopping("2 minutes", "1 minute", on="at"))
    spark_says = changelog.latest(table).select("id", F.window("at", "2 minutes", "1 minute"))
    expected = {
        tuple(row) for row in spark_says.select("id", "window.start", "window.end").collect()
    }
    assert {
        tuple(r) for r in placed.select("id", "window.start", "window.end").collect()
    } == expected
    assert changelog.key_of(placed) == ("id", "window")


def test_whole_rows_that_became_several_need_a_key_of_their_own(frames: Frames) -> None:
    whole = changelog.retracting(frames["table"]).select("id", F.explode("tags").alias("tag"))
    with pytest.raises(Rejected, match="one row became several"):
        changelog.aggregate(whole, by="tag", of={"n": windows.count()})
    with pytest.raises(Rejected, match="key=tag is not the key"):
        changelog.upserting(whole, "tag")
    assert changelog.upserting(whole, ["id", "tag"]).count() == 4


def test_tables_become_one_with_their_names_in_the_key(frames: Frames) -> None:
    table = frames["table"].select("id", "name")
    both = changelog.union({"here": table, "there": table.filter("id = 1")})
    assert changelog.key_of(both) == ("source", "id")
    assert view_of(both, ("source", "id")) == [
        "[('id', 1), ('name', 'c'), ('source', 'here')]",
        "[('id', 1), ('name', 'c'), ('source', 'there')]",
        "[('id', 2), ('name', 'b'), ('source', 'here')]",
        "[('id', 4), ('name', 'e'), ('source', 'here')]",
    ]
    with pytest.raises(Rejected, match="so that they are the same"):
        changelog.union({"here": table, "there": frames["table"]})


# Topics and sinks


def test_a_topic_gets_the_key_of_the_table_and_one_change_of_each(frames: Frames) -> None:
    def into(topic_key: tuple[str, ...], function: Any) -> DataFrame:
        output = ToTopic(topic="out", key=topic_key)
        job = Job(name="tried", function=function, inputs={"table": "table"}, output=output)
        found = called(job, {"table": frames["table"]}, None)
        require_topic_key(job, found, {})
        return found

    moved = into(("id",), lambda table: table.repartition(4).select("id", "name"))
    assert [row[CHANGE] for row in moved.filter("id = 3").collect()] in ([DELETE], [])
    assert moved.groupBy("id").count().filter("count > 1").count() == 0
    with pytest.raises(NotATable, match="topic out has no key"):
        into((), lambda table: table.select("id", "name"))
    with pytest.raises(NotATable, match="key=name is not the key"):
        into(("name",), lambda table: table)


# A stream


def test_what_a_stream_selects_and_explodes_follows_the_table(millstream_steps: Stage) -> None:
    table = DeclaredTable(
        name="pages",
        schema=schema_from_ddl("id BIGINT, name STRING, tags ARRAY<STRING>"),
        key=("id",),
    )

    def tagged(pages: DataFrame) -> DataFrame:
        named = pages.filter("name <> 'hidden'").select("id", "tags")
        return changelog.explode(named, "tags", name="tag")

    steps = millstream_steps(tagged, inputs=[table], key=["id", "tag"])
    steps.add("pages", page(1, "a", "x", "y"), page(2, "b", "x"), page(3, "c", "z"))
    steps.expect([tag(1, "x"), tag(1, "y"), tag(2, "x"), tag(3, "z")])
    steps.add("pages", page(1, "a", "y", "z"), page(2, "hidden", "x"))
    steps.delete("pages", {"id": 3})
    steps.expect([tag(1, "y"), tag(1, "z")])
    steps.expect_same_as_batch()


def page(number: int, name: str, *tags: str) -> dict[str, Any]:
    return {"id": number, "name": name, "tags": list(tags)}


def tag(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "tag": name}
