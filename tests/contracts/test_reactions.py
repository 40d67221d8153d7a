"""Reactions over a real broker: each event is reacted to, and counts once, however often."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millstream as ms
from millstream.base.librdkafka import admin_api
from millstream.eventsourcing.event_store import EventStore
from tests.support.committed_topic import committed
from tests.support.waiting import eventually

PATIENCE_SECONDS = 60.0


@ms.event
class Ordered:
    sku: str


@ms.event
class Picked:
    order: str


class Order(ms.Aggregate, events=[Ordered]):
    def place(self, sku: str):  # type: ignore[no-untyped-def]
        yield Ordered(sku)


class Shelf(ms.Aggregate):
    picked = 0

    def pick(self, order: str):  # type: ignore[no-untyped-def]
        if order == "forbidden":
            raise ms.Rejected("not this one")
        yield Picked(order)

    def on_Picked(self, _: Picked) -> None:  # noqa: N802 - the name of the event
        self.picked += 1


class Depot:
    """Processes of one app, each an App of its own here."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self.bootstrap, self.directory = bootstrap, directory
        self.name = f"depot-{uuid.uuid4().hex[:12]}"
        self._apps: list[ms.App] = []

    def app(self, react: Callable[..., Any] | None = None) -> ms.App:
        data = self.directory / f"app-{len(self._apps)}"
        app = ms.App(self.name, brokers=self.bootstrap, data=data)
        self._apps.append(app)
        app.aggregates(Order, partitions=2)
        shelves = app.aggregates(Shelf)

        @app.reaction(Ordered)
        def pick(event: Ordered, cause: ms.Cause) -> Iterator[object]:
            if react is not None:
                react(event)
            yield shelves.asking[event.sku].pick(cause.aggregate_id)

        return app

    def picked(self, sku: str = "tea") -> int:
        found: int = self._apps[0].aggregates(Shelf)[sku].state().picked
        return found

    def await_picked(self, count: int) -> None:
        what = f"{count} are picked"
        eventually(lambda: self.picked() >= count, what=what, within_s=PATIENCE_SECONDS)
        assert self.picked() == count

    def records(self, topic: str) -> list[tuple[bytes, bytes]]:
        return list(committed(self.bootstrap, f"{self.name}.{topic}", partitions=2))

    def letters(self, topic: str) -> list[tuple[bytes, bytes]]:
        return list(committed(self.bootstrap, f"{self.name}.{topic}", partitions=1))

    def forget_group(self) -> None:
        """As the broker does when nobody has used it for long."""
        admin = admin_api().AdminClient({"bootstrap.servers": self.bootstrap})
        group = f"{self.name}.reactions.pick"
        admin.delete_consumer_groups([group])[group].result()

    def close(self) -> None:
        for app in self._apps:
            app.close()


@pytest.fixture(params=["millstream", pytest.param("kafka", marks=pytest.mark.full)])
def depot(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Depot]:
    if request.param == "kafka":
        bootstrap = request.getfixturevalue("apache_kafka")
    else:
        bootstrap = request.getfixturevalue("millstream_broker").bootstrap
    depot = Depot(bootstrap, tmp_path)
    yield depot
    depot.close()


def test_each_event_is_reacted_to(depot: Depot) -> None:
    app = depot.app()
    orders = app.aggregates(Order)
    for number in range(5):
        orders[f"{number}"].place("tea")
    with app.hosting():
        orders["5"].place("tea")
        depot.await_picked(6)
    (first, *_) = app.aggregates(Shelf)["tea"].history()
    assert first.by == "reaction pick"
    assert first.causation == first.correlation
    assert first.command_id == f"pick:{first.causation}:0"


def test_a_reaction_goes_on_where_it_was_though_its_group_is_forgotten(depot: Depot) -> None:
    app = depot.app()
    app.aggregates(Order)["1"].place("tea")
    with app.hosting():
        depot.await_picked(1)
    depot.forget_group()
    app.aggregates(Order)["2"].place("tea")
    with depot.app().hosting():
        depot.await_picked(2)
    assert len(depot.records("commands")) == 2


def test_a_reaction_that_starts_over_changes_nothing(depot: Depot) -> None:
    app = depot.app()
    for number in range(4):
        app.aggregates(Order)[f"{number}"].place("tea")
    with app.hosting():
        depot.await_picked(4)
    depot.forget_group()
    admin = admin_api().AdminClient({"bootstrap.servers": depot.bootstrap})
    admin.delete_topics([f"{depot.name}.reactions"])[f"{depot.name}.reactions"].result()
    app.aggregates(Order)["4"].place("tea")
    with depot.app().hosting():
        depot.await_picked(5)
        asked = 4 + 5
        what = "all are asked for again"
        eventually(
            lambda: len(depot.records("commands")) == asked, what=what, within_s=PATIENCE_SECONDS
        )
        depot.await_picked(5)


def test_a_function_that_fails_leaves_a_letter_and_goes_on(
    depot: Depot, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def react(event: Ordered) -> None:
        if event.sku == "bomb":
            tried.append(time.monotonic())
            raise ZeroDivisionError("a bug")

    app = depot.app(react)
    orders = app.aggregates(Order)
    orders["0"].place("bomb")
    orders["1"].place("tea")
    with app.hosting():
        depot.await_picked(1)
        eventually(lambda: len(tried) >= 3, what="three attempts", within_s=PATIENCE_SECONDS)
    ((_, value),) = depot.letters("reactions.dead")
    assert json.loads(value)["data"] == {"sku": "bomb"}
    assert len(tried) == 3
    assert ": no reaction pick: ZeroDivisionError('a bug')" in caplog.text


def test_a_command_of_a_reaction_that_is_refused_is_a_letter(depot: Depot) -> None:
    app = depot.app()
    app.aggregates(Order)["forbidden"].place("tea")
    with app.hosting():
        eventually(
            lambda: len(depot.letters("commands.dead")) == 1,
            what="a dead letter",
            within_s=PATIENCE_SECONDS,
        )


def test_processes_share_the_events(depot: Depot) -> None:
    first, second = depot.app(), depot.app()
    with first.hosting(), second.hosting():
        for number in range(20):
            first.aggregates(Order)[f"{number}"].place("tea")
        depot.await_picked(20)
    with EventStore({"bootstrap.servers": depot.bootstrap}, f"{depot.name}.events") as store:
        assert not list(store.verify())
