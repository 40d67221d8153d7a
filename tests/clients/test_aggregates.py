"""Aggregates of an App over a broker, ours and Apache Kafka's: what memory cannot show."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from millstream import Aggregate, App, Rejected, event
from millstream.base.declared import BadDeclaration
from millstream.eventsourcing.replay import HistoryGone
from millstream.eventsourcing.snapshots import SnapshotTopic
from millstream.eventsourcing.staging import CommandIdReused, EventTooLarge, WrongVersion
from tests.clients.steps import unique_name

WITHIN_S = 60.0


@event
class Deposited:
    amount: int
    note: str = ""


@event
class Withdrawn:
    amount: int


@event(closes=True)
class YearClosed:
    balance: int


class Account(Aggregate):
    balance = 0

    def close_year(self) -> Iterator[object]:
        yield YearClosed(self.balance)

    def deposit(self, amount: int, note: str = "") -> Iterator[object]:
        yield Deposited(amount, note)

    def withdraw(self, amount: int) -> Iterator[object]:
        if amount > self.balance:
            raise Rejected("insufficient funds")
        yield Withdrawn(amount)

    def on_Deposited(self, found: Deposited) -> None:  # noqa: N802 - the name of the event
        self.balance += found.amount

    def on_Withdrawn(self, found: Withdrawn) -> None:  # noqa: N802 - the same
        self.balance -= found.amount

    def on_YearClosed(self, found: YearClosed) -> None:  # noqa: N802 - the same
        self.balance = found.balance


@pytest.fixture
def open_app(bootstrap: str, tmp_path: Path) -> Callable[[], App]:
    name = unique_name("bank")
    return lambda: App(name, brokers=bootstrap, data=tmp_path / "data")


@pytest.fixture
def app(open_app: Callable[[], App]) -> Iterator[App]:
    with open_app() as opened:
        yield opened


def test_a_declared_aggregate_needs_no_broker_yet(tmp_path: Path) -> None:
    with App("bank", brokers="127.0.0.1:1", data=tmp_path / "data") as app:
        bank = app.aggregates(Account)
        assert app.aggregates(Account) is bank

        class Other(Aggregate, name="Account"):
            pass

        with pytest.raises(BadDeclaration, match="two aggregates with the name Account"):
            app.aggregates(Other)
        app.aggregates(Account, partitions=3)
        with pytest.raises(BadDeclaration, match="share them"):
            app.aggregates(Account, partitions=4)
    assert not (tmp_path / "data").exists()


def test_commands_are_decided_and_retries_are_known_after_a_restart(
    open_app: Callable[[], App],
) -> None:
    with open_app() as app:
        bank = app.aggregates(Account, partitions=2)
        first = bank["alice"].deposit(100, id="req-1", by="ada", why="opening")
        assert (first.topic, first.version) == (app.events.topic, 1)
        with pytest.raises(WrongVersion):
            bank["alice"].withdraw(30, expect=0)
        bank["alice"].withdraw(30, expect=1)
    with open_app() as app:
        bank = app.aggregates(Account)
        again = bank["alice"].deposit(100, id="req-1")
        assert (again.is_repeat, again.events) == (True, first.events)
        with pytest.raises(CommandIdReused):
            bank["alice"].deposit(101, id="req-1")
        assert bank["alice"].state().balance == 70
        [opening, _] = bank["alice"].history()
        assert (opening.by, opening.why, opening.command_id) == ("ada", "opening", "req-1")
        assert bank["alice"].state(at=opening.at).version >= 1


def test_no_money_is_lost_when_many_use_one_account(app: App) -> None:
    bank = app.aggregates(Account)
    bank["alice"].deposit(50)

    def spend(_: int) -> bool:
        try:
            bank["alice"].withdraw(1)
        except Rejected:
            return False
        return True

    with ThreadPoolExecutor(16) as threads:
        assert sum(threads.map(spend, range(80))) == 50
    assert bank["alice"].state().balance == 0


def test_asyncio_uses_the_same_writer(app: App) -> None:
    bank = app.aggregates(Account)

    async def use() -> int:
        with app.acting(by="ada"):
            await asyncio.gather(*(bank.aio[f"a{n % 3}"].deposit(1) for n in range(30)))
        found = [await bank.aio[id].state() for id in bank]
        return sum(one.balance for one in found)

    assert asyncio.run(use()) == 30
    assert {one.by for one in bank["a0"].history()} == {"ada"}


@pytest.mark.parametrize("id", ["a b", "a/b:c", "..", "Ω😀"])
def test_ids_with_odd_characters_are_streams(app: App, id: str) -> None:
    bank = app.aggregates(Account)
    bank[id].deposit(5)
    assert bank[id].state().balance == 5
    assert list(bank) == [id]


def test_a_huge_event_is_refused_and_the_state_goes_on(app: App) -> None:
    bank = app.aggregates(Account)
    bank["alice"].deposit(1)
    with pytest.raises(EventTooLarge, match="Keep what is large elsewhere"):
        bank["alice"].deposit(1_000, note="x" * 2_000_000)
    with pytest.raises(Rejected, match="insufficient"):
        bank["alice"].withdraw(2)
    bank["alice"].deposit(1)
    assert bank["alice"].state().balance == 2


def test_a_restart_begins_with_the_snapshot(
    open_app: Callable[[], App], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_app() as app:
        bank = app.aggregates(Account, snapshot_every=10)
        for _ in range(25):
            bank["alice"].deposit(1)
    folded: list[Any] = []
    folds: Any = Account.__plan__.folds
    kept = folds[Deposited]

    def fold(account: Account, found: Deposited) -> None:
        folded.append(found)
        kept(account, found)

    monkeypatch.setitem(folds, Deposited, fold)
    with open_app() as app:
        bank = app.aggregates(Account, snapshot_every=10)
        bank["alice"].withdraw(25)
        assert len(folded) == 5
        assert bank["alice"].state().balance == 0


def test_snapshots_of_a_stream_are_found_by_other_processes(bootstrap: str) -> None:
    name = unique_name("snapshots")
    client = {"bootstrap.servers": bootstrap}
    writer, reader = (SnapshotTopic(client, name, partitions=2) for _ in range(2))
    assert reader.find("Account:alice") is None
    for value in (b"old", b"new"):
        writer.put("Account:alice", value)
    writer.put("Account:Ω", b"other")
    writer.close()
    until = time.monotonic() + WITHIN_S
    while reader.find("Account:alice") != b"new" or reader.find("Account:Ω") != b"other":
        assert time.monotonic() < until
        time.sleep(0.1)
    assert reader.find("Account:bob") is None
    reader.close()
    assert writer.lost == 0


def test_what_retention_took_before_a_closing_event_is_not_missed(
    open_app: Callable[[], App], bootstrap: str, admin: AdminClient, tmp_path: Path
) -> None:
    with open_app() as app:
        name, topic, alice = app.name, app.events.topic, app.aggregates(Account)["alice"]
        for _ in range(10):
            alice.deposit(1)
        middle = alice.deposit(1)
        alice.deposit(1)
        closed = alice.close_year()
        alice.withdraw(2)
    for receipt in (middle, closed):
        cut = TopicPartition(topic, receipt.partition, receipt.offset)
        admin.delete_records([cut])[cut].result(WITHIN_S)
        for data in (tmp_path / "data", tmp_path / f"fresh-{receipt.version}"):
            with App(name, brokers=bootstrap, data=data) as app:
                alice = app.aggregates(Account)["alice"]
                before = alice.version
                assert alice.state().balance == 10
                alice.deposit(1)
                alice.withdraw(1)
                assert alice.version == before + 2
                with pytest.raises(HistoryGone):
                    alice.state(version=3)
