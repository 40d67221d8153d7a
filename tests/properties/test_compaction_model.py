"""A compacted log against a dict: whatever was written and however often it was cleaned, a reader
that starts at the beginning ends with the same state, and finds every record where it was written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.base.record import Record
from millstream.log.config import LogConfig
from millstream.log.record_batch import (
    TRANSACTIONAL,
    Codec,
    Marker,
    check_batch,
    encode_batch,
)
from tests.support.batches import NOW_MS, open_log, read_batches, read_records
from tests.support.compaction import committed_records, compact, state_of
from tests.support.simulated_disk import SimulatedDisk

ROOT = Path("/simulated")
DIRECTORY = ROOT / "orders-0"
DELETE_RETENTION_MS = 1_000
CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=150,
    is_compacted=True,
    deletes_old_segments=False,
    delete_retention_ms=DELETE_RETENTION_MS,
)
COORDINATOR_EPOCH = 3
# Ids of producers that write in transactions, and of one that does not.
TRANSACTIONAL_IDS = (11, 12)
IDEMPOTENT_ID = 10

keys = st.integers(0, 6).map(lambda n: b"key %d" % n) | st.just(b"a key that is long " * 4)
pairs = st.tuples(keys, st.none() | st.integers(0, 10**6).map(lambda n: b"%d " % n * 8))
codecs = st.sampled_from(list(Codec))


Pairs: TypeAlias = Sequence[tuple[bytes, bytes | None]]
Step: TypeAlias = Callable[["Machine"], None]


@dataclass
class Machine:
    """A log, and what must be true of it."""

    disk: SimulatedDisk = field(default_factory=lambda: SimulatedDisk(ROOT))
    now_ms: int = NOW_MS
    cleaned_offset: int = 0
    state: dict[bytes, bytes] = field(default_factory=dict)
    written: dict[int, Record] = field(default_factory=dict)
    pending: dict[int, list[tuple[bytes, bytes | None]]] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)
    aborted_offsets: set[int] = field(default_factory=set)
    open_offsets: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log = open_log(self.disk, DIRECTORY, CONFIG)

    # --- steps --------------------------------------------------------------------------------

    def write(
        self,
        content: Pairs,
        codec: Codec,
        producer_id: int = -1,
        attributes: int = 0,
    ) -> None:
        self.now_ms += 7
        sequence = self.sequences.get(producer_id, 0)
        records = [
            Record(key=key, value=value, timestamp_ms=self.now_ms - number % 3)
            for number, (key, value) in enumerate(content)
        ]
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence if producer_id >= 0 else -1,
            attributes=attributes,
        )
        is_transactional = bool(attributes & TRANSACTIONAL)
        appended = self.log.append(
            memoryview(batch), now_ms=self.now_ms, in_transaction=is_transactional
        )
        if producer_id >= 0:
            self.sequences[producer_id] = sequence + len(content)
        for number, record in enumerate(records):
            offset = appended.base_offset + number
            self.written[offset] = Record(
                key=record.key, value=record.value, timestamp_ms=record.timestamp_ms, offset=offset
            )
            self.open_offsets.setdefault(producer_id, []).append(offset)
        if is_transactional:
            self.pending.setdefault(producer_id, []).extend(content)
        else:
            self.apply(content)

    def apply(self, content: Pairs) -> None:
        for key, value in content:
            self.state.pop(key, None)
            if value is not None:
                self.state[key] = value

    def end(self, producer_id: int, is_commit: bool) -> None:
        if producer_id not in self.pending:
            return
        self.now_ms += 7
        content = self.pending.pop(producer_id)
        offsets = self.open_offsets.pop(producer_id)
        self.log.append_marker(
            Marker(is_commit, COORDINATOR_EPOCH),
            producer_id=producer_id,
            producer_epoch=0,
            now_ms=self.now_ms,
        )
        if is_commit:
            self.apply(content)
        else:
            self.aborted_offsets.update(offsets)

    def clean(self, keys_max: int, forgets: bool) -> None:
        """`forgets`: the checkpoint of the cleaner was lost, all is dirty again."""
        self.log.sync(now_ms=self.now_ms)
        stable = self.log.last_stable_offset
        cleaned = compact(
            self.disk,
            self.log,
            cleaned_offset=0 if forgets else self.cleaned_offset,
            now_ms=self.now_ms,
            keys_max=keys_max,
        )
        if cleaned is not None:
            assert cleaned.offset <= stable
            self.cleaned_offset = cleaned.offset
            if keys_max > 1000:
                self.check_cleaned(cleaned.offset)

    def roll(self) -> None:
        self.log.roll(now_ms=self.now_ms)

    def reopen(self, cleanly: bool, keeps_snapshots: bool = True) -> None:
        """Without its snapshots, what the log knows of producers is what it finds in batches."""
        self.log.sync(now_ms=self.now_ms)
        if cleanly:
            assert self.log.close(now_ms=self.now_ms)
        for name in () if keeps_snapshots else self.disk.names(DIRECTORY):
            if name.endswith(".snapshot"):
                self.disk.remove(DIRECTORY / name)
        self.log = open_log(
            self.disk,
            DIRECTORY,
            CONFIG,
            was_closed_cleanly=cleanly,
            synced_offset=self.log.synced_offset,
        )
        for segment in self.log.closed_segments:
            assert not segment.must_save_indexes, "an index was not believed"

    def wait(self) -> None:
        self.now_ms += DELETE_RETENTION_MS + 1

    # --- what must hold -----------------------------------------------------------------------

    def check(self) -> None:
        self.log.sync(now_ms=self.now_ms)
        self.check_batches()
        self.check_records()
        self.check_state()
        self.check_tombstones()
        self.check_times()
        self.check_producers()

    def check_batches(self) -> None:
        """Offsets only grow, and every offset that anybody may ask for leads somewhere."""
        expected = self.log.start_offset
        for batch in read_batches(self.log):
            header = check_batch(batch)
            assert header.base_offset >= expected
            expected = header.last_offset + 1
        assert expected == self.log.high_watermark

    def check_records(self) -> None:
        """Every record that is left is as it was written, at its offset."""
        for record in read_records(self.log):
            if record.offset in self.written:  # else it is a marker
                assert record == self.written[record.offset]

    def check_state(self) -> None:
        """Committed state: nothing lost, nothing resurrected, nothing aborted."""
        seen = committed_records(self.log)
        assert not {one.offset for one in seen} & self.aborted_offsets
        open_ = {offset for one in self.pending for offset in self.open_offsets[one]}
        assert state_of([one for one in seen if one.offset not in open_]) == state_of(
            self.committed()
        )

    def check_tombstones(self) -> None:
        """A reader that is not too slow learns that a key was deleted."""
        left = {one.offset for one in read_records(self.log)}
        latest = {record.key: record for record in self.committed()}
        for record in latest.values():
            if record.value is None and record.timestamp_ms + DELETE_RETENTION_MS > self.now_ms:
                assert record.offset in left

    def committed(self) -> list[Record]:
        """Transactions interleave: what counts per key is the highest committed offset."""
        open_ = {offset for one in self.pending for offset in self.open_offsets[one]}
        return [
            record
            for offset, record in sorted(self.written.items())
            if offset not in self.aborted_offsets and offset not in open_
        ]

    def check_times(self) -> None:
        """A search by time finds the first record that is left."""
        left = [one for one in read_records(self.log) if one.offset in self.written]
        if left:
            wanted = left[len(left) // 2].timestamp_ms
            found = self.log.first_at_or_after(wanted)
            expected = min(
                one.offset for one in read_records(self.log) if one.timestamp_ms >= wanted
            )
            assert found is not None
            assert found.offset == expected

    def check_producers(self) -> None:
        """A producer goes on with its sequence, whatever was removed of what it wrote."""
        known = dict(self.log.producers)
        for producer_id, sequence in self.sequences.items():
            if producer_id >= 0:
                assert known[producer_id].last.last_sequence == sequence - 1

    def check_cleaned(self, offset: int) -> None:
        """Below the cleaned offset no key has two values."""
        found = [
            one.key
            for one in read_records(self.log)
            if one.offset < offset and one.offset in self.written
        ]
        assert len(found) == len(set(found))


def _write(content: Pairs, codec: Codec, producer_id: int) -> Step:
    return lambda machine: machine.write(content, codec, producer_id)


def _open_transaction(content: Pairs, codec: Codec, producer_id: int) -> Step:
    return lambda machine: machine.write(content, codec, producer_id, TRANSACTIONAL)


def _transaction(content: Pairs, codec: Codec, producer_id: int, is_commit: bool) -> Step:
    def step(machine: Machine) -> None:
        machine.write(content, codec, producer_id, TRANSACTIONAL)
        machine.end(producer_id, is_commit)

    return step


def _end(producer_id: int, is_commit: bool) -> Step:
    return lambda machine: machine.end(producer_id, is_commit)


def _clean(keys_max: int, forgets: bool) -> Step:
    return lambda machine: machine.clean(keys_max, forgets)


def _reopen(cleanly: bool, keeps_snapshots: bool) -> Step:
    return lambda machine: machine.reopen(cleanly, keeps_snapshots)


contents = st.lists(pairs, min_size=1, max_size=4)
transactional_ids = st.sampled_from(TRANSACTIONAL_IDS)
steps = st.one_of(
    st.builds(_write, contents, codecs, st.sampled_from([-1, IDEMPOTENT_ID])),
    st.builds(_open_transaction, contents, codecs, transactional_ids),
    st.builds(_transaction, contents, codecs, transactional_ids, st.booleans()),
    st.builds(_end, transactional_ids, st.booleans()),
    st.builds(_clean, st.sampled_from([2, 4, 1_000_000, 1_000_000]), st.booleans()),
    st.just(Machine.roll),
    st.builds(_reopen, st.booleans(), st.booleans()),
    st.just(Machine.wait),
)


histories = st.lists(steps, min_size=20, max_size=80)


@settings(max_examples=40, deadline=None)
@given(histories)
def test_a_cleaned_log_tells_the_same_story(history: list[Step]) -> None:
    tell(history)


@pytest.mark.full
@settings(max_examples=400, deadline=None)
@given(histories)
def test_a_cleaned_log_tells_the_same_story_of_many_histories(history: list[Step]) -> None:
    tell(history)


def tell(history: list[Step]) -> None:
    machine = Machine()
    for step in history:
        step(machine)
    machine.check()
    machine.roll()
    machine.clean(1_000_000, False)
    machine.check()
    machine.reopen(False, False)
    machine.check()
