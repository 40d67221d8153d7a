"""Random members, lost locks, a log that is cut short and crashes, against one share partition.

The model is a dictionary with one entry per record. Which records a member gets is the
partition's choice; the model says which it may get, and what becomes of them. What is stored is a
list of changes, and a crash leaves any beginning of it.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.errors import Rejected
from millstream.base.offsets import OffsetRange
from millstream.broker.share.acknowledgement import Acknowledgement, AcknowledgeType
from millstream.broker.share.acquisition import AcquireMode, Demand, Fetched
from millstream.broker.share.delivery import UNTOUCHED, RecordState
from millstream.broker.share.share_partition import (
    DEAD_LETTER_OFFICE,
    DeadLetterReason,
    DeadLetters,
    SharePartition,
    ShareTerms,
)
from millstream.broker.share.share_state import ShareState, StateChange

LOCK_MS = 100
MEMBER_IDS = ("ada", "bob", "eve")
Step = tuple[str, int, int, list[AcknowledgeType]]
# Most of what is said leaves something to do.
TYPES = st.sampled_from([*AcknowledgeType, AcknowledgeType.RELEASE, AcknowledgeType.RENEW])
NAMES = [
    *["fetch", "acknowledge"] * 4,
    *["wait", "store", "bury"] * 2,
    *["read ahead", "fetch late", "leave", "crash", "delete", "acknowledge what is not held"],
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.integers(0, 8),
        st.integers(0, 8),
        st.lists(TYPES, min_size=1, max_size=8),
    ),
    min_size=30,
    max_size=60,
)
Log = list[tuple[int, int, bool]]
# Length of a batch, how many offsets before it are missing, and whether members may see it.
LOGS = st.lists(
    st.tuples(
        st.integers(1, 6), st.sampled_from([0, 0, 0, 1, 5]), st.sampled_from([True] * 4 + [False])
    ),
    min_size=5,
    max_size=12,
)


@dataclass
class ModelRecord:
    state: RecordState = RecordState.AVAILABLE
    attempts: int = 0
    member_id: str | None = None
    until_ms: int = 0

    def give_up(self, attempts_max: int) -> None:
        is_last = self.attempts >= attempts_max
        self.settle(RecordState.ARCHIVED if is_last else RecordState.AVAILABLE)

    def settle(self, state: RecordState) -> None:
        self.state, self.member_id = state, None

    def crash(self) -> None:
        """An attempt that was under way is as if it had not been."""
        if self.state is RecordState.ACQUIRED:
            self.settle(RecordState.AVAILABLE)
            self.attempts -= 1


@dataclass
class Model:
    """The records that members may see, by offset."""

    records: dict[int, ModelRecord] = field(default_factory=dict)

    def held_by(self, member_id: str) -> list[int]:
        return [at for at, one in sorted(self.records.items()) if one.member_id == member_id]

    def after_crash(self) -> "Model":
        copy = deepcopy(self)
        for record in copy.records.values():
            record.crash()
        return copy


class Play:
    """The members, the shell and its disk, and the model that they are held against."""

    def __init__(
        self, log: Log, attempts_max: int, in_flight_max: int, *, keeps_dead_letters: bool
    ) -> None:
        self.now_ms = 0
        self.keeps_dead_letters = keeps_dead_letters
        self.unburied: list[DeadLetters] = []
        self.batches: list[tuple[OffsetRange, bool]] = []
        end = 0
        for length, gap, is_visible in log:
            offsets = OffsetRange(start=end + gap, end=end + gap + length)
            self.batches.append((offsets, is_visible))
            end = offsets.end
        self.log_start, self.log_end = 0, end
        self.terms = ShareTerms(
            lock_ms=LOCK_MS, delivery_count_max=attempts_max, records_in_flight_max=in_flight_max
        )
        self.model = Model(
            {
                offset: ModelRecord()
                for offsets, is_visible in self.batches
                if is_visible
                for offset in range(offsets.start, offsets.end)
            }
        )
        self.partition = SharePartition(0, terms=self.terms)
        self.partition.keeps_dead_letters = keeps_dead_letters
        self.late_read: Fetched | None = None
        self.changes: list[StateChange] = []
        self.models: list[Model] = []  # as each change should restore it
        self.store()

    def holders(self) -> list[str]:
        held = {record.member_id for record in self.model.records.values()}
        return sorted(member_id for member_id in held if member_id)

    def has_more(self) -> bool:
        offset = self.partition.next_fetch_offset
        return offset is not None and offset < self.log_end

    def take(self, step: Step) -> None:
        """The numbers of a step say who, how many, or how long; what makes no sense now is left."""
        name, one, other, types = step
        member_id, mode = MEMBER_IDS[one % 3], AcquireMode(one % 2)
        holders = self.holders()
        match name:
            case "fetch" if self.has_more():
                self.fetch(member_id, other + 1, len(types), mode, 1 + other % 5)
            case "read ahead" if self.has_more():
                self.read_ahead(1 + other % 5)
            case "fetch late" if self.late_read is not None:
                self.fetch_late(member_id, mode)
            case "acknowledge" if holders:
                self.acknowledge(holders[one % len(holders)], types, other % 5)
            case "acknowledge what is not held":
                self.acknowledge_what_is_not_held(member_id, one * 5 + other, len(types))
            case "leave" if holders:
                self.leave(holders[one % len(holders)])
            case "wait":
                self.wait((1, LOCK_MS // 2, LOCK_MS)[one % 3])
            case "delete":
                self.delete_records(one // 3)
            case "store":
                self.store()
            case "bury" if self.unburied:
                self.bury(self.unburied.pop(0))
            case "crash":
                self.crash(one % 4)

    # What the shell does.

    def read(self, offset: int, batch_count: int) -> Fetched:
        read = [one for one in self.batches if one[0].end > offset][:batch_count]
        return Fetched(
            offset=offset,
            batches=tuple(offsets for offsets, is_visible in read if is_visible),
            end=read[-1][0].end if read else offset,
        )

    def read_ahead(self, batch_count: int) -> None:
        """A read that takes its time: what was true when it began may not be when it ends."""
        offset = self.partition.next_fetch_offset
        assert offset is not None
        self.late_read = self.read(offset, batch_count)

    def fetch_late(self, member_id: str, mode: AcquireMode) -> None:
        assert self.late_read is not None
        demand = Demand(member_id=member_id, records_max=5, batch_size=5, mode=mode)
        self.acquire(self.late_read, demand)
        self.late_read = None

    def fetch(
        self,
        member_id: str,
        records_max: int,
        batch_size: int,
        mode: AcquireMode,
        batch_count: int,
    ) -> None:
        offset = self.partition.next_fetch_offset
        assert offset is not None
        demand = Demand(
            member_id=member_id, records_max=records_max, batch_size=batch_size, mode=mode
        )
        self.acquire(self.read(offset, batch_count), demand)

    def acquire(self, fetched: Fetched, demand: Demand) -> None:
        acquired = self.partition.acquire(fetched, demand, now_ms=self.now_ms)
        taken = [at for one in acquired for at in range(one.offsets.start, one.offsets.end)]
        assert taken == sorted(set(taken))
        self.check_limits(taken, demand)
        for one in acquired:
            for at in range(one.offsets.start, one.offsets.end):
                record = self.model.records[at]
                assert record.state is RecordState.AVAILABLE, f"{at} was {record}"
                record.attempts += 1
                assert record.attempts == one.delivery_count <= self.terms.delivery_count_max
                record.state, record.member_id = RecordState.ACQUIRED, demand.member_id
                record.until_ms = self.now_ms + LOCK_MS

    def check_limits(self, taken: list[int], demand: Demand) -> None:
        in_flight = self.partition.end_offset - self.partition.start_offset
        whole_batch_len = max(len(offsets) for offsets, _ in self.batches)
        assert in_flight < self.terms.records_in_flight_max + whole_batch_len
        if demand.mode is AcquireMode.RECORD_LIMIT:
            assert len(taken) <= demand.records_max
        elif len(taken) > demand.records_max:  # no more than the rest of one batch too many
            last = next(offsets for offsets, _ in self.batches if taken[-1] in offsets)
            assert len([at for at in taken if at < last.start]) < demand.records_max

    def acknowledge(self, member_id: str, types: list[AcknowledgeType], skip: int) -> None:
        held = self.model.held_by(member_id)[skip:][: len(types)]
        kinds = dict(zip(held, types, strict=False))
        batches = []
        for _, group in groupby(enumerate(held), key=lambda pair: pair[1] - pair[0]):
            offsets = [at for _, at in group]
            batches.append(
                Acknowledgement(
                    offsets=OffsetRange(start=offsets[0], end=offsets[-1] + 1),
                    types=tuple(kinds[at] for at in offsets),
                )
            )
        letters = self.partition.acknowledge(member_id, batches, now_ms=self.now_ms)
        expected = {}
        for at, kind in kinds.items():
            record = self.model.records[at]
            self.settle(record, kind)
            if kind is AcknowledgeType.REJECT:
                expected[at] = DeadLetterReason.REJECTED
            elif kind is AcknowledgeType.RELEASE and record.state is RecordState.ARCHIVED:
                expected[at] = DeadLetterReason.DELIVERIES_USED_UP
        assert reasons_of(letters) == expected
        assert all(letter.member_id == member_id for letter in letters)
        self.keep(letters)

    def keep(self, letters: DeadLetters) -> None:
        """With a dead-letter topic nobody has the records, and they are not done."""
        if letters and self.keeps_dead_letters:
            self.unburied.append(letters)
            for at in reasons_of(letters):
                record = self.model.records[at]
                record.state, record.member_id = RecordState.ACQUIRED, DEAD_LETTER_OFFICE
                record.until_ms = self.now_ms + LOCK_MS

    def bury(self, letters: DeadLetters) -> None:
        self.partition.bury(letters)
        for at in reasons_of(letters):
            record = self.model.records.get(at)
            if record is not None and record.member_id == DEAD_LETTER_OFFICE:
                record.settle(RecordState.ARCHIVED)

    def settle(self, record: ModelRecord, kind: AcknowledgeType) -> None:
        match kind:
            case AcknowledgeType.ACCEPT:
                record.settle(RecordState.ACKNOWLEDGED)
            case AcknowledgeType.GAP | AcknowledgeType.REJECT:
                record.settle(RecordState.ARCHIVED)
            case AcknowledgeType.RELEASE:
                record.give_up(self.terms.delivery_count_max)
            case AcknowledgeType.RENEW:
                record.until_ms = self.now_ms + LOCK_MS

    def acknowledge_what_is_not_held(self, member_id: str, start: int, length: int) -> None:
        offsets = range(max(start, self.partition.start_offset), start + length)
        held = {*self.model.held_by(member_id)}
        if all(at in held for at in offsets):
            return
        batch = Acknowledgement(
            offsets=OffsetRange(start=start, end=start + length), types=(AcknowledgeType.ACCEPT,)
        )
        with pytest.raises(Rejected):
            self.partition.acknowledge(member_id, [batch], now_ms=self.now_ms)

    def leave(self, member_id: str) -> None:
        letters = self.partition.give_back(member_id, now_ms=self.now_ms)
        held = self.model.held_by(member_id)
        for at in held:
            self.model.records[at].give_up(self.terms.delivery_count_max)
        archived = {at for at in held if self.model.records[at].state is RecordState.ARCHIVED}
        assert reasons_of(letters) == dict.fromkeys(archived, DeadLetterReason.DELIVERIES_USED_UP)
        self.keep(letters)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        due = [
            (at, record)
            for at, record in self.model.records.items()
            if record.member_id is not None and record.until_ms <= self.now_ms
        ]
        if due:
            deadline_ms = self.partition.deadline_ms
            assert deadline_ms is not None
            assert deadline_ms <= self.now_ms
        letters = self.partition.expire(self.now_ms)
        for _, record in due:
            if record.member_id == DEAD_LETTER_OFFICE:
                record.crash()
            else:
                record.give_up(self.terms.delivery_count_max)
        archived = {at for at, record in due if record.state is RecordState.ARCHIVED}
        assert reasons_of(letters) == dict.fromkeys(archived, DeadLetterReason.DELIVERIES_USED_UP)
        self.keep(letters)

    def delete_records(self, offsets: int) -> None:
        self.log_start = min(self.log_start + offsets, self.log_end)
        self.forget_deleted()

    def forget_deleted(self) -> None:
        self.partition.move_start_to(self.log_start)
        for at in [at for at in self.model.records if at < self.log_start]:
            del self.model.records[at]

    def store(self) -> None:
        change = self.partition.take_change()
        if change is not None:
            self.check_that_it_grows(change)
            self.changes.append(change)
            self.models.append(self.model.after_crash())
            assert self.partition.take_change() is None

    def check_that_it_grows(self, change: StateChange) -> None:
        """So that it does not matter whether the later or the larger one counts."""
        before = self.replay()
        assert change.start_offset >= before.start_offset
        stored = {at: old.delivery for old in before.batches for at in range(old.start, old.end)}
        for batch in change.batches:
            for at in range(batch.start, batch.end):
                assert batch.delivery > stored.get(at, UNTOUCHED)

    def replay(self) -> ShareState:
        state = ShareState()
        for change in self.changes:
            state = state.changed(change)
        return state

    def crash(self, lost: int) -> None:
        kept = max(1, len(self.changes) - lost)
        del self.changes[kept:], self.models[kept:]
        self.partition = SharePartition.restored(self.replay(), terms=self.terms)
        self.partition.keeps_dead_letters = self.keeps_dead_letters
        self.unburied.clear()
        self.model = deepcopy(self.models[-1])
        self.late_read = None
        self.forget_deleted()

    # What must hold at any time.

    def check_against_model(self) -> None:
        start, end = self.partition.start_offset, self.partition.end_offset
        known = {
            at: (run.value.state, run.value.attempts, run.value.lock and run.value.lock.member_id)
            for run in self.partition.runs
            for at in range(run.start, run.end)
        }
        for at, record in self.model.records.items():
            said = (record.state, record.attempts, record.member_id)
            if at < start:
                assert record.state.is_final, f"{at} was passed by: {record}"
            elif at < end:
                assert known[at] == said, f"{at}"
            else:
                assert said == (RecordState.AVAILABLE, 0, None), f"{at}"
        done = [at for at, (state, _, _) in known.items() if state.is_final]
        assert self.partition.complete_count == len(done)

    def check_what_is_stored(self) -> None:
        if self.partition.has_unsaved_change:
            return
        everything = deepcopy(self.partition).take_everything()
        assert ShareState().changed(everything) == self.replay()

    def finish(self) -> None:
        """However it got here: it goes on, and ends with every record accepted or given up."""
        for member_id in self.holders():
            self.leave(member_id)
        for letters in self.unburied:
            self.bury(letters)
        while self.has_more():
            self.fetch("ada", 9, 9, AcquireMode.BATCH_OPTIMIZED, 5)
            held = self.model.held_by("ada")
            self.acknowledge("ada", [AcknowledgeType.ACCEPT] * len(held), 0)
        assert self.partition.start_offset == self.partition.end_offset == self.log_end
        assert all(record.state.is_final for record in self.model.records.values())
        self.store()
        self.crash(0)
        assert self.partition.start_offset == self.log_end


def reasons_of(letters: DeadLetters) -> dict[int, DeadLetterReason]:
    return {
        at: letter.reason
        for letter in letters
        for at in range(letter.offsets.start, letter.offsets.end)
    }


@settings(max_examples=150, deadline=None)
@given(
    log=LOGS,
    attempts_max=st.sampled_from([1, 2, 5, 9]),
    in_flight_max=st.sampled_from([1, 8, 100, 100]),
    keeps_dead_letters=st.booleans(),
    steps=STEPS,
)
def test_every_record_is_accepted_once_or_given_up_whatever_happens(
    log: Log, attempts_max: int, in_flight_max: int, keeps_dead_letters: bool, steps: list[Step]
) -> None:
    play = Play(log, attempts_max, in_flight_max, keeps_dead_letters=keeps_dead_letters)
    for step in steps:
        play.take(step)
        play.check_against_model()
        play.check_what_is_stored()
    play.finish()
