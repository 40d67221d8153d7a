from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from millstream.capture.change import CapturedTable, Change, Transaction
from millstream.capture.load import window as limits
from millstream.capture.load.window import Again, Journal, Noted, Window

ORDERS = CapturedTable(name="orders", topic="shop.orders", columns=(), key=("id",))
NOTES = CapturedTable(name="notes", topic="shop.notes", columns=(), key=())


@dataclass(frozen=True)
class ChunkThatSees:
    seen: tuple[str, ...] = ()
    rows: Sequence[tuple[bytes, bytes]] = ((b"1", b"one"), (b"2", b"two"), (b"3", b"three"))
    table: CapturedTable = ORDERS
    last_key: str | None = None
    closes_at: str = "9"

    def sees(self, transaction: Transaction) -> bool:
        return transaction.id in self.seen


def transaction(name: str) -> Transaction:
    return Transaction(commit=name, resume=name, id=name, at_ms=0, changes=())


def hand_over(journal: Journal, name: str, *keys: bytes) -> Noted:
    noted = journal.enter(transaction(name), frozenset({"orders", "notes"}))
    for key in keys:
        journal.add_key(noted, "orders", key)
    return noted


def arrived(journal: Journal, window: Window, chunk: ChunkThatSees) -> list[bytes]:
    window.arrive(chunk, journal)
    return [after for _, after in window.rows()]


def test_a_row_that_an_unseen_transaction_touched_is_dropped() -> None:
    journal = Journal()
    window = Window(ORDERS, journal.open())
    hand_over(journal, "seen", b"1")
    hand_over(journal, "unseen", b"2")
    assert arrived(journal, window, ChunkThatSees(("seen",))) == [b"one", b"three"]
    assert not window.must_read_again


def test_what_was_handed_over_before_the_window_and_is_not_seen_yet_counts_too() -> None:
    journal = Journal()
    hand_over(journal, "waits for its standby", b"2")
    window = Window(ORDERS, journal.open())
    assert arrived(journal, window, ChunkThatSees()) == [b"one", b"three"]


def test_a_transaction_of_before_the_load_that_is_not_seen_has_the_chunk_read_again() -> None:
    journal = Journal()
    journal.enter(transaction("early"), frozenset())
    seeing, blind = Window(ORDERS, journal.open()), Window(ORDERS, journal.open())
    seeing.arrive(ChunkThatSees(("early",)), journal)
    blind.arrive(ChunkThatSees(), journal)
    assert (seeing.must_read_again, blind.must_read_again) == (False, True)


@pytest.mark.parametrize(("keys_max", "must_read_again"), [(3, False), (2, True)])
def test_keys_are_noted_up_to_a_limit_and_beyond_it_the_chunk_is_read_again(
    monkeypatch: pytest.MonkeyPatch, keys_max: int, must_read_again: bool
) -> None:
    monkeypatch.setattr(limits, "KEYS_MAX", keys_max)
    journal = Journal()
    window = Window(ORDERS, journal.open())
    hand_over(journal, "large", b"1", b"2", b"2", b"7")
    window.arrive(ChunkThatSees(), journal)
    assert window.must_read_again is must_read_again


def test_keys_of_a_transaction_that_all_snapshots_see_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "KEYS_MAX", 2)
    journal = Journal()
    hand_over(journal, "first", b"1", b"2")
    journal.saw(ChunkThatSees(("first",)))
    journal.trim(None)
    assert len(journal) == 0
    assert hand_over(journal, "second", b"1", b"2").keys_of("orders") == {b"1", b"2"}


def test_a_seen_transaction_is_kept_for_windows_that_opened_before_it_was_seen() -> None:
    journal = Journal()
    hand_over(journal, "first", b"1")
    older = journal.open()
    journal.saw(ChunkThatSees(("first",)))
    journal.trim(older)
    assert len(journal) == 1
    journal.trim(journal.open())
    assert len(journal) == 0


@pytest.mark.parametrize(("transactions_max", "must_settle"), [(3, False), (2, True)])
def test_a_journal_that_had_to_forget_one_wants_the_database_to_settle(
    monkeypatch: pytest.MonkeyPatch, transactions_max: int, must_settle: bool
) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONS_MAX", transactions_max)
    journal = Journal()
    assert journal.must_settle  # nobody knows what a former run handed over
    journal.settle(journal.open())
    assert not journal.must_settle
    opening = journal.open()
    for name in "abc":
        hand_over(journal, name)
    assert journal.must_settle is must_settle
    assert journal.has_all_unseen(opening) is not must_settle


def test_a_chunk_is_read_again_when_one_it_may_not_see_was_forgotten_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that was handed over before the chunk was asked for."""
    monkeypatch.setattr(limits, "TRANSACTIONS_MAX", 1)
    journal = Journal()
    hand_over(journal, "before", b"1")
    window = Window(ORDERS, journal.open())
    hand_over(journal, "after")  # no room for both
    window.arrive(ChunkThatSees(), journal)
    assert window.must_read_again


def test_one_that_every_snapshot_sees_may_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONS_MAX", 1)
    journal = Journal()
    journal.settle(journal.open())
    hand_over(journal, "seen", b"1")
    journal.saw(ChunkThatSees(("seen",)))
    older, newer = journal.open(), journal.open()
    hand_over(journal, "next")
    assert journal.has_all_unseen(older)
    assert journal.has_all_unseen(newer)
    assert not journal.must_settle


def test_what_passes_while_nothing_is_loaded_is_not_noted() -> None:
    journal = Journal()
    journal.settle(journal.open())
    journal.pass_by()
    assert len(journal) == 0
    assert journal.must_settle


def test_changes_of_a_table_without_a_key_come_again_after_its_rows() -> None:
    journal = Journal()
    window = Window(NOTES, journal.open())
    change = Change(NOTES, "c", None, None, b"new")
    for name in ("seen", "unseen"):
        noted = hand_over(journal, name)
        journal.add_change(noted, "notes", Again(noted.transaction, 0, change))
    window.arrive(ChunkThatSees(("seen",), [(b"", b"x"), (b"", b"x")], NOTES), journal)
    assert window.rows() == [(None, b"x"), (None, b"x")]
    assert [again.transaction.id for again in window.again()] == ["unseen"]


@pytest.mark.parametrize(("count", "must_read_again"), [(2, False), (3, True)])
def test_so_many_changes_come_again_and_beyond_it_the_table_is_read_again(
    monkeypatch: pytest.MonkeyPatch, count: int, must_read_again: bool
) -> None:
    monkeypatch.setattr(limits, "KEYLESS_CHANGES_MAX", 2)
    window = Window(NOTES, Journal().open())
    for seq in range(count):
        change = Change(NOTES, "c", None, None, b"new")
        window.add_again(Again(transaction("late"), seq, change))
    assert window.must_read_again is must_read_again
