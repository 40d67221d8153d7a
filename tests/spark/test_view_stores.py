"""Jobs write views wherever they are kept: rows come, change and go, a rebuild is swapped in."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's users call it

from millstream import App, stores
from millstream.base.ports import BatchReceipt
from millstream.processing.writing.staged_parts import STAGED_RECORDS_MIN
from tests.clients.steps import unique_name
from tests.spark.conftest import OURS_ALONE

FULL = pytest.mark.full
CHOICES = [
    "Sqlite",
    "Topic",
    pytest.param("Delta", marks=FULL),
    pytest.param("Parquet", marks=FULL),
    pytest.param("SearchIndex", marks=FULL),
    pytest.param("Postgres", marks=FULL),
    pytest.param("Redis", marks=FULL),
]


@pytest.fixture(params=CHOICES)
def choice(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as servers:
        yield choice_of(request.param, tmp_path, servers)


def choice_of(name: str, directory: Path, servers: ExitStack) -> Any:
    match name:
        case "Sqlite":
            return stores.Sqlite()
        case "Topic":
            return stores.Topic(unique_name("homes"), partitions=1)
        case "Delta":
            return stores.Delta(directory / "lake")
        case "Parquet":
            return stores.Parquet(directory / "files")
        case "SearchIndex":
            return stores.SearchIndex(text=["city"])
        case "Postgres":
            from tests.support.postgres_server import postgres_server

            return stores.Postgres(servers.enter_context(postgres_server()).url)
        case _:
            from tests.support.redis_server import RedisServer

            return stores.Redis(servers.enter_context(RedisServer()).url)


@pytest.fixture
def app(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[App]:
    with App(unique_name("shop"), data=tmp_path / "shop", brokers=bootstrap) as app:
        yield app


def person(number: int, city: str | None) -> dict[str, Any]:
    return {"id": number} | ({"_change": "delete"} if city is None else {"city": city})


def homes_of(app: App) -> dict[int, str]:
    with app.view("homes") as view:
        return {row["id"]: row["city"] for row in view.scan()}


@OURS_ALONE
def test_a_job_keeps_a_view_in_its_store_and_rebuilds_it_there(app: App, choice: Any) -> None:
    keep_and_rebuild(app, choice)


@pytest.mark.full
@pytest.mark.parametrize("bootstrap", ["apache-kafka"], indirect=True, scope="session")
@pytest.mark.parametrize("choice", ["Topic"], indirect=True)
def test_a_view_in_a_topic_of_apache_kafka_is_kept_and_rebuilt(app: App, choice: Any) -> None:
    """Of all stores, the one that asks something of the broker."""
    keep_and_rebuild(app, choice)


def keep_and_rebuild(app: App, choice: Any) -> None:
    people = unique_name("people")
    app.table(people, schema="id BIGINT, city STRING", key="id", partitions=1)
    app.view(key="id", name="homes", store=choice, inputs={"people": people})(lambda people: people)
    receipts = app.publish(people, [person(1, "Rome"), person(2, "Oslo"), person(3, "Bonn")])
    app.run(once=True)
    assert homes_of(app) == {1: "Rome", 2: "Oslo", 3: "Bonn"}
    receipts = app.publish(people, [person(1, "Oslo"), person(2, None)])
    app.run(once=True)
    assert homes_of(app) == {1: "Oslo", 3: "Bonn"}
    with app.view("homes") as view:
        assert view.get(1, after=receipts) == {"id": 1, "city": "Oslo"}

    app.jobs.run(once=True, rebuild=["homes"], verify=100.0)
    assert homes_of(app) == {1: "Oslo", 3: "Bonn"}
    assert [one.number for one in app.views.store("homes").generations()] == [1, 2]
    assert app.jobs.roll_back("homes") == 1
    assert homes_of(app) == {1: "Oslo", 3: "Bonn"}


@OURS_ALONE
@pytest.mark.full
def test_a_large_batch_goes_into_postgresql_in_parts(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millstream.views.stores.postgres.store import PostgresView

    writes: list[int] = []
    whole = PostgresView.write

    def noted(view: PostgresView, receipt: BatchReceipt, changes: pa.Table) -> bool:
        writes.append(changes.num_rows)
        return whole(view, receipt, changes)

    monkeypatch.setattr(PostgresView, "write", noted)
    events, count = unique_name("events"), STAGED_RECORDS_MIN + 1000
    app.topic(events, schema="id BIGINT, at TIMESTAMP", partitions=2)
    with ExitStack() as servers:
        store = choice_of("Postgres", tmp_path, servers)

        @app.view(key="part", store=store, inputs={"events": events})
        def parts(events: DataFrame) -> DataFrame:
            return events.groupBy((F.col("id") % 5000).alias("part")).count()

        app.publish(events, [{"id": number, "at": None} for number in range(count)])
        app.run(once=True)
        with app.view("parts") as view:
            assert view.count() == 5000
            assert sum(row["count"] for row in view.scan()) == count
        assert writes == []
        app.publish(events, {"id": 7, "at": None})
        app.run(once=True)
        assert writes == [1]
