"""Aggregates over a store in memory: calls, retries, states kept and replayed, who did what."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest

from millstream.base.declared import BadDeclaration
from millstream.base.errors import Rejected
from millstream.eventsourcing.acting import BadMetadata, acting
from millstream.eventsourcing.aggregate import Aggregate, FoldFailed
from millstream.eventsourcing.aggregates import Aggregates, BadAggregateId, BadCommandId
from millstream.eventsourcing.command_calls import BadArguments, UnknownCommand
from millstream.eventsourcing.declared_event import event
from millstream.eventsourcing.event_types import UnknownEventType
from millstream.eventsourcing.placement import BadStreamName
from millstream.eventsourcing.replay import CannotShun, HistoryGone
from millstream.eventsourcing.snapshots import SnapshotTopic
from millstream.eventsourcing.staging import CommandIdReused, WrongVersion
from millstream.eventsourcing.states import BadTime, NoSuchVersion
from millstream.eventsourcing.stored_event import NewEvent
from millstream.eventsourcing.upcasting import upcast
from tests.support.memory_events import BEGINNING, CommitRefused, MemoryEvents, MemorySnapshots


@event
class Deposited:
    amount: int


@event
class Withdrawn:
    amount: int


@event(closes=True)
class BroughtForward:
    balance: int


class Account(Aggregate):
    balance = 0
    moves = 0

    def deposit(self, amount: int) -> Iterator[object]:
        yield Deposited(amount)

    def withdraw(self, amount: int) -> Iterator[object]:
        if amount > self.balance:
            raise Rejected("insufficient funds")
        yield Withdrawn(amount)

    def transfer_back(self, amount: int) -> Iterator[object]:
        yield Deposited(amount)
        raise Rejected("changed my mind")

    def close_year(self) -> Iterator[object]:
        yield BroughtForward(self.balance)

    def rest(self) -> Iterator[object]:
        yield from ()

    def on_Deposited(self, found: Deposited) -> None:  # noqa: N802 - the name of the event
        self.balance += found.amount
        self.moves += 1

    def on_Withdrawn(self, found: Withdrawn) -> None:  # noqa: N802 - the same
        if found.amount > self.balance:
            raise ValueError("a fold that refuses")
        self.balance -= found.amount
        self.moves += 1

    def on_BroughtForward(self, found: BroughtForward) -> None:  # noqa: N802 - the same
        self.balance = found.balance


@pytest.fixture
def store() -> MemoryEvents:
    return MemoryEvents()


def aggregates(store: MemoryEvents, kind: type[Aggregate] = Account, **terms: Any) -> Any:
    if "snapshots" in terms:
        terms["snapshots"] = cast(SnapshotTopic, terms["snapshots"])
    return Aggregates(kind, store.as_store, **terms)


@pytest.fixture
def bank(store: MemoryEvents) -> "Aggregates[Account]":
    found: Aggregates[Account] = aggregates(store)
    return found


# --- commands ---------------------------------------------------------------------------------


def test_commands_become_events_and_events_become_state(bank: Aggregates[Account]) -> None:
    receipt = bank["alice"].deposit(100)
    bank["alice"].withdraw(30)
    assert (receipt.stream, receipt.version) == ("Account:alice", 1)
    assert bank["alice"].state().balance == 70
    assert bank["alice"].version == 2
    assert list(bank) == ["alice"]
    assert "alice" in bank
    assert "bob" not in bank


def test_a_refused_command_leaves_nothing(bank: Aggregates[Account], store: MemoryEvents) -> None:
    bank["alice"].deposit(10)
    for command, amount in (("withdraw", 11), ("transfer_back", 5)):
        with pytest.raises(Rejected):
            getattr(bank["alice"], command)(amount)
    bank["alice"].withdraw(10)
    assert [one.type for one in store.events] == ["Deposited", "Withdrawn"]
    assert bank["alice"].state().balance == 0


def test_a_retry_with_the_same_id_is_a_no_op(bank: Aggregates[Account]) -> None:
    first = bank["alice"].deposit(100, id="req-1")
    again = bank["alice"].deposit(amount=100, id="req-1")
    assert again.is_repeat
    assert again.events == first.events
    assert bank["alice"].state().balance == 100


def test_an_id_reused_with_other_arguments_is_refused(bank: Aggregates[Account]) -> None:
    bank["alice"].deposit(100, id="req-1")
    with pytest.raises(CommandIdReused):
        bank["alice"].deposit(101, id="req-1")
    with pytest.raises(CommandIdReused):
        bank["alice"].withdraw(100, id="req-1")
    with pytest.raises(CommandIdReused):
        bank["bob"].deposit(100, id="req-1")


def test_the_expected_version_is_required(bank: Aggregates[Account]) -> None:
    bank["alice"].deposit(100, expect=0)
    with pytest.raises(WrongVersion):
        bank["alice"].deposit(100, expect=0)


def test_a_command_that_yields_nothing_has_a_receipt(bank: Aggregates[Account]) -> None:
    bank["alice"].deposit(1)
    receipt = bank["alice"].rest()
    assert (receipt.version, receipt.events) == (1, ())


def test_what_is_no_command_is_told(bank: Aggregates[Account]) -> None:
    with pytest.raises(UnknownCommand, match="there are: close_year, deposit"):
        bank["alice"].deposti(1)
    assert not hasattr(bank["alice"], "balance")
    with pytest.raises(BadArguments, match=r"Account\.deposit: missing"):
        bank["alice"].deposit()
    with pytest.raises(BadArguments, match="with an id, its arguments must be what JSON can say"):
        bank["alice"].deposit(object(), id="req-1")
    with pytest.raises(BadCommandId):
        bank["alice"].deposit(1, id=7)


@pytest.mark.parametrize("id", ["a b", "a/b", "a:b", "..", "Ω😀", "'; --", "%00", "x" * 900])
def test_ids_may_have_odd_characters(bank: Aggregates[Account], id: str) -> None:
    bank[id].deposit(5)
    assert bank[id].state().balance == 5
    assert bank[id].state().id == id
    assert list(bank) == [id]


@pytest.mark.parametrize("id", ["", 7, None, b"alice"])
def test_an_id_is_a_text(bank: Aggregates[Account], id: Any) -> None:
    with pytest.raises(BadAggregateId, match="an id is a text that is not empty"):
        bank[id]


@pytest.mark.parametrize("id", ["x" * 10_000, "\ud800", "a\nb", "\x00"])
def test_an_id_that_is_no_name_of_a_stream_is_refused(bank: Aggregates[Account], id: str) -> None:
    with pytest.raises(BadStreamName):
        bank[id]


def test_aggregates_need_all_their_upcasts(store: MemoryEvents) -> None:
    @event(version=2)
    class Moved:
        to: str

    class Thing(Aggregate, events=[Moved]):
        pass

    with pytest.raises(BadDeclaration, match="no @upcast from version 1"):
        aggregates(store, Thing)
    with pytest.raises(BadDeclaration, match="is no aggregate"):
        aggregates(store, cast(Any, Moved))


# --- who and why ------------------------------------------------------------------------------


def test_history_says_who_did_what_when_and_why(bank: Aggregates[Account]) -> None:
    with acting(by="ada", why="opening", correlation="case-7"):
        bank["alice"].deposit(100, id="req-1")
        with acting(why="rent"):
            bank["alice"].withdraw(30, by="bob", causation="e-0")
    bank["alice"].deposit(1)
    first, second, third = bank["alice"].history()
    assert first.event == Deposited(100)
    assert (first.by, first.why, first.correlation) == ("ada", "opening", "case-7")
    assert (first.command, first.command_id, first.version) == ("deposit", "req-1", 1)
    assert first.at == BEGINNING + timedelta(minutes=1)
    assert (second.by, second.why, second.causation) == ("bob", "rent", "e-0")
    assert second.correlation == "case-7"
    assert (third.by, third.why, third.meta) == (None, None, {"command": "deposit"})


def test_metadata_are_short_texts(bank: Aggregates[Account]) -> None:
    with pytest.raises(BadMetadata, match="by=: a text, not a int"):
        bank["alice"].deposit(1, by=7)
    with pytest.raises(BadMetadata, match="may have 1,000"), acting(why="x" * 1_001):
        pass


# --- asyncio ----------------------------------------------------------------------------------


def test_the_same_for_asyncio(bank: Aggregates[Account]) -> None:
    async def use() -> tuple[int, int, list[int]]:
        alice = bank.aio["alice"]
        with acting(by="ada"):
            receipts = await asyncio.gather(*(alice.deposit(5) for _ in range(10)))
        with pytest.raises(Rejected):
            await alice.withdraw(51)
        [first, *_] = await alice.history()
        assert first.by == "ada"
        await alice.shun(first.id, why="a mistake")
        versions = [one.version for one in receipts]
        return (await alice.state()).balance, await alice.version(), versions

    assert asyncio.run(use()) == (45, 11, list(range(1, 11)))


# --- as of ------------------------------------------------------------------------------------


def test_state_as_of_a_version_or_a_time(bank: Aggregates[Account]) -> None:
    for amount in (1, 2, 4):
        bank["alice"].deposit(amount)
    found = [bank["alice"].state(version=version).balance for version in range(4)]
    assert found == [0, 1, 3, 7]
    assert bank["alice"].state(at=BEGINNING + timedelta(minutes=2)).balance == 3
    assert bank["alice"].state(at=BEGINNING).balance == 0
    for version in (4, -1):
        with pytest.raises(NoSuchVersion, match="from 0 to 3"):
            bank["alice"].state(version=version)
    with pytest.raises(BadTime, match="with its time zone"):
        bank["alice"].state(at=BEGINNING.replace(tzinfo=None))


def test_a_state_that_was_given_out_is_not_the_writers(bank: Aggregates[Account]) -> None:
    bank["alice"].deposit(1)
    held = bank["alice"].state()
    bank["alice"].deposit(1)
    assert held.balance == 1


# --- states that are kept ---------------------------------------------------------------------


def test_a_stream_that_is_used_often_is_not_replayed(
    bank: Aggregates[Account], store: MemoryEvents
) -> None:
    for _ in range(50):
        bank["alice"].deposit(1)
    assert store.reads == 0
    bank["alice"].state()
    assert store.reads == 0


def test_no_more_states_are_kept_than_said(store: MemoryEvents) -> None:
    bank = aggregates(store, states_max=2)
    for id in ("a", "b", "c", "a", "b", "c"):
        bank[id].deposit(1)
    assert len(bank._states.kept) == 2
    assert bank["a"].state().balance == 2


def test_what_was_staged_and_dropped_does_not_count(
    bank: Aggregates[Account], store: MemoryEvents
) -> None:
    bank["alice"].deposit(10)
    store.drop_next = 3
    bank["alice"].withdraw(10)
    assert bank["alice"].state().balance == 0
    assert store.version("Account:alice") == 2


def test_dropped_events_are_told_from_others_of_the_same_version(
    bank: Aggregates[Account], store: MemoryEvents
) -> None:
    bank["alice"].deposit(1)
    store.refuse_next = True
    with pytest.raises(CommitRefused):
        bank["alice"].deposit(1_000)
    store.append("Account:alice", [NewEvent(type="Deposited", data=b'{"amount":1}', id="other")])
    with pytest.raises(Rejected, match="insufficient"):
        bank["alice"].withdraw(3)
    assert bank["alice"].state().balance == 2


@event
class Split:
    parts: int


class Purse(Aggregate):
    balance = 0
    coins: list[int] = []  # noqa: RUF012 - the initial state

    def put(self, coin: int) -> Iterator[object]:
        yield Deposited(coin)

    def split(self, parts: int) -> Iterator[object]:
        yield Split(parts)

    def grab(self) -> Iterator[object]:
        self.coins.append(99)
        raise Rejected("it is not yours")
        yield

    def on_Deposited(self, found: Deposited) -> None:  # noqa: N802 - the name of the event
        self.balance += found.amount
        self.coins.append(found.amount)

    def on_Split(self, found: Split) -> None:  # noqa: N802 - the same
        self.balance += 1_000
        self.balance //= found.parts


def test_a_fold_that_fails_halfway_leaves_nothing_in_the_state(store: MemoryEvents) -> None:
    purses = aggregates(store, Purse)
    purses["a"].put(5)
    with pytest.raises(FoldFailed):
        purses["a"].split(0)
    assert purses["a"].state().balance == 5
    purses["a"].split(5)
    assert purses["a"].state().balance == 201


def test_a_refused_command_that_changed_a_list_leaves_nothing_in_the_state(
    store: MemoryEvents,
) -> None:
    purses = aggregates(store, Purse)
    purses["a"].put(5)
    with pytest.raises(Rejected):
        purses["a"].grab()
    assert purses["a"].state().coins == [5]
    purses["a"].put(6)
    assert purses["a"].state().coins == [5, 6]


def test_events_of_others_are_taken_in(bank: Aggregates[Account], store: MemoryEvents) -> None:
    bank["alice"].deposit(1)
    store.append("Account:alice", [NewEvent(type="Deposited", data=b'{"amount":9}', id="x")])
    bank["alice"].withdraw(10)
    assert bank["alice"].state().balance == 0


def test_an_unknown_event_stops_commands_and_reads(
    bank: Aggregates[Account], store: MemoryEvents
) -> None:
    store.append("Account:alice", [NewEvent(type="Frozen", data=b"{}", id="x")])
    for use in (bank["alice"].state, lambda: bank["alice"].deposit(1)):
        with pytest.raises(UnknownEventType, match="Account:alice, version 1"):
            use()


def test_a_fold_that_raises_stops_commands_and_reads(
    bank: Aggregates[Account], store: MemoryEvents
) -> None:
    store.append("Account:alice", [NewEvent(type="Withdrawn", data=b'{"amount":9}', id="x")])
    for use in (bank["alice"].state, lambda: bank["alice"].deposit(1)):
        with pytest.raises(FoldFailed, match="on_Withdrawn failed: ValueError"):
            use()


# --- shunned and closed -----------------------------------------------------------------------


def test_a_shunned_event_does_not_count_and_stays_in_history(bank: Aggregates[Account]) -> None:
    alice = bank["alice"]
    alice.deposit(100)
    mistake = alice.deposit(900)
    receipt = alice.shun(mistake.events[0], why="typed a 9 for a 0", by="ada")
    assert receipt.version == 3
    assert alice.state().balance == 100
    assert alice.state(version=2).balance == 1_000
    with pytest.raises(Rejected, match="insufficient"):
        alice.withdraw(101)
    alice.withdraw(100)
    happened = alice.history()
    assert [one.is_shunned for one in happened] == [False, True, False, False]
    assert happened[1].shunned == "typed a 9 for a 0"
    assert (happened[2].type, happened[2].by) == ("$shunned", "ada")


def test_to_shun_twice_is_a_no_op(bank: Aggregates[Account]) -> None:
    [id] = bank["alice"].deposit(1).events
    bank["alice"].shun(id)
    assert bank["alice"].shun(id).events == ()
    assert bank["alice"].state().balance == 0


def test_what_cannot_be_shunned_is_told(bank: Aggregates[Account]) -> None:
    alice = bank["alice"]
    deposit = alice.deposit(10).events[0]
    alice.withdraw(10)
    with pytest.raises(FoldFailed, match="on_Withdrawn"):
        alice.shun(deposit)
    assert alice.version == 2
    with pytest.raises(CannotShun, match="has no event of that id"):
        alice.shun("nonsense")
    closing = alice.close_year().events[0]
    with pytest.raises(CannotShun, match="closing event"):
        alice.shun(closing)
    with pytest.raises(CannotShun, match="since its last closing event"):
        alice.shun(deposit)
    shun = alice.shun(alice.deposit(1).events[0]).events[0]
    with pytest.raises(CannotShun, match=r"\$shunned itself"):
        alice.shun(shun)


def test_folding_begins_at_the_last_closing_event(store: MemoryEvents) -> None:
    bank = aggregates(store)
    for _ in range(300):
        bank["alice"].deposit(1)
    bank["alice"].close_year()
    bank["alice"].deposit(5)
    live = bank["alice"].state()
    assert (live.balance, live.moves) == (305, 1)
    store.reads = 0
    assert aggregates(store)["alice"].state() == live
    assert store.reads < 200


def test_what_is_before_a_closing_event_may_be_gone(store: MemoryEvents) -> None:
    bank = aggregates(store)
    for _ in range(100):
        bank["alice"].deposit(1)
    bank["alice"].close_year()
    bank["alice"].deposit(5)
    for gone_before in (50, 101):
        store.gone_before["Account:alice"] = gone_before
        fresh = aggregates(store)
        assert fresh["alice"].state().balance == 105
        fresh["alice"].withdraw(5)
        with pytest.raises(HistoryGone, match="is not there any more"):
            fresh["alice"].state(version=60)
        with pytest.raises(HistoryGone):
            fresh["alice"].state(at=BEGINNING + timedelta(minutes=10))
        fresh["alice"].deposit(5)


# --- snapshots --------------------------------------------------------------------------------


@pytest.fixture
def snapshots() -> MemorySnapshots:
    return MemorySnapshots()


Banks = Callable[[], Any]


@pytest.fixture
def restarted(store: MemoryEvents, snapshots: MemorySnapshots) -> Banks:
    """A bank of a process that has just started."""
    return lambda: aggregates(store, snapshots=snapshots, snapshot_every=10)


def test_a_snapshot_saves_a_replay(
    store: MemoryEvents, snapshots: MemorySnapshots, restarted: Banks
) -> None:
    for _ in range(25):
        restarted()["alice"].deposit(1)
    assert msgspec.json.decode(snapshots.values["Account:alice"])["version"] == 20
    store.reads = 0
    assert restarted()["alice"].state().balance == 25
    assert store.reads == 6
    assert restarted()["alice"].state(version=15).balance == 15


def test_a_damaged_snapshot_is_ignored_and_told(
    snapshots: MemorySnapshots, restarted: Banks, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        restarted()["alice"].deposit(1)
    good = snapshots.values["Account:alice"]
    for at in range(0, len(good), 7):
        bad = bytearray(good)
        bad[at] ^= 1
        snapshots.values["Account:alice"] = bytes(bad)
        caplog.clear()
        assert restarted()["alice"].state().balance == 10
        assert "is passed over" in caplog.text
    for cut in (0, 1, len(good) // 2, len(good) - 1):
        snapshots.values["Account:alice"] = good[:cut]
        assert restarted()["alice"].state().balance == 10


def test_a_snapshot_of_a_topic_that_was_made_anew_is_ignored(
    store: MemoryEvents, restarted: Banks, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        restarted()["alice"].deposit(1)
    store.events.clear()
    assert restarted()["alice"].state().balance == 0
    for _ in range(11):
        aggregates(store)["alice"].deposit(5)
    assert restarted()["alice"].state().balance == 55
    assert "its last event is not in the stream" in caplog.text


def test_a_shun_after_a_snapshot_counts(restarted: Banks) -> None:
    ids = [restarted()["alice"].deposit(1).events[0] for _ in range(12)]
    restarted()["alice"].shun(ids[3])
    assert restarted()["alice"].state().balance == 11
    for _ in range(10):
        restarted()["alice"].deposit(1)
    assert restarted()["alice"].state().balance == 21


def test_a_state_that_would_not_come_back_is_not_kept(
    store: MemoryEvents, snapshots: MemorySnapshots, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Aggregate, name="Odd"):
        seen = frozenset[str]()

        def deposit(self, amount: int) -> Iterator[object]:
            yield Deposited(amount)

        def on_Deposited(self, found: Deposited) -> None:  # noqa: N802 - the name of the event
            self.seen |= {str(found.amount)}

    odd = aggregates(store, Odd, snapshots=snapshots, snapshot_every=2)
    for amount in range(6):
        odd["a"].deposit(amount)
    assert not snapshots.values
    assert caplog.text.count("`seen` would not come back as it is: declare its type") == 1
    assert aggregates(store, Odd, snapshots=snapshots)["a"].state().seen == set("012345")


def test_old_versions_are_lifted_in_a_replay(store: MemoryEvents) -> None:
    @event(name="Paid", version=2)
    class Paid:
        cents: int

    upcast(Paid, from_version=1)(lambda data: {"cents": data["euros"] * 100})

    class Till(Aggregate):
        total = 0

        def pay(self, cents: int) -> Iterator[object]:
            yield Paid(cents)

        def on_Paid(self, found: Paid) -> None:  # noqa: N802 - the name of the event
            self.total += found.cents

    store.append("Till:1", [NewEvent(type="Paid", data=b'{"euros":3}', id="x")])
    till = aggregates(store, Till)
    till["1"].pay(50)
    assert till["1"].state().total == 350
    assert [one.event for one in till["1"].history()] == [Paid(300), Paid(50)]
