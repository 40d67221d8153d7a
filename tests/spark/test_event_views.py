"""Events of aggregates as the input of jobs: several views of one log, and reading one's writes."""

import threading
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from millstream import Aggregate, App, event, windows
from tests.clients.steps import unique_name
from tests.clients.test_event_sourcing_guide import code_of_the_guide
from tests.spark.conftest import OURS_ALONE

WITHIN_S = 120.0


@event
class Deposited:
    amount: int


@event
class Withdrawn:
    amount: int
    fee: Decimal = Decimal(0)


@event(name="closed")
class Closed:
    at: datetime | None = None


class Account(Aggregate, events=[Closed]):
    balance = 0

    def deposit(self, amount: int) -> Iterator[object]:
        yield Deposited(amount)

    def withdraw(self, amount: int) -> Iterator[object]:
        yield Withdrawn(amount, Decimal("0.25"))

    def close(self) -> Iterator[object]:
        yield Closed()

    def on_Deposited(self, found: Deposited) -> None:  # noqa: N802 - the name of the event
        self.balance += found.amount

    def on_Withdrawn(self, found: Withdrawn) -> None:  # noqa: N802 - the same
        self.balance -= found.amount


@pytest.fixture
def app(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[App]:
    with App(unique_name("bank"), data=tmp_path / "bank", brokers=bootstrap) as app:
        yield app


def with_balances(app: App) -> None:
    @app.view(key="account")
    def balances(events: DataFrame) -> DataFrame:
        sign = f.when(f.col("type") == "Deposited", 1).otherwise(-1)
        moves = events.where("data.amount IS NOT NULL")
        account = f.substring_index("stream", ":", -1).alias("account")
        return moves.groupBy(account).agg(f.sum(sign * f.col("data.amount")).alias("balance"))


def with_activity(app: App) -> None:
    @app.view(key=["who", "type"], inputs={"facts": app.events.topic})
    def activity(facts: DataFrame) -> DataFrame:
        return facts.groupBy(f.col("meta.by").alias("who"), "type").agg(
            f.count("*").alias("n"), f.sum("data.fee").cast("DOUBLE").alias("fees")
        )


def with_hours(app: App) -> None:
    @app.view(key=["window", "type"])
    def per_hour(events: DataFrame) -> DataFrame:
        return events.groupBy(windows.tumbling("1 hour"), "type").count()


def test_several_views_of_one_log_and_ones_own_writes_are_read(app: App) -> None:
    bank = app.aggregates(Account, partitions=2)
    with_balances(app)
    with_activity(app)
    with_hours(app)
    with app.acting(by="ada"):
        for name in ("alice", "bob", "carol"):
            bank[name].deposit(100)
        bank["alice"].withdraw(30)
        receipt = bank["bob"].close()
    app.run(once=True)
    with app.view("balances") as view:
        assert view.get("alice", after=receipt) == {"account": "alice", "balance": 70}
        assert view.get("bob") == {"account": "bob", "balance": 100}
    with app.view("activity") as view:
        found = {(row["who"], row["type"]): (row["n"], row["fees"]) for row in view.scan()}
    assert found == {
        ("ada", "Deposited"): (3, None),
        ("ada", "Withdrawn"): (1, 0.25),
        ("ada", "closed"): (1, None),
    }
    with app.view("per_hour") as view:
        assert sum(row["count"] for row in view.scan()) == 5


def test_a_new_view_is_built_beside_the_old_one_that_goes_on(app: App) -> None:
    bank = app.aggregates(Account)
    with_balances(app)
    bank["alice"].deposit(100)
    app.run(once=True)
    with_activity(app)  # declared later: it reads the log from its start
    running = threading.Thread(target=app.run)
    running.start()
    try:
        receipt = bank["alice"].deposit(5, by="bob")
        with app.view("balances") as view:
            found = view.get("alice", after=receipt, timeout=WITHIN_S)
        assert found == {"account": "alice", "balance": 105}
        with app.view("activity") as view:
            found = view.get("bob", "Deposited", after=receipt, timeout=WITHIN_S)
        assert found is not None
        assert found["n"] == 1
    finally:
        app.stop()
        running.join(WITHIN_S)


@pytest.mark.full
@OURS_ALONE
def test_the_code_of_the_guide_does_what_it_says(
    spark: SparkSession, bootstrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MILLSTREAM_BROKERS", bootstrap)
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    exec(code_of_the_guide(with_spark=True), space)
    assert space["store"].topic == space["app"].events.topic
