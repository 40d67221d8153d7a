"""Reactions over a real broker: each event is reacted to, and counts once, however often."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import millstream as ms
from millstream.base.librdkafka import admin_api
from millstream.eventsourcing.command_host import CommandHost, make_topics
from millstream.eventsourcing.command_topic import UNTOLD, CommandRefused
from millstream.eventsourcing.event_store import EventStore
from millstream.eventsourcing.wrapping_keys import WrongKeyring
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
            order = None if react is None else react(event)
            yield shelves.asking[event.sku].pick(order or cause.aggregate_id)

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


def test_a_command_of_a_reaction_that_is_too_large_is_a_letter(depot: Depot) -> None:
    app = depot.app(lambda event: "x" * 1_100_000 if event.sku == "piano" else None)
    app.aggregates(Order)["0"].place("piano")
    app.aggregates(Order)["1"].place("tea")
    with app.hosting():
        depot.await_picked(1)
        what = "a dead letter"
        eventually(
            lambda: len(depot.letters("reactions.dead")) == 1, what=what, within_s=PATIENCE_SECONDS
        )


def test_a_keyring_that_is_not_the_right_one_ends_a_reaction_and_buries_nothing(
    depot: Depot,
) -> None:
    app = depot.app()
    app.aggregates(Order)["1"].place("tea")

    def decode(_stored: object) -> object:
        raise WrongKeyring(topic="shop.keys", place="/keys")

    runner = app.hosted._runner(app.hosted.reactions["pick"])
    runner._decode = decode
    runner.start()
    with pytest.raises(WrongKeyring):
        runner.wait(PATIENCE_SECONDS)
    assert depot.letters("reactions.dead") == []


def test_whatever_ends_a_host_is_told_by_who_hosts(
    depot: Depot, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turn(_host: CommandHost) -> None:
        raise RecursionError("a bug")

    monkeypatch.setattr(CommandHost, "_turn", turn)
    with pytest.raises(RecursionError, match="a bug"):
        depot.app().host()
    app = depot.app()
    with pytest.raises(RecursionError, match="a bug"), app.hosting():
        eventually(
            lambda: app.hosted._running[0]._failure is not None,
            what="its end",
            within_s=PATIENCE_SECONDS,
        )


# --- personal data ----------------------------------------------------------------------------


@ms.event
class Booked:
    customer: str


@ms.event(subject="customer")
class Charged:
    customer: str
    card: ms.Personal[str]


class Trip(ms.Aggregate, events=[Booked]):
    def book(self, customer: str):  # type: ignore[no-untyped-def]
        yield Booked(customer)


class Wallet(ms.Aggregate):
    charged = 0

    def charge(self, customer: str, card: str):  # type: ignore[no-untyped-def]
        if card == SECRET:
            raise ms.Rejected(f"{card} is stolen")
        yield Charged(customer, card)

    def on_Charged(self, _: Charged) -> None:  # noqa: N802 - the name of the event
        self.charged += 1


SECRET = "4111-1111"


@pytest.fixture
def travel(depot: Depot, tmp_path: Path) -> ms.App:
    app = ms.App(
        depot.name, brokers=depot.bootstrap, data=tmp_path / "travel", keyring=tmp_path / "keys"
    )
    depot._apps.append(app)
    app.aggregates(Trip, partitions=1)
    wallets = app.aggregates(Wallet)

    @app.reaction(Booked)
    def charge(event: Booked) -> Iterator[object]:
        yield wallets.asking[event.customer].charge(event.customer, "4000")

    @app.reaction(Charged)
    def thank(event: Charged) -> None:
        if event.card == "4222-2222":
            raise ZeroDivisionError(f"no thanks for {event.card}")

    return app


def test_what_a_reaction_asked_for_is_done_though_somebody_was_forgotten_meanwhile(
    depot: Depot, travel: ms.App
) -> None:
    wallets: Any = travel.aggregates(Wallet)
    wallets["zoe"].charge("zoe", "4000")
    travel.aggregates(Trip)["1"].book("ada")
    make_topics(travel.events._client_config(), travel.events.names, travel.event_store())
    runner = travel.hosted._runner(travel.hosted.reactions["charge"])
    runner.start()
    records = f"{depot.name}.commands"
    eventually(
        lambda: bool(list(committed(depot.bootstrap, records, partitions=1))),
        what="it is asked for",
        within_s=PATIENCE_SECONDS,
    )
    runner.stop()
    travel.forget("zoe")
    with travel.hosting():
        eventually(
            lambda: wallets["ada"].state().charged == 1,
            what="ada is charged",
            within_s=PATIENCE_SECONDS,
        )
    assert depot.letters("commands.dead") == []


def test_no_letter_or_answer_tells_what_may_be_personal(depot: Depot, travel: ms.App) -> None:
    wallets: Any = travel.aggregates(Wallet)
    with travel.hosting():
        with pytest.raises(CommandRefused) as caught:
            wallets["ada"].charge("ada", SECRET, wait=False).result(PATIENCE_SECONDS)
        assert (caught.value.type, caught.value.reason) == ("Rejected", UNTOLD)
        sent = wallets.asking["ada"].charge("ada", SECRET, id="x")
        travel.events._sender.opened().send(sent, is_answer_wanted=False)
        wallets["bob"].charge("bob", "4222-2222")
        for topic in ("commands.dead", "reactions.dead"):
            eventually(
                lambda topic=topic: len(depot.letters(topic)) == 1,  # type: ignore[misc]
                what=f"a letter in {topic}",
                within_s=PATIENCE_SECONDS,
            )
    for topic in ("replies", "commands.dead", "reactions.dead"):
        told = b"".join(whole_records(depot.bootstrap, f"{depot.name}.{topic}"))
        assert b"4111-1111" not in told
        assert b"4222-2222" not in told
        assert UNTOLD.encode() in told


def whole_records(bootstrap: str, topic: str) -> Iterator[bytes]:
    """With their headers."""
    config = {"bootstrap.servers": bootstrap, "group.id": "whole", "enable.partition.eof": True}
    consumer: Any = Consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    while True:
        message = consumer.poll(PATIENCE_SECONDS)
        if message is None or message.error() is not None:
            break
        yield (message.key() or b"") + (message.value() or b"")
        yield from (value for _, value in message.headers() or [])
    consumer.close()


def test_processes_share_the_events(depot: Depot) -> None:
    first, second = depot.app(), depot.app()
    with first.hosting(), second.hosting():
        for number in range(20):
            first.aggregates(Order)[f"{number}"].place("tea")
        depot.await_picked(20)
    with EventStore({"bootstrap.servers": depot.bootstrap}, f"{depot.name}.events") as store:
        assert not list(store.verify())
