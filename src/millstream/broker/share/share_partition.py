"""One partition as one share group sees it: which record is whose, and what became of it.

It knows offsets only. The shell reads the log from `next_fetch_offset`, and hands what it read to
`acquire`; it calls `expire` when `deadline_ms` has come, and stores `take_change` after each call
before it answers (docs/decisions/0011-share-groups.md). No clock, log or disk.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from millstream.base.offsets import OffsetRange
from millstream.broker.share.acknowledgement import (
    Acknowledgement,
    AcknowledgeType,
    InvalidAcknowledgement,
    NotAcquired,
)
from millstream.broker.share.acquisition import (
    AcquireMode,
    Choice,
    Demand,
    Fetched,
    bundle,
    choose,
)
from millstream.broker.share.delivery import NEW, Delivery, Lock
from millstream.broker.share.lock_deadlines import LockDeadlines
from millstream.broker.share.offset_runs import OffsetRuns, Run
from millstream.broker.share.share_state import (
    ShareState,
    StateBatch,
    StateChange,
    touched_batches,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareTerms:
    """The settings of a share group. Kafka's defaults."""

    lock_ms: int = 30_000  # share.record.lock.duration.ms
    delivery_count_max: int = 5  # share.delivery.count.limit
    # Offsets from the first that is not done to the last that was handed out; a batch of the log
    # that begins below the limit is handed out whole, unless the member limits its records.
    records_in_flight_max: int = 2_000  # share.partition.max.record.locks


class AcquiredRecords(NamedTuple):
    """Handed to the member for the `delivery_count`th time."""

    offsets: OffsetRange
    delivery_count: int


class DeadLetterReason(Enum):
    DELIVERIES_USED_UP = "its deliveries are used up"
    REJECTED = "it was rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Records that the group has given up on: they belong into its dead-letter topic."""

    offsets: OffsetRange
    delivery_count: int
    reason: DeadLetterReason
    member_id: str  # the last one that held them


DeadLetters = tuple[DeadLetter, ...]

# Who holds a record that was given up while its dead letter is written: no member has this name.
DEAD_LETTER_OFFICE = ""


class SharePartition:
    """Offsets [start_offset, end_offset) are in flight; before them all is done, after them new.

    The first one in flight is never done. `terms` may be replaced at any time, and count from the
    next call on. With `keeps_dead_letters` a record that is given up is done only once the shell
    says that its dead letter is written (`bury`); if it never says so, the record comes again.
    """

    def __init__(self, start_offset: int, *, terms: ShareTerms) -> None:
        self.terms = terms
        self.keeps_dead_letters = False
        self._runs = OffsetRuns[Delivery](start_offset)
        self._locks = LockDeadlines()
        self._available_min = start_offset  # no offset in flight before this one is available
        self._complete_count = 0
        self._deleted_before = 0
        self._unsaved: list[OffsetRange] = []
        self._saved_start: int | None = None

    @classmethod
    def restored(cls, state: ShareState, *, terms: ShareTerms) -> "SharePartition":
        """Become what was stored: whoever held a record does so no longer."""
        assert state.is_started, "say where to start, by share.auto.offset.reset"
        partition = cls(state.start_offset, terms=terms)
        for batch in state.batches:
            attempts, phase = batch.delivery
            size = batch.end - batch.start
            delivery = Delivery(phase, attempts, batch_len=0 if phase.is_final else size)
            partition._mark(Run(batch.start, batch.end, delivery))
        partition._unsaved, partition._saved_start = [], state.start_offset
        partition._advance()
        return partition

    # Questions.

    @property
    def start_offset(self) -> int:
        return self._runs.start

    @property
    def end_offset(self) -> int:
        return self._runs.end

    @property
    def complete_count(self) -> int:
        """How many of those in flight are done."""
        return self._complete_count

    @property
    def runs(self) -> list[Run[Delivery]]:
        return [*self._runs]

    @property
    def state(self) -> ShareState:
        """What would be stored now."""
        return ShareState(
            start_offset=self.start_offset,
            complete_count=self._complete_count,
            batches=self._touched_batches(),
        )

    @property
    def deadline_ms(self) -> int | None:
        """When the next `expire` is due; any call may change it. It may be early, never late."""
        return self._locks.first_ms

    @property
    def next_fetch_offset(self) -> int | None:
        """Where to read for the next member; None while there is nothing that it could get."""
        found = self._runs.first(_is_available, start=self._available_min)
        self._available_min = self.end_offset if found is None else found
        if found is None and self._room <= 0:
            return None
        return self._available_min

    # Calls.

    def acquire(
        self, fetched: Fetched, demand: Demand, *, now_ms: int
    ) -> tuple[AcquiredRecords, ...]:
        """Give the member what it may have of a read from `next_fetch_offset`."""
        attempts_max = self.terms.delivery_count_max
        offer = self._offer(fetched, demand.mode)
        choice = choose(offer, demand, attempts_max=attempts_max, end=fetched.end)
        for run in [*self._nothing_there(fetched, choice)]:
            self._mark(run)
        lock = Lock(demand.member_id, now_ms + self.terms.lock_ms)
        acquired = [self._hand_out(run, lock) for run in bundle(choice.runs, demand)]
        self._advance()
        return tuple(acquired)

    def acknowledge(
        self, member_id: str, batches: Sequence[Acknowledgement], *, now_ms: int
    ) -> DeadLetters:
        """All of it or, if the member does not hold one of the records, nothing of it.

        The batches are in order (`check_acknowledgements`). Records that were deleted meanwhile
        are skipped. Not so those that are done: in Kafka a member whose lock ran out may accept,
        with success, what another one has accepted.
        """
        held = [
            (run, kind)
            for batch in batches
            for offsets, kind in batch.parts()
            for run in self._held_runs(member_id, offsets)
        ]
        lock = Lock(member_id, now_ms + self.terms.lock_ms)
        letters = [letter for run, kind in held for letter in self._settle(run, kind, lock)]
        self._advance()
        return tuple(letters)

    def give_back(self, member_id: str, *, now_ms: int) -> DeadLetters:
        """The member has left, closed its session or crashed: an attempt of all that it held."""
        until_ms = now_ms + self.terms.lock_ms
        letters = [
            letter
            for run in self._runs
            if run.value.lock is not None and run.value.lock.member_id == member_id
            for letter in self._release(run, until_ms)
        ]
        self._advance()
        return tuple(letters)

    def expire(self, now_ms: int) -> DeadLetters:
        """Whoever has not acknowledged in time holds the record no longer."""
        letters = [
            letter
            for offsets in self._locks.take_due(now_ms)
            for run in self._runs.within(offsets.start, offsets.end)
            if run.value.lock is not None and run.value.lock.until_ms <= now_ms
            for letter in self._time_is_up(run, now_ms + self.terms.lock_ms)
        ]
        self._advance()
        return tuple(letters)

    def bury(self, letters: DeadLetters) -> None:
        """These dead letters are written: what they tell of is done."""
        for letter in letters:
            for run in self._runs.within(letter.offsets.start, letter.offsets.end):
                if _is_given_up(run.value):
                    self._mark(run._replace(value=run.value.archived()))
        self._advance()

    def move_start_to(self, offset: int) -> None:
        """The log begins later now: retention, or DeleteRecords. It never goes back."""
        for run in self._runs.within(self.start_offset, offset):
            self._complete_count -= _complete_len(run)
        self._deleted_before = max(self._deleted_before, offset)
        if offset > self.start_offset:
            self._runs.drop_before(offset)
        self._advance()

    # The way to disk.

    def take_change(self) -> StateChange | None:
        """What has to be stored since the last time; None if that is nothing."""
        if not self.has_unsaved_change:
            return None
        unsaved = OffsetRuns[bool](self.start_offset)
        for offsets in self._unsaved:
            _note(unsaved, offsets)
        batches = [
            StateBatch(run.start, run.end, run.value.durable)
            for noted in unsaved
            if noted.value
            for run in self._runs.within(noted.start, noted.end)
        ]
        self._unsaved, self._saved_start = [], self.start_offset
        return self._change(_joined(batches))

    @property
    def has_unsaved_change(self) -> bool:
        return bool(self._unsaved) or self._saved_start != self.start_offset

    def take_everything(self) -> StateChange:
        """All there is to store, whatever was stored before."""
        self._unsaved, self._saved_start = [], self.start_offset
        return self._change(self._touched_batches())

    def _touched_batches(self) -> tuple[StateBatch, ...]:
        batches = [StateBatch(run.start, run.end, run.value.durable) for run in self._runs]
        return touched_batches(_joined(batches))

    def _change(self, batches: tuple[StateBatch, ...]) -> StateChange:
        return StateChange(
            start_offset=self.start_offset, complete_count=self._complete_count, batches=batches
        )

    # Acquiring.

    @property
    def _room(self) -> int:
        return self.terms.records_in_flight_max - (self.end_offset - self.start_offset)

    @property
    def _room_end(self) -> int:
        return self.end_offset + max(0, self._room)

    def _offer(self, fetched: Fetched, mode: AcquireMode) -> Iterator[Run[Delivery]]:
        """What is available of a read: in flight already, or new as long as there is room."""
        room_end = self._room_end
        for batch in fetched.batches:
            for run in self._runs.within(batch.start, batch.end):
                if run.value.is_available:
                    yield run
            start = max(batch.start, self.end_offset)
            is_whole = mode is AcquireMode.BATCH_OPTIMIZED and start < room_end
            end = batch.end if is_whole else min(batch.end, room_end)
            if start < end:
                yield Run(start, end, NEW)

    def _nothing_there(self, fetched: Fetched, choice: Choice) -> Iterator[Run[Delivery]]:
        """The offsets of a read that have nothing to hand out, up to where it was looked at."""
        start = max(fetched.offset, self.start_offset)
        taken_end = choice.runs[-1].end if choice.runs else 0
        end = min(choice.end, max(self._room_end, taken_end))
        for batch in (*fetched.batches, OffsetRange(start=end, end=end)):
            hole_end = min(batch.start, end)
            for run in self._runs.within(start, hole_end):
                if run.value.is_available:
                    yield run._replace(value=run.value.archived())
            if max(start, self.end_offset) < hole_end:
                yield Run(max(start, self.end_offset), hole_end, NEW.archived())
            start = max(start, batch.end)

    def _hand_out(self, run: Run[Delivery], lock: Lock) -> AcquiredRecords:
        offsets = OffsetRange(start=run.start, end=run.end)
        acquired = run.value.acquired(lock, len(offsets))
        self._mark(run._replace(value=acquired))
        self._locks.put(lock.until_ms, offsets)
        return AcquiredRecords(offsets, acquired.attempts)

    # Settling.

    def _held_runs(self, member_id: str, offsets: OffsetRange) -> Iterator[Run[Delivery]]:
        if offsets.end > self.end_offset:
            reason = f"nothing was handed out from {self.end_offset} on"
            raise InvalidAcknowledgement(offsets=offsets, reason=reason)
        first = max(offsets.start, self._deleted_before)
        if first < min(offsets.end, self.start_offset):
            raise NotAcquired(offset=first, member_id=member_id)
        for run in self._runs.within(offsets.start, offsets.end):
            lock = run.value.lock
            if lock is None or lock.member_id != member_id:
                raise NotAcquired(offset=run.start, member_id=member_id)
            yield run

    def _settle(
        self, run: Run[Delivery], kind: AcknowledgeType, lock: Lock
    ) -> Iterator[DeadLetter]:
        match kind:
            case AcknowledgeType.ACCEPT:
                self._mark(run._replace(value=run.value.accepted()))
            case AcknowledgeType.GAP:
                self._mark(run._replace(value=run.value.archived()))
            case AcknowledgeType.REJECT:
                yield self._give_up(run, DeadLetterReason.REJECTED, lock.until_ms)
            case AcknowledgeType.RELEASE:
                yield from self._release(run, lock.until_ms)
            case AcknowledgeType.RENEW:
                self._renew(run, lock)

    def _renew(self, run: Run[Delivery], lock: Lock) -> None:
        self._mark(run._replace(value=run.value.renewed(lock)))
        self._locks.put(lock.until_ms, OffsetRange(start=run.start, end=run.end))

    def _time_is_up(self, run: Run[Delivery], until_ms: int) -> Iterator[DeadLetter]:
        if _is_given_up(run.value):  # its dead letter was not written: it gets its attempt again
            self._mark(run._replace(value=run.value.returned()))
        else:
            yield from self._release(run, until_ms)

    def _release(self, run: Run[Delivery], until_ms: int) -> Iterator[DeadLetter]:
        if run.value.attempts >= self.terms.delivery_count_max:
            yield self._give_up(run, DeadLetterReason.DELIVERIES_USED_UP, until_ms)
        else:
            self._mark(run._replace(value=run.value.released()))

    def _give_up(self, run: Run[Delivery], reason: DeadLetterReason, until_ms: int) -> DeadLetter:
        if self.keeps_dead_letters:
            self._renew(run, Lock(DEAD_LETTER_OFFICE, until_ms))
        else:
            self._mark(run._replace(value=run.value.archived()))
        return _dead_letter(run, reason)

    # The book.

    def _mark(self, run: Run[Delivery]) -> None:
        """Give offsets another value, and note what of that has to be stored."""
        if run.end > self.end_offset:
            self._runs.put(self.end_offset, run.end, NEW)
        for before in self._runs.within(run.start, run.end):
            self._complete_count -= _complete_len(before)
            if before.value.durable != run.value.durable:
                self._unsaved.append(OffsetRange(start=before.start, end=before.end))
        self._complete_count += _complete_len(run)
        self._runs.put(*run)
        if run.value.is_available:
            self._available_min = min(self._available_min, run.start)

    def _advance(self) -> None:
        """What is done at the front is in flight no longer."""
        first = self._runs.first(_is_not_done, start=self.start_offset)
        offset = self.end_offset if first is None else first
        self._complete_count -= offset - self.start_offset
        self._runs.drop_before(offset)
        self._locks.drop_before(offset)
        if self._locks.is_crowded(len(self._runs)):
            self._locks.reset(self._held())

    def _held(self) -> Iterator[tuple[int, OffsetRange]]:
        for run in self._runs:
            if run.value.lock is not None:
                yield run.value.lock.until_ms, OffsetRange(start=run.start, end=run.end)


def _is_available(delivery: Delivery) -> bool:
    return delivery.is_available


def _is_given_up(delivery: Delivery) -> bool:
    return delivery.lock is not None and delivery.lock.member_id == DEAD_LETTER_OFFICE


def _is_not_done(delivery: Delivery) -> bool:
    return not delivery.state.is_final


def _complete_len(run: Run[Delivery]) -> int:
    return run.end - run.start if run.value.state.is_final else 0


def _dead_letter(run: Run[Delivery], reason: DeadLetterReason) -> DeadLetter:
    assert run.value.lock is not None, "only what somebody held is given up"
    return DeadLetter(
        offsets=OffsetRange(start=run.start, end=run.end),
        delivery_count=run.value.attempts,
        reason=reason,
        member_id=run.value.lock.member_id,
    )


def _note(noted: OffsetRuns[bool], offsets: OffsetRange) -> None:
    start = max(offsets.start, noted.start)
    if start > noted.end:
        noted.put(noted.end, start, False)
    if start < offsets.end:
        noted.put(start, offsets.end, True)


def _joined(batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """Neighbours that are alike on disk, though not in memory, are one batch."""
    joined: list[StateBatch] = []
    for batch in batches:
        last = joined[-1] if joined else None
        if last is not None and last.end == batch.start and last.delivery == batch.delivery:
            joined[-1] = last._replace(end=batch.end)
        else:
            joined.append(batch)
    return tuple(joined)
