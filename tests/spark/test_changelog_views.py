"""Views of changelogs in real Spark: a stream's changes, over a restart, make the rows that the
same definition has on a static frame, and that the naive computation has.

tests/properties/test_random_views.py tries the steps alone, with hundreds of random definitions;
these few show that Spark runs them as they are.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream.base.changes import CHANGE, COMING, DELETE, INSERT, ORDER, RETRACT, UPSERT
from millstream.base.errors import Rejected
from millstream.base.identity import identity
from millstream.processing.jobs.plan_node import shape_of
from millstream.processing.jobs.plan_reader import read_plan
from millstream.processing.operators import changelog, windows
from millstream.processing.operators.aggregates import (
    Least,
    Sum,
)
from millstream.processing.steps.stage import Stage
from tests.spark.change_files import ChangeFiles, gone
from tests.spark.spark_views import frame_of
from tests.spark.steps import WITHIN_S
from tests.support.known_views import VIEWS
from tests.support.random_views import ORDERS
from tests.support.view_definitions import (
    Definition,
    Distinct,
    Row,
    Top,
    Totals,
)

# A query with two or more steps of state takes seconds to start, on a busy machine many.
pytestmark = pytest.mark.timeout(600)

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "tables.md"
SCHEMAS = {
    "orders": "order_id BIGINT, customer BIGINT, product STRING, amount DOUBLE",
    "customers": "customer_id BIGINT, level BIGINT",
}
AMOUNTS = [None, 0.1, 0.2, 0.7, -0.0, 1e300, -1e300, math.inf, math.nan]


@dataclass
class Written:
    """What a stream's batches have made of a view."""

    key: tuple[str, ...]
    rows: dict[str, Row] = field(default_factory=dict)
    deletes: int = 0

    def take(self, frame: DataFrame, number: int) -> None:
        changes = [row.asDict(recursive=True) for row in frame.collect()]
        for change in sorted(changes, key=lambda one: (one[ORDER], one[CHANGE] in COMING)):
            key = identity(change[name] for name in self.key)
            self.rows.pop(key, None)
            if change[CHANGE] in COMING:
                self.rows[key] = table_row(change)
            else:
                self.deletes += 1


def table_row(change: Row) -> Row:
    return {name: value for name, value in change.items() if name not in (CHANGE, ORDER)}


def shown(rows: Iterable[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def run(frame: DataFrame, checkpoint: Path, written: Written) -> None:
    """All batches that are there now."""
    writer = frame.writeStream.outputMode("update").foreachBatch(written.take)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(3 * WITHIN_S), "not done"


@dataclass
class ChangingTables:
    """The changes of both tables in files, and the rows that they come to."""

    directory: Path
    random: Random
    rows: dict[str, dict[int, Row]] = field(default_factory=lambda: {"orders": {}, "customers": {}})
    files: dict[str, ChangeFiles] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, schema in SCHEMAS.items():
            self.files[name] = ChangeFiles(self.directory / name, schema)

    def change(self) -> None:
        """One batch of each."""
        self._change("orders", [self._order() for _ in range(10)])
        self._change("customers", [self._customer() for _ in range(4)])

    def _change(self, name: str, rows: list[Row]) -> None:
        told: list[Row] = []
        for row in rows:
            key, number = next(iter(row.items()))
            self.rows[name].pop(number, None)
            if self.random.random() < 0.3:
                told.append(dict(gone(**{key: number})))
            else:
                self.rows[name][number] = row
                told.append(row)
        self.files[name].add(*told)

    def _order(self) -> Row:
        return {
            "order_id": self.random.randrange(9),
            "customer": self.random.choice([None, 0, 1, 2]),
            "product": self.random.choice([None, "x", "y"]),
            "amount": self.random.choice(AMOUNTS),
        }

    def _customer(self) -> Row:
        level = self.random.choice([None, 0, 1, 5])
        return {"customer_id": self.random.randrange(4), "level": level}

    def streams(self, session: SparkSession) -> dict[str, DataFrame]:
        return {name: files.stream(session) for name, files in self.files.items()}

    def statics(self, session: SparkSession) -> dict[str, DataFrame]:
        return {name: files.batch(session) for name, files in self.files.items()}

    def naive(self, definition: Definition) -> list[str]:
        return shown(
            definition.rows({name: list(rows.values()) for name, rows in self.rows.items()})
        )


@pytest.fixture
def changing(tmp_path: Path) -> ChangingTables:
    return ChangingTables(tmp_path, Random(7))


def test_every_aggregate_of_a_stream_is_that_of_its_latest_rows(
    spark: SparkSession, changing: ChangingTables, tmp_path: Path
) -> None:
    definition = VIEWS["every aggregate"]
    written = Written(definition.key)
    for _ in range(3):
        changing.change()
    run(frame_of(definition, changing.streams(spark)), tmp_path / "state", written)
    assert written.deletes, "no group went"
    assert shown(written.rows.values()) == changing.naive(definition)
    assert shown_static(definition, spark, changing) == changing.naive(definition)


@pytest.mark.full
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_streams_with_a_restart_is_the_view_computed_anew(
    name: str, spark: SparkSession, changing: ChangingTables, tmp_path: Path
) -> None:
    definition = VIEWS[name]
    written = Written(definition.key)
    for _ in range(2):  # the second is a restart
        changing.change()
        changing.change()
        run(frame_of(definition, changing.streams(spark)), tmp_path / "state", written)
        assert shown(written.rows.values()) == changing.naive(definition)
        assert shown_static(definition, spark, changing) == changing.naive(definition)


def shown_static(
    definition: Definition, session: SparkSession, changing: ChangingTables
) -> list[str]:
    frame = changelog.latest(frame_of(definition, changing.statics(session)))
    return shown(row.asDict(recursive=True) for row in frame.collect())


def test_what_a_state_depends_on_stands_in_the_plan(
    spark: SparkSession, changing: ChangingTables
) -> None:
    """So that a job with another aggregate or order is refused before it starts."""
    changing.change()
    streams = changing.streams(spark)

    def state_of(definition: Definition) -> list[tuple[str, ...]]:
        shape = shape_of(read_plan(frame_of(definition, streams)), output="")
        return [operator.state for operator in shape.operators]

    views: list[Definition] = [
        Totals(ORDERS, ("customer",), {"x": Sum("amount")}),
        Totals(ORDERS, ("customer",), {"x": Least("amount")}),
        Totals(ORDERS, ("product",), {"x": Sum("amount")}),
        Distinct(ORDERS, ("product",)),
        Top(ORDERS, 2, (), ("amount",), None),
        Top(ORDERS, 3, (), ("amount",), None),
        Top(ORDERS, 2, (), ("-amount",), None),
        Top(ORDERS, 2, ("customer",), ("amount",), None),
    ]
    found = [state_of(view) for view in views]
    assert all(len(steps) == 2 and all(steps) for steps in found)
    assert len({str(steps) for steps in found}) == len(views)


# Static frames: the same steps, nothing kept


def static(session: SparkSession, columns: str, *rows: tuple[Any, ...]) -> DataFrame:
    return session.createDataFrame(list(rows), f"{columns}, {CHANGE} STRING, {ORDER} BIGINT")


def rows_of(frame: DataFrame) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in frame.collect()}


def test_a_row_that_no_longer_meets_the_condition_is_deleted(spark: SparkSession) -> None:
    changes = [
        (1, 120, UPSERT, 1),
        (1, 80, UPSERT, 2),
        (2, None, DELETE, 3),
        (3, None, UPSERT, 4),
        (4, 200, None, 5),
    ]
    orders = changelog.mark_key(static(spark, "id INT, amount INT", *changes), "id")
    found = changelog.where(orders, "amount >= 100")
    assert changelog.key_of(found) == ("id",)
    assert rows_of(found) == {
        (1, 120, UPSERT, 1),
        (1, None, DELETE, 2),
        (2, None, DELETE, 3),
        (3, None, DELETE, 4),
        (4, 200, UPSERT, 5),
    }


def test_of_whole_rows_that_go_and_come_those_that_meet_it_are_left(spark: SparkSession) -> None:
    changes = [(1, 80, RETRACT, 1), (1, 120, INSERT, 1), (2, 120, RETRACT, 2), (2, 80, INSERT, 2)]
    orders = static(spark, "id INT, amount INT", *changes)
    found = changelog.where(orders, F.col("amount") >= 100, "id")
    assert rows_of(found) == {(1, 120, INSERT, 1), (2, 120, RETRACT, 2)}


def test_rows_without_a_word_are_met_as_upserts(spark: SparkSession) -> None:
    found = changelog.where(spark.createDataFrame([(1,), (2,)], "id INT"), "id > 1", "id")
    assert rows_of(found) == {(1, DELETE), (2, UPSERT)}


def test_values_of_every_kind_are_grouped_and_compared(spark: SparkSession) -> None:
    """Also what is no plain value: a struct, an array, bytes, a moment."""
    columns = "id INT, day DATE, price DECIMAL(38,18), at TIMESTAMP, tags ARRAY<STRING>, raw BINARY"
    frame = spark.sql(
        "SELECT id, DATE'2026-07-01' AS day, CAST(id AS DECIMAL(38,18)) / 10 AS price, "
        "TIMESTAMP'2026-07-01 12:00:00.000001' + make_interval(0, 0, 0, id) AS at, "
        "array('a', string(id)) AS tags, CAST(string(id) AS BINARY) AS raw FROM range(3) r(id)"
    )
    assert [name.split()[0] for name in columns.split(", ")] == frame.columns
    of = {f"{f}_{c}": getattr(windows, f)(c) for f in ("min", "max") for c in frame.columns[2:]}
    found = changelog.aggregate(
        frame.withColumn("place", F.struct(F.lit("x").alias("b"), F.lit(1).alias("a"))),
        by=["day", "place"],
        of=of | {"total": windows.sum("price")},
        key="id",
    )
    native = [getattr(F, name.split("_")[0])(name.split("_")[1]).alias(name) for name in of]
    expected = frame.agg(*native, F.sum("price").alias("total"))
    (row,) = (found.select(*of, "total")).collect()
    assert row == expected.collect()[0]
    assert found.select("day", "place.a", "place.b").first() == (date(2026, 7, 1), 1, "x")
    assert row["total"] == Decimal("0.300000000000000000")


def test_what_cannot_be_is_refused_with_its_reason(spark: SparkSession) -> None:
    orders = static(spark, "id INT, amount INT, tags MAP<STRING, INT>", (1, 2, {}, UPSERT, 1))
    count, least = windows.count(), windows.min("tags")
    refused: list[tuple[str, Any]] = [
        ("first goes by the time", lambda: aggregate(orders, of={"x": windows.first("amount")})),
        ("a column id already", lambda: aggregate(orders, of={"id": count})),
        ("a column _order already", lambda: aggregate(orders, of={"_order": count})),
        ("which has no order", lambda: aggregate(orders, of={"x": least})),
        ("which has no order", lambda: aggregate(orders, by="tags", of={"x": count})),
        ("by= names no column", lambda: aggregate(orders, by=[], of={"x": count})),
        ("by='what' is no column", lambda: changelog.distinct(orders, "what", key="id")),
        ("at least one row", lambda: changelog.top(orders, 0, order_by="amount", key="id")),
        ("which rows are the first", lambda: changelog.top(orders, 1, order_by=[], key="id")),
        ("which has no order", lambda: changelog.top(orders, 1, order_by="-tags", key="id")),
        (
            "a column Amount already",
            lambda: changelog.top(orders, 1, order_by="id", key="id", rank="Amount"),
        ),
        ("Say it with key=", lambda: changelog.where(orders, "amount > 1")),
    ]
    for reason, call in refused:
        with pytest.raises(Rejected, match=reason):
            call()


def aggregate(frame: DataFrame, *, by: Any = "id", of: Any) -> DataFrame:
    return changelog.aggregate(frame, by=by, of=of, key="id")


def test_a_key_that_lost_a_column_is_not_known_any_more(spark: SparkSession) -> None:
    """The others alone would name several rows."""
    lines = static(spark, "cart INT, line INT, amount INT", (1, 1, 5, UPSERT, 1))
    marked = changelog.mark_key(lines, ["cart", "line"])
    assert changelog.key_of(marked.drop("line")) == ()
    assert changelog.key_of(marked.withColumn("cart", F.col("cart") + 1)) == ()
    assert changelog.key_of(marked.withColumnRenamed("line", "number")) == ("cart", "number")
    assert changelog.key_of(changelog.mark_key(marked.drop("line"), "cart")) == ("cart",)


# The guide


@pytest.fixture(scope="module")
def market() -> Any:
    """Declared only: nothing is started."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    space: dict[str, Any] = {}
    exec("\n".join(blocks), space)
    return space["app"]


def order(number: int, customer: str, amount: float, product: str = "tea") -> Row:
    return {"order_id": number, "customer": customer, "product": product, "amount": amount}


@pytest.mark.full
def test_an_order_that_shrinks_is_large_no_more(market: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(market, "large_orders")
    steps.add("orders", order(1, "ada", 120.0), order(2, "bob", 80.0), order(3, "eve", 100.0))
    steps.expect([order(1, "ada", 120.0), order(3, "eve", 100.0)])
    steps.add("orders", order(1, "ada", 99.9))
    steps.delete("orders", {"order_id": 3})
    steps.expect([])


@pytest.mark.full
def test_totals_go_down_and_groups_go(market: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(market, "spent")
    steps.add("orders", order(1, "ada", 1e300), order(2, "ada", 0.1), order(3, "bob", 2.0))
    steps.run()
    steps.delete("orders", {"order_id": 1})
    steps.add("orders", order(3, "ada", 2.0, product="ink"))
    steps.restart()
    steps.expect([{"customer": "ada", "orders": 2, "total": 2.1, "least": 0.1, "products": 2}])
    steps.expect_same_as_batch()


@pytest.mark.full
def test_what_was_bought_goes_with_its_last_order(market: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(market, "bought")
    steps.add("orders", order(1, "ada", 1.0), order(2, "ada", 2.0), order(3, "bob", 3.0))
    steps.run()
    steps.delete("orders", {"order_id": 1}, {"order_id": 3})
    steps.expect([{"customer": "ada", "product": "tea"}])
    steps.expect_same_as_batch()


@pytest.mark.full
def test_the_best_of_a_city_follow_orders_and_moves(market: Any, millstream_steps: Stage) -> None:
    steps = millstream_steps(market, "best_of_city")
    spent = {"ada": 9.0, "bob": 8.0, "eve": 7.0}
    for number, (name, amount) in enumerate(spent.items()):
        steps.add("orders", order(number, name, amount))
        steps.add("customers", {"customer": name, "city": "Ulm"})
    steps.expect([best("ada", 9.0, "Ulm", 1), best("bob", 8.0, "Ulm", 2)])
    steps.add("customers", {"customer": "ada", "city": "Bonn"})
    steps.expect(
        [best("ada", 9.0, "Bonn", 1), best("bob", 8.0, "Ulm", 1), best("eve", 7.0, "Ulm", 2)]
    )
    steps.delete("orders", {"order_id": 1})
    steps.expect([best("ada", 9.0, "Bonn", 1), best("eve", 7.0, "Ulm", 1)])
    steps.expect_same_as_batch()


def best(customer: str, total: float, city: str, place: int) -> Row:
    return {"customer": customer, "total": total, "city": city, "place": place}
