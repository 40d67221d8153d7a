"""One transactional id, step by step, without a broker."""

from dataclasses import replace

import pytest

from millstream.broker.transactions.transaction import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    Identity,
    NotInThisTransaction,
    Place,
    ProducerFenced,
    Transaction,
    TransactionEnding,
    TransactionState,
    UnknownProducer,
    WrongTransactionState,
)
from millstream.broker.transactions.transaction_records import (
    read_transaction,
    transaction_key,
    transaction_value,
)

NOW_MS = 1_700_000_000_000
ORDERS, AUDIT = Place("orders", 0), Place("audit", 3)
NEW_ID = 77
S = TransactionState


def fresh(**more: object) -> Transaction:
    made = Transaction(
        transactional_id="tx", producer_id=5, epoch=0, timeout_ms=60_000, updated_ms=NOW_MS
    )
    return replace(made, **more)  # type: ignore[arg-type] # any field


def ongoing(**more: object) -> Transaction:
    made = fresh().add(Identity(5, 0), frozenset({ORDERS}), now_ms=NOW_MS)
    return replace(made, **more)  # type: ignore[arg-type] # any field


def renew(one: Transaction, claimed: Identity | None = None) -> Transaction:
    return one.renew(claimed, timeout_ms=30_000, new_producer_id=NEW_ID, now_ms=NOW_MS + 1)


def end(
    one: Transaction, who: Identity | None = None, *, is_commit: bool = True, newer: bool = False
) -> Transaction:
    return one.end(
        who or one.identity,
        is_commit=is_commit,
        has_epoch_per_transaction=newer,
        new_producer_id=NEW_ID,
        now_ms=NOW_MS + 2,
    )


def completed(one: Transaction, *, is_commit: bool = True, newer: bool = False) -> Transaction:
    return end(one, is_commit=is_commit, newer=newer).complete(now_ms=NOW_MS + 3)


# --- a new epoch ------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [fresh(), completed(ongoing())], ids=["empty", "complete"])
def test_who_initialises_gets_the_next_epoch(before: Transaction) -> None:
    after = renew(before)
    assert after.identity == (5, 1)
    assert (after.state, after.places, after.timeout_ms) == (S.EMPTY, frozenset(), 30_000)


def test_while_a_decision_is_carried_out_nothing_else_happens() -> None:
    prepared = end(ongoing())
    with pytest.raises(TransactionEnding):
        renew(prepared)
    with pytest.raises(TransactionEnding):
        prepared.add(prepared.identity, frozenset({AUDIT}), now_ms=NOW_MS)
    with pytest.raises(TransactionEnding):
        end(prepared)


def test_a_producer_that_says_who_it_is_must_be_the_current_one() -> None:
    assert renew(fresh(epoch=4), Identity(5, 4)).identity == (5, 5)
    for zombie in (Identity(5, 3), Identity(5, 6), Identity(6, 4)):
        with pytest.raises(ProducerFenced):
            renew(fresh(epoch=4), zombie)


def test_a_producer_that_asks_again_gets_the_same_answer() -> None:
    once = renew(fresh(epoch=4), Identity(5, 4))
    assert renew(once, Identity(5, 4)).identity == once.identity
    assert renew(once, Identity(5, 5)).identity == (5, 6)


def test_nobody_else_profits_from_a_repeated_question() -> None:
    """The epoch was given to one who did not say who it was: the old one is a zombie's."""
    with pytest.raises(ProducerFenced):
        renew(renew(fresh(epoch=4)), Identity(5, 4))


def test_when_epochs_run_out_a_new_producer_id_is_taken() -> None:
    assert renew(fresh(epoch=EPOCH_EXHAUSTED - 1)).identity == (5, EPOCH_EXHAUSTED)
    rotated = renew(fresh(epoch=EPOCH_EXHAUSTED), Identity(5, EPOCH_EXHAUSTED))
    assert rotated.identity == (NEW_ID, 0)
    assert renew(rotated, Identity(5, EPOCH_EXHAUSTED)).identity == (NEW_ID, 0)
    with pytest.raises(ProducerFenced):
        renew(rotated, Identity(5, 3))


# --- taking part ------------------------------------------------------------------------------


def test_the_first_partition_begins_the_transaction() -> None:
    assert (ongoing().state, ongoing().started_ms) == (S.ONGOING, NOW_MS)
    more = ongoing().add(Identity(5, 0), frozenset({AUDIT}), now_ms=NOW_MS + 9)
    assert more.places == {ORDERS, AUDIT}
    assert more.started_ms == NOW_MS


def test_a_partition_that_takes_part_changes_nothing() -> None:
    one = ongoing()
    assert one.add(one.identity, frozenset({ORDERS}), now_ms=NOW_MS + 9) is one


def test_the_next_transaction_starts_without_the_partitions_of_the_last() -> None:
    again = completed(ongoing()).add(Identity(5, 0), frozenset({AUDIT}), now_ms=NOW_MS + 9)
    assert (again.places, again.started_ms) == (frozenset({AUDIT}), NOW_MS + 9)


@pytest.mark.parametrize(
    ("who", "error"),
    [
        (Identity(6, 0), UnknownProducer),
        (Identity(5, 1), ProducerFenced),
        (Identity(5, -1), ProducerFenced),
    ],
)
def test_only_the_current_producer_does_anything(who: Identity, error: type[Exception]) -> None:
    with pytest.raises(error):
        ongoing().add(who, frozenset({AUDIT}), now_ms=NOW_MS)
    with pytest.raises(error):
        end(ongoing(), who)
    with pytest.raises(error):
        ongoing().check_write(who, ORDERS)


def test_only_what_takes_part_may_be_written_to_and_only_until_the_end() -> None:
    ongoing().check_write(Identity(5, 0), ORDERS)
    for one in (ongoing(), fresh(), end(ongoing()), completed(ongoing())):
        with pytest.raises(NotInThisTransaction):
            one.check_write(Identity(5, 0), AUDIT if one.state is S.ONGOING else ORDERS)


# --- the end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_commit", "prepared", "complete"),
    [
        (True, S.PREPARE_COMMIT, S.COMPLETE_COMMIT),
        (False, S.PREPARE_ABORT, S.COMPLETE_ABORT),
    ],
)
def test_an_end_is_decided_and_then_done(
    is_commit: bool, prepared: TransactionState, complete: TransactionState
) -> None:
    decided = end(ongoing(), is_commit=is_commit)
    assert (decided.state, decided.places, decided.epoch) == (prepared, frozenset({ORDERS}), 0)
    done = decided.complete(now_ms=NOW_MS + 3)
    assert (done.state, done.places, done.identity) == (complete, frozenset(), (5, 0))


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
def test_a_repeated_end_changes_nothing_and_a_contrary_one_is_refused(
    is_commit: bool, newer: bool
) -> None:
    before = ongoing()
    done = completed(before, is_commit=is_commit, newer=newer)
    assert end(done, before.identity, is_commit=is_commit, newer=newer) is done
    with pytest.raises(WrongTransactionState):
        end(done, before.identity, is_commit=not is_commit, newer=newer)


def test_nothing_to_end_is_refused() -> None:
    for is_commit in (True, False):
        with pytest.raises(WrongTransactionState):
            end(fresh(), is_commit=is_commit)
    with pytest.raises(WrongTransactionState):
        end(fresh(), newer=True)


def test_each_transaction_has_an_epoch_of_its_own_in_the_newer_flow() -> None:
    decided = end(ongoing(), newer=True)
    assert decided.identity == (5, 1), "the markers carry the next epoch, and fence the last"
    assert decided.complete(now_ms=NOW_MS).identity == (5, 1)


def test_an_abort_may_come_before_the_first_write_and_keeps_it_out() -> None:
    decided = end(fresh(), is_commit=False, newer=True)
    assert (decided.state, decided.places, decided.epoch) == (S.PREPARE_ABORT, frozenset(), 1)
    done = decided.complete(now_ms=NOW_MS)
    with pytest.raises(ProducerFenced):
        done.add(Identity(5, 0), frozenset({ORDERS}), now_ms=NOW_MS)


def test_the_last_epoch_ends_with_a_new_producer_id() -> None:
    last = ongoing(epoch=EPOCH_EXHAUSTED)
    decided = end(last, newer=True)
    assert decided.identity == (5, EPOCH_MAX), "the markers are still the old producer's"
    done = decided.complete(now_ms=NOW_MS)
    assert done.identity == (NEW_ID, 0)
    assert end(done, last.identity, newer=True) is done


# --- time -------------------------------------------------------------------------------------


def test_a_transaction_times_out_at_its_timeout_and_not_before() -> None:
    assert not ongoing().is_timed_out(now_ms=NOW_MS + 59_999)
    assert ongoing().is_timed_out(now_ms=NOW_MS + 60_000)
    assert not fresh().is_timed_out(now_ms=NOW_MS + 60_000)


def test_who_is_fenced_can_do_nothing_more() -> None:
    fenced = ongoing(epoch=EPOCH_EXHAUSTED).fence(now_ms=NOW_MS)
    assert (fenced.state, fenced.epoch, fenced.places) == (
        S.PREPARE_ABORT,
        EPOCH_MAX,
        frozenset({ORDERS}),
    )
    done = fenced.complete(now_ms=NOW_MS)
    with pytest.raises(ProducerFenced):
        end(done, Identity(5, EPOCH_EXHAUSTED))
    assert renew(done).identity == (NEW_ID, 0)


def test_an_id_is_unused_only_when_nothing_is_open() -> None:
    assert fresh().is_unused(now_ms=NOW_MS + 10, unused_ms=10)
    assert not fresh().is_unused(now_ms=NOW_MS + 9, unused_ms=10)
    assert not ongoing().is_unused(now_ms=NOW_MS + 10**9, unused_ms=10)
    assert not end(ongoing()).is_unused(now_ms=NOW_MS + 10**9, unused_ms=10)


# --- the way to disk and back -----------------------------------------------------------------


@pytest.mark.parametrize(
    "one",
    [
        fresh(),
        ongoing(places=frozenset({ORDERS, AUDIT, Place("audit", 1)})),
        end(ongoing(), newer=True),
        end(ongoing(epoch=EPOCH_EXHAUSTED), newer=True),
        completed(ongoing(epoch=EPOCH_EXHAUSTED), newer=True),
        completed(ongoing(), is_commit=False),
    ],
    ids=lambda one: f"{one.state.value}-{one.epoch}",
)
def test_what_is_stored_comes_back(one: Transaction) -> None:
    back = read_transaction(transaction_key(one.transactional_id), transaction_value(one))
    assert back == replace(one, last_epoch=-1)
