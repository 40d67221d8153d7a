"""A view as the input of another job: all of its changes, each once, also across a failure."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millstream import App, changelog, stores, windows
from millstream.jobs import JobsFailed
from millstream.processing.writing.view_changes import ViewChanges
from tests.clients.steps import unique_name
from tests.spark.conftest import OURS_ALONE

Shop = Callable[[], App]


@pytest.fixture
def people() -> str:
    return unique_name("people")


@pytest.fixture
def shop(spark: SparkSession, bootstrap: str, tmp_path: Path, people: str) -> Iterator[Shop]:
    """Opens an App over the same data, as often as one likes: each is a restart."""
    opened: list[App] = []
    name = unique_name("shop")

    def open_app() -> App:
        app = App(name, data=tmp_path / "shop", brokers=bootstrap)
        app.table(people, schema="id BIGINT, city STRING", key="id", partitions=2)
        opened.append(app)
        return app

    yield open_app
    for app in opened:
        app.close()


def with_homes(app: App, people: str) -> App:
    """The view `homes`: where each person lives, but for those who live nowhere."""

    @app.view(key="id", inputs={"people": people})
    def homes(people: DataFrame) -> DataFrame:
        return people.where("city != '' OR _change = 'delete'")

    return app


def with_cities(app: App) -> App:
    """The view `cities`: how many live in each; its input is the view `homes`."""

    @app.view(key="city")
    def cities(homes: DataFrame) -> DataFrame:
        return changelog.aggregate(homes, by="city", of={"n": windows.count()})

    return app


def both(app: App, people: str) -> App:
    return with_cities(with_homes(app, people))


def run_both(app: App) -> None:
    app.run(once=True, only=["homes"])
    app.run(once=True, only=["cities"])


def cities_of(app: App) -> dict[str, int]:
    with app.view("cities") as view:
        return {row["city"]: row["n"] for row in view.scan()}


def person(number: int, city: str | None) -> dict[str, Any]:
    return {"id": number} | ({"_change": "delete"} if city is None else {"city": city})


@OURS_ALONE
def test_a_view_is_the_input_of_another(shop: Shop, people: str) -> None:
    app = both(shop(), people)
    app.publish(people, [person(1, "Rome"), person(2, "Rome"), person(3, "Oslo")])
    run_both(app)
    assert cities_of(app) == {"Rome": 2, "Oslo": 1}

    again = both(shop(), people)
    again.publish(people, [person(1, "Oslo"), person(3, None), person(2, "Paris"), person(4, "")])
    run_both(again)
    assert cities_of(again) == {"Oslo": 1, "Paris": 1}


@OURS_ALONE
def test_a_view_that_becomes_an_input_later_brings_the_rows_that_it_has(
    shop: Shop, people: str
) -> None:
    alone = with_homes(shop(), people)
    alone.publish(people, [person(1, "Rome"), person(2, "Rome")])
    alone.run(once=True)

    app = both(shop(), people)
    app.publish(people, person(3, "Oslo"))
    run_both(app)
    assert cities_of(app) == {"Rome": 2, "Oslo": 1}


def test_a_job_that_ends_between_its_view_and_the_changes_of_it_loses_none(
    shop: Shop, people: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = both(shop(), people)
    app.publish(people, [person(1, "Rome"), person(2, "Rome")])
    run_both(app)
    app.publish(people, [person(1, None), person(3, "Oslo")])

    def ends(self: ViewChanges, *_: Any) -> None:
        raise RuntimeError("the plug is pulled")

    with monkeypatch.context() as patched:
        patched.setattr(ViewChanges, "write", ends)
        with pytest.raises(JobsFailed, match="the plug is pulled"):
            app.run(once=True, only=["homes"])
    with app.view("homes") as view:
        assert [row["id"] for row in view.scan()] == [2, 3]

    again = both(shop(), people)
    again.publish(people, person(4, "Oslo"))
    run_both(again)
    assert cities_of(again) == {"Rome": 1, "Oslo": 2}


@OURS_ALONE
def test_who_reads_a_view_that_was_rebuilt_is_rebuilt_too(shop: Shop, people: str) -> None:
    app = both(shop(), people)
    app.publish(people, [person(1, "Rome"), person(2, "Oslo")])
    run_both(app)

    changed = shop()

    @changed.view(key="id", inputs={"people": people})
    def homes(people: DataFrame) -> DataFrame:
        return people.where("city != 'Rome' OR _change = 'delete'")

    with_cities(changed)
    changed.run(once=True, only=["homes"], rebuild=["homes"])
    with pytest.raises(JobsFailed, match="--rebuild cities"):
        changed.run(once=True, only=["cities"])
    changed.run(once=True, only=["cities"], rebuild=["cities"])
    assert cities_of(changed) == {"Oslo": 1}
    assert changed.jobs.verdict("cities").is_same


def loses_its_directory(app: App) -> None:
    shutil.rmtree(app.data / "jobs" / "homes")


def is_dropped(app: App) -> None:
    app.jobs.drop("homes")


@OURS_ALONE
@pytest.mark.parametrize("ends", [loses_its_directory, is_dropped])
def test_who_reads_a_view_that_started_over_has_no_row_of_its_former_life(
    shop: Shop, people: str, ends: Callable[[App], None]
) -> None:
    app = both(shop(), people)
    app.publish(people, [person(1, "Rome"), person(2, "Oslo")])
    run_both(app)
    ends(app)

    changed = shop()

    @changed.view(key="id", inputs={"people": people})
    def homes(people: DataFrame) -> DataFrame:
        return people.where("city != 'Rome' OR _change = 'delete'")

    with_cities(changed)
    run_both(changed)
    with changed.view("homes") as view:
        assert view.scan() == [{"id": 2, "city": "Oslo"}]
    assert cities_of(changed) == {"Oslo": 1}


@OURS_ALONE
def test_a_view_is_not_taken_for_that_of_another_app(
    spark: SparkSession, bootstrap: str, tmp_path: Path, people: str
) -> None:
    """Both have a view of one name, in one place."""

    def opened(name: str) -> App:
        app = App(name, data=tmp_path / name, brokers=bootstrap)
        app.table(people, schema="id BIGINT, city STRING", key="id", partitions=2)
        lake = stores.Parquet(tmp_path / "lake")
        app.view(key="id", name="homes", inputs={"people": people}, store=lake)(
            lambda people: people
        )
        return app

    with opened("shop") as shop, opened("crm") as crm:
        shop.publish(people, person(1, "Rome"))
        shop.run(once=True)
        with pytest.raises(JobsFailed, match=r"is written by job shop\.homes, not by crm\.homes"):
            crm.run(once=True)
        with shop.view("homes") as view:
            assert view.scan() == [{"id": 1, "city": "Rome"}]
