"""The shell around transactions: what is decided is stored, and then done.

The rules are pure (`transactions/`). Here each step of a transactional id is made durable in
`__transaction_state` before anyone hears of it, markers are written to every partition of an
ended transaction, and a restart goes on with what was decided. One id does one thing at a time.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError
from millstream.broker.durable_state import DurableState
from millstream.broker.group_commit import GroupCommit
from millstream.broker.group_coordinator import GroupCoordinator
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.topics import OFFSETS_TOPIC, Topics, UnknownPartition, UnknownTopic
from millstream.broker.transactions.transaction import (
    NO_PRODUCER_ID,
    Identity,
    InvalidTransactionTimeout,
    Place,
    Transaction,
    TransactionEnding,
    TransactionState,
    UnknownProducer,
)
from millstream.broker.transactions.transaction_records import (
    read_transaction,
    transaction_key,
    transaction_value,
)
from millstream.log.producer_state import StaleProducerEpoch
from millstream.log.record_batch import Marker

logger = logging.getLogger(__name__)

# Where a group's offsets are kept; as part of a transaction, so are its markers.
OFFSETS_PLACE = Place(OFFSETS_TOPIC, 0)


@dataclass(slots=True)
class _Slot:
    """One transactional id, as it is stored. Whoever changes it holds the lock."""

    transaction: Transaction | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # The decision is on its way to the disk: no write may come in any more.
    is_ending: bool = False
    # Where the markers of the decision are already: a retry must not write them again.
    marked: set[Place] = field(default_factory=set)
    # How many writes wait for a partition to take part. A later write must not overtake one.
    queued_writes: int = 0


class WriteTurn:
    """The turn of a write that waits for its partition to take part, from its arrival on.

    Leave it (`with`) when the write is done. Others that come meanwhile queue behind it.
    """

    __slots__ = ("_slot",)

    def __init__(self, slot: _Slot) -> None:
        self._slot = slot
        slot.queued_writes += 1

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._slot.queued_writes -= 1


@dataclass(slots=True)
class TransactionCounts:
    """How transactions ended since the start, for telemetry."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0


class TransactionCoordinator:
    """Every transactional id. Owned by the loop."""

    def __init__(
        self,
        state: DurableState,
        *,
        topics: Topics,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        commit: GroupCommit,
        coordinator_epoch: int,
        timeout_ms_max: int,
        now_ms: Clock,
    ) -> None:
        self.partition = state.partition
        self._state = state
        self._topics = topics
        self._groups = groups
        self._producer_ids = producer_ids
        self._commit = commit
        self._coordinator_epoch = coordinator_epoch
        self._timeout_ms_max = timeout_ms_max
        self._now_ms = now_ms
        self._slots: dict[str, _Slot] = {}
        self.counts = TransactionCounts()
        for key, value in state:
            transaction = read_transaction(key, value)
            self._slots[transaction.transactional_id] = _Slot(transaction)

    # --- look up ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Transaction]:
        return (one.transaction for one in self._slots.values() if one.transaction is not None)

    def find(self, transactional_id: str) -> Transaction | None:
        slot = self._slots.get(transactional_id)
        return slot.transaction if slot else None

    def check_write(self, transactional_id: str, who: Identity, place: Place) -> None:
        """Raise unless the producer may write to `place` in its transaction at this moment."""
        slot, transaction = self._known(transactional_id, who)
        if slot.is_ending:
            raise TransactionEnding(transactional_id=transactional_id)
        transaction.check_write(who, place)

    def has_queued_writes(self, transactional_id: str) -> bool:
        """Whether writes wait for their partition to take part: later ones queue behind them."""
        slot = self._slots.get(transactional_id)
        return slot is not None and slot.queued_writes > 0

    def queue_write(self, transactional_id: str) -> WriteTurn:
        """Take a turn for a write of a known id, at once when it arrives."""
        return WriteTurn(self._slots[transactional_id])

    def _known(self, transactional_id: str, who: Identity) -> tuple[_Slot, Transaction]:
        slot = self._slots.get(transactional_id)
        if slot is None or slot.transaction is None:
            raise UnknownProducer(transactional_id=transactional_id, producer_id=who.producer_id)
        return slot, slot.transaction

    # --- what producers ask for ---------------------------------------------------------------

    async def init(
        self, transactional_id: str, *, timeout_ms: int, claimed: Identity | None
    ) -> Identity:
        """A new epoch for the id: it ends what the last one left open, and fences it."""
        if not 0 < timeout_ms <= self._timeout_ms_max:
            raise InvalidTransactionTimeout(timeout_ms=timeout_ms, limit_ms=self._timeout_ms_max)
        while True:
            slot = self._slots.setdefault(transactional_id, _Slot())
            async with slot.lock:
                if self._slots.get(transactional_id) is not slot:
                    continue  # forgotten while this waited
                renewed = await self._renewed(slot, transactional_id, timeout_ms, claimed)
                await self._store(slot, renewed)
                return renewed.identity

    async def _renewed(
        self, slot: _Slot, transactional_id: str, timeout_ms: int, claimed: Identity | None
    ) -> Transaction:
        if slot.transaction is None:
            return Transaction(
                transactional_id=transactional_id,
                producer_id=await self._producer_ids.take(),
                epoch=0,
                timeout_ms=timeout_ms,
                updated_ms=self._now_ms(),
            )
        slot.transaction.check_claim(claimed)
        if slot.transaction.state is TransactionState.ONGOING:
            await self._end_with(slot, slot.transaction.fence(now_ms=self._now_ms()))
        transaction = await self._finished(slot)
        return transaction.renew(
            claimed,
            timeout_ms=timeout_ms,
            new_producer_id=await self._new_id_for(transaction),
            now_ms=self._now_ms(),
        )

    async def add(
        self,
        transactional_id: str,
        who: Identity,
        places: frozenset[Place],
        *,
        has_epoch_per_transaction: bool = False,
    ) -> None:
        """Let partitions take part in the producer's transaction, durably."""
        slot, _ = self._known(transactional_id, who)
        async with slot.lock:  # in the order in which they came
            transaction = await self._current(slot, transactional_id, who)
            added = transaction.add(
                who,
                places,
                now_ms=self._now_ms(),
                has_epoch_per_transaction=has_epoch_per_transaction,
            )
            if added is not transaction:
                await self._store(slot, added)

    async def end(
        self,
        transactional_id: str,
        who: Identity,
        *,
        is_commit: bool,
        has_epoch_per_transaction: bool = False,
    ) -> Identity:
        """Commit or abort; returns when every marker is durable: as whom to go on."""
        slot, _ = self._known(transactional_id, who)
        async with slot.lock:
            transaction = await self._current(slot, transactional_id, who)
            ended = transaction.end(
                who,
                is_commit=is_commit,
                has_epoch_per_transaction=has_epoch_per_transaction,
                new_producer_id=await self._new_id_for(transaction),
                now_ms=self._now_ms(),
            )
            if ended is not transaction:
                await self._end_with(slot, ended)
            return (slot.transaction or ended).identity

    async def _new_id_for(self, transaction: Transaction) -> int:
        must_change = transaction.must_change_producer_id
        return await self._producer_ids.take() if must_change else NO_PRODUCER_ID

    # --- from the decision to its end ---------------------------------------------------------

    async def _end_with(self, slot: _Slot, prepared: Transaction) -> None:
        """Store the decision, then carry it out."""
        slot.is_ending = True
        try:
            await self._store(slot, prepared)
            await self._finished(slot)
        finally:
            slot.is_ending = slot.transaction is not None and slot.transaction.state.is_prepared

    async def _current(self, slot: _Slot, transactional_id: str, who: Identity) -> Transaction:
        """What the id is in, with nothing left to do; it may be forgotten by now."""
        if slot.transaction is None:
            raise UnknownProducer(transactional_id=transactional_id, producer_id=who.producer_id)
        return await self._finished(slot)

    async def _finished(self, slot: _Slot) -> Transaction:
        """The transaction once its markers are written, if there are any to write."""
        transaction = slot.transaction
        assert transaction is not None
        if transaction.state.is_prepared:
            await self._write_markers(slot, transaction)
            slot.marked.clear()
            slot.transaction = transaction.complete(now_ms=self._now_ms())
            slot.is_ending = False
            self._count(slot.transaction)
            self._note_completed(slot.transaction)
        return slot.transaction or transaction

    def _count(self, ended: Transaction) -> None:
        if ended.state.is_commit:
            self.counts.committed += 1
        else:
            self.counts.aborted += 1

    def _note_completed(self, transaction: Transaction) -> None:
        """Nobody need wait for this record: without it a restart writes the markers again."""
        try:
            self._put(transaction).add_done_callback(_report_loss)
        except MillstreamError as error:
            logger.error("%s: its end is not stored: %s", transaction.transactional_id, error)

    async def _write_markers(self, slot: _Slot, transaction: Transaction) -> None:
        marker = Marker(transaction.state.is_commit, self._coordinator_epoch)
        places = sorted(transaction.places - slot.marked)
        outcomes = await asyncio.gather(
            *(self._write_marker(marker, transaction.identity, place) for place in places),
            return_exceptions=True,
        )
        for place, outcome in zip(places, outcomes, strict=True):
            if outcome is None:
                slot.marked.add(place)
        for outcome in outcomes:
            if isinstance(outcome, MillstreamError):
                logger.error(
                    "transactional id %s: a marker could not be written, tried again later: %s",
                    transaction.transactional_id,
                    outcome,
                )
                raise TransactionEnding(transactional_id=transaction.transactional_id)
            if isinstance(outcome, BaseException):
                raise outcome

    async def _write_marker(self, marker: Marker, who: Identity, place: Place) -> None:
        try:
            if place == OFFSETS_PLACE:
                await self._groups.end_transaction(marker, who)
            else:
                partition = self._topics.named(place.topic).partition(place.partition)
                appended = partition.append_marker(marker, who=who, now_ms=self._now_ms())
                await self._commit.durable(partition, appended)
        except (UnknownTopic, UnknownPartition):
            pass  # deleted meanwhile, with all that was written to it
        except StaleProducerEpoch as error:
            logger.warning("%s-%d: a marker came too late: %s", *place, error)

    async def _store(self, slot: _Slot, transaction: Transaction) -> None:
        await self._put(transaction)
        slot.transaction = transaction

    def _put(self, transaction: Transaction) -> "asyncio.Future[None]":
        change = (transaction_key(transaction.transactional_id), transaction_value(transaction))
        return self._state.put([change], now_ms=self._now_ms())

    # --- chores -------------------------------------------------------------------------------

    async def resume(self) -> None:
        """Carry out what was decided and not finished: before clients can connect, and later."""
        for slot in tuple(self._slots.values()):
            if _is_prepared(slot) and not slot.lock.locked():
                async with slot.lock:
                    try:
                        await self._finished(slot)
                    except TransactionEnding:
                        slot.is_ending = True  # reported; the next time may find the disk mended

    async def abort_timed_out(self) -> None:
        for slot in tuple(self._slots.values()):
            if _is_timed_out(slot, self._now_ms()) and not slot.lock.locked():
                async with slot.lock:
                    await self._abort_if_timed_out(slot)

    async def _abort_if_timed_out(self, slot: _Slot) -> None:
        transaction = slot.transaction
        if transaction is None or not transaction.is_timed_out(now_ms=self._now_ms()):
            return
        logger.warning(
            "transactional id %s: open for more than %d ms, aborted",
            transaction.transactional_id,
            transaction.timeout_ms,
        )
        self.counts.timed_out += 1
        await self._end_with(slot, transaction.fence(now_ms=self._now_ms()))

    async def forget_unused(self, *, unused_ms: int) -> None:
        """Drop ids that nobody has used for so long."""
        now_ms = self._now_ms()
        for name, slot in tuple(self._slots.items()):
            transaction = slot.transaction
            if transaction is None or slot.lock.locked():
                continue
            if transaction.is_unused(now_ms=now_ms, unused_ms=unused_ms):
                async with slot.lock:
                    await self._state.put_deletion([(transaction_key(name), None)], now_ms=now_ms)
                    slot.transaction = None
                    del self._slots[name]

    def rewrite_if_worth_it(self) -> None:
        self._state.rewrite_if_worth_it(now_ms=self._now_ms())


def _is_prepared(slot: _Slot) -> bool:
    return slot.transaction is not None and slot.transaction.state.is_prepared


def _is_timed_out(slot: _Slot, now_ms: int) -> bool:
    return slot.transaction is not None and slot.transaction.is_timed_out(now_ms=now_ms)


def _report_loss(stored: "asyncio.Future[None]") -> None:
    error = stored.exception()
    if error is not None:
        logger.error("the end of a transaction could not be stored: %s", error)
