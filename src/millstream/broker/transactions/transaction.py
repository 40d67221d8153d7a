"""One transactional id: its producer, its epoch, and the transaction it is in (KIP-98, KIP-890).

    EMPTY ──add──> ONGOING ──end──> PREPARE_COMMIT ──markers written──> COMPLETE_COMMIT
      ^               │ ^                 or                                  │ │
      │             end │          PREPARE_ABORT ─────────────────> COMPLETE_ABORT
      └── renew ──────│─┴──────────────────── add ────────────────────────────┘ │
      └───────────────┴──────────────────── renew ──────────────────────────────┘

Each step makes a new value and leaves the old one alone; the shell stores the new one, durably,
before anything is done on the strength of it. A PREPARE state is the decision: from there on only
its markers can follow, also after a crash. Time is a parameter; what is wrong is raised.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from millstream.base.errors import Rejected, Retryable

NO_PRODUCER_ID = -1
NO_EPOCH = -1
# Epochs are int16. The last one is kept for fencing: from the one before it on, a new producer id
# is taken.
EPOCH_MAX = (1 << 15) - 1
EPOCH_EXHAUSTED = EPOCH_MAX - 1


class TransactionState(Enum):
    """The values are the names that ListTransactions and DescribeTransactions show."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


class Place(NamedTuple):
    """A partition that takes part in a transaction."""

    topic: str
    partition: int


class Identity(NamedTuple):
    """As whom a producer speaks. An older epoch is a zombie's."""

    producer_id: int
    epoch: int


class UnknownProducer(Rejected):
    """The transactional id does not exist, or belongs to another producer id."""

    def __init__(self, *, transactional_id: str, producer_id: int) -> None:
        super().__init__(
            f"transactional id {transactional_id!r}: producer {producer_id} is not its producer; "
            "initialise it first"
        )
        self.transactional_id, self.producer_id = transactional_id, producer_id


class ProducerFenced(Rejected):
    """A newer producer with the same transactional id has taken over, or it timed out."""

    def __init__(self, *, transactional_id: str, epoch: int, current: int) -> None:
        super().__init__(
            f"transactional id {transactional_id!r}: epoch {epoch} is over, the current one is "
            f"{current}; a newer producer has taken over, or the transaction timed out"
        )
        self.transactional_id, self.epoch, self.current = transactional_id, epoch, current


class WrongTransactionState(Rejected):
    """What is asked for cannot follow on what was done."""

    def __init__(self, *, transactional_id: str, state: TransactionState, wanted: str) -> None:
        super().__init__(f"transactional id {transactional_id!r}: {wanted} while {state.value}")
        self.transactional_id, self.state, self.wanted = transactional_id, state, wanted


class NotInThisTransaction(Rejected):
    """A write to a partition that was not added to the transaction."""

    def __init__(self, *, transactional_id: str, place: Place) -> None:
        super().__init__(
            f"transactional id {transactional_id!r}: {place.topic}-{place.partition} is not part "
            "of its transaction"
        )
        self.transactional_id, self.place = transactional_id, place


class InvalidTransactionTimeout(Rejected):
    def __init__(self, *, timeout_ms: int, limit_ms: int) -> None:
        super().__init__(
            f"a transaction timeout of {timeout_ms} ms: it must be from 1 to {limit_ms} ms "
            "(transaction.timeout.ms of the producer)"
        )
        self.timeout_ms, self.limit_ms = timeout_ms, limit_ms


class TransactionEnding(Retryable):
    """The last transaction of this id is decided, and its markers are being written."""

    def __init__(self, *, transactional_id: str) -> None:
        super().__init__(
            f"transactional id {transactional_id!r}: its last transaction is still being ended"
        )
        self.transactional_id = transactional_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of one transactional id. `places` is empty unless ONGOING or prepared."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    places: frozenset[Place] = frozenset()
    started_ms: int = -1
    updated_ms: int = -1
    # The epoch before this one, if its producer asked for the next itself: it may ask again.
    last_epoch: int = NO_EPOCH
    # When epochs run out: the id that was given up, and the one that follows.
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    # Whether each transaction has an epoch of its own (transaction.version 2, KIP-890).
    has_epoch_per_transaction: bool = False

    # --- questions ----------------------------------------------------------------------------

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.epoch)

    @property
    def places_by_topic(self) -> dict[str, list[int]]:
        """Topics and their partitions, sorted."""
        found: dict[str, list[int]] = {}
        for place in sorted(self.places):
            found.setdefault(place.topic, []).append(place.partition)
        return found

    @property
    def must_change_producer_id(self) -> bool:
        return self.epoch >= EPOCH_EXHAUSTED

    def is_timed_out(self, *, now_ms: int) -> bool:
        is_ongoing = self.state is TransactionState.ONGOING
        return is_ongoing and now_ms - self.started_ms >= self.timeout_ms

    def is_unused(self, *, now_ms: int, unused_ms: int) -> bool:
        can_go = self.state is TransactionState.EMPTY or self.state.is_complete
        return can_go and now_ms - self.updated_ms >= unused_ms

    def check(self, who: Identity) -> None:
        """Raise unless `who` is the current producer of this id."""
        if who.producer_id != self.producer_id:
            raise UnknownProducer(
                transactional_id=self.transactional_id, producer_id=who.producer_id
            )
        if who.epoch != self.epoch:
            raise ProducerFenced(
                transactional_id=self.transactional_id, epoch=who.epoch, current=self.epoch
            )

    def check_write(self, who: Identity, place: Place) -> None:
        """Raise unless `who` may write to `place` in a transaction now."""
        self.check(who)
        if self.state is not TransactionState.ONGOING or place not in self.places:
            raise NotInThisTransaction(transactional_id=self.transactional_id, place=place)

    # --- steps --------------------------------------------------------------------------------

    def renew(
        self, claimed: Identity | None, *, timeout_ms: int, new_producer_id: int, now_ms: int
    ) -> "Transaction":
        """InitProducerId: a new epoch fences whoever had the one before.

        `claimed` is a producer that goes on after an error and says who it is (KIP-360): it must
        be the current one. If it asks again for what it was given already, nothing changes. The
        caller has ended an ongoing transaction before (`fence`).
        """
        assert self.state is not TransactionState.ONGOING
        self._check_not_ending()
        self.check_claim(claimed)
        if claimed is not None and self._was_renewed_for(claimed):
            return replace(self, timeout_ms=timeout_ms, updated_ms=now_ms)
        fresh = replace(
            self,
            state=TransactionState.EMPTY,
            places=frozenset(),
            started_ms=-1,
            updated_ms=now_ms,
            timeout_ms=timeout_ms,
            next_producer_id=NO_PRODUCER_ID,
        )
        if self.must_change_producer_id:
            return replace(
                fresh,
                producer_id=new_producer_id,
                epoch=0,
                last_epoch=NO_EPOCH,
                previous_producer_id=self.producer_id,
            )
        last_epoch = self.epoch if claimed is not None else NO_EPOCH
        return replace(
            fresh,
            epoch=self.epoch + 1,
            last_epoch=last_epoch,
            previous_producer_id=NO_PRODUCER_ID,
        )

    def _was_renewed_for(self, claimed: Identity) -> bool:
        if claimed.producer_id == self.producer_id:
            return claimed.epoch != self.epoch and claimed.epoch == self.last_epoch
        is_exhausted = claimed.epoch >= EPOCH_EXHAUSTED
        return claimed.producer_id == self.previous_producer_id and is_exhausted

    def check_claim(self, claimed: Identity | None) -> None:
        """Raise if a producer says who it is, and is not the one that may go on."""
        if claimed is None or claimed == self.identity or self._was_renewed_for(claimed):
            return
        raise ProducerFenced(
            transactional_id=self.transactional_id, epoch=claimed.epoch, current=self.epoch
        )

    def add(
        self,
        who: Identity,
        places: frozenset[Place],
        *,
        now_ms: int,
        has_epoch_per_transaction: bool = False,
    ) -> "Transaction":
        """Let partitions take part; the first one begins the transaction."""
        self.check(who)
        self._check_not_ending()
        if self.state is not TransactionState.ONGOING:
            return replace(
                self,
                state=TransactionState.ONGOING,
                places=places,
                started_ms=now_ms,
                updated_ms=now_ms,
                has_epoch_per_transaction=has_epoch_per_transaction,
            )
        if places <= self.places:
            return self
        return replace(
            self,
            places=self.places | places,
            updated_ms=now_ms,
            has_epoch_per_transaction=has_epoch_per_transaction,
        )

    def end(
        self,
        who: Identity,
        *,
        is_commit: bool,
        has_epoch_per_transaction: bool,
        new_producer_id: int,
        now_ms: int,
    ) -> "Transaction":
        """Decide the transaction; itself if that was decided before (a retry)."""
        if self._was_ended_for(who, has_epoch_per_transaction):
            if self.state.is_commit != is_commit:
                raise self._wrong(is_commit)
            self._check_not_ending()
            return self
        self.check(who)
        self._check_not_ending()
        if self.state is not TransactionState.ONGOING and not (
            has_epoch_per_transaction and not is_commit
        ):
            raise self._wrong(is_commit)
        # An abort may come before the first write has: its own epoch keeps that one out later.
        prepared = self._prepare(is_commit=is_commit, now_ms=now_ms)
        if not has_epoch_per_transaction:
            return prepared
        next_id = new_producer_id if self.must_change_producer_id else NO_PRODUCER_ID
        return replace(
            prepared,
            epoch=self.epoch + 1,
            last_epoch=self.epoch,
            next_producer_id=next_id,
            has_epoch_per_transaction=True,
        )

    def _was_ended_for(self, who: Identity, has_epoch_per_transaction: bool) -> bool:
        if not (self.state.is_prepared or self.state.is_complete):
            return False
        if not has_epoch_per_transaction:
            return who == self.identity
        if self.producer_id == who.producer_id:
            return who.epoch == self.epoch - 1
        return self.previous_producer_id == who.producer_id and self.epoch == 0

    def _wrong(self, is_commit: bool) -> WrongTransactionState:
        return WrongTransactionState(
            transactional_id=self.transactional_id,
            state=self.state,
            wanted="commit" if is_commit else "abort",
        )

    def _prepare(self, *, is_commit: bool, now_ms: int) -> "Transaction":
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        places = self.places if self.state is TransactionState.ONGOING else frozenset()
        return replace(self, state=state, places=places, updated_ms=now_ms)

    def fence(self, *, now_ms: int) -> "Transaction":
        """Abort an ongoing transaction from this side: its producer's epoch ends with it."""
        prepared = self._prepare(is_commit=False, now_ms=now_ms)
        return replace(prepared, epoch=self.epoch + 1, last_epoch=NO_EPOCH)

    def complete(self, *, now_ms: int) -> "Transaction":
        """All markers are durable."""
        is_commit = self.state.is_commit
        state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        done = replace(self, state=state, places=frozenset(), updated_ms=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return done
        return replace(
            done,
            producer_id=self.next_producer_id,
            epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )

    def _check_not_ending(self) -> None:
        if self.state.is_prepared:
            raise TransactionEnding(transactional_id=self.transactional_id)
