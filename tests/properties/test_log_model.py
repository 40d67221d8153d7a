"""A partition's log against a naive model: a list of batches.

Anything is done in any order: appends in every codec, retries, reads at any offset and size,
searches by time, deletion at the front by three ways, rolls by three reasons, restarts after a
clean stop and after none. The log must answer as the list does.
"""

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millstream.log.config import LogConfig
from millstream.log.partition_log import OffsetOutOfRange, PartitionLog
from millstream.log.producer_state import OutOfOrderSequence, StaleProducerEpoch
from millstream.log.record_batch import Codec, check_batch
from tests.support.batches import NOW_MS, batch, open_log, read_span, split
from tests.support.simulated_disk import SimulatedDisk, Survival

ROOT = Path("/disk")
DIRECTORY = ROOT / "orders-0"
PRODUCER_ID = 9
SEQUENCE_MAX = (1 << 31) - 1

CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([300, 1000, 1 << 30]),
    segment_ms=st.sampled_from([1000, 1 << 40]),
    segment_index_bytes=st.sampled_from([16, 10 << 20]),
    index_interval_bytes=st.sampled_from([0, 200, 4096]),
    retention_ms=st.sampled_from([2000, -1]),
    retention_bytes=st.sampled_from([900, -1]),
    is_log_append_time=st.booleans(),
    flush_messages=st.sampled_from([1, 1 << 30]),
)
CONTENTS = st.lists(st.binary(max_size=120), min_size=1, max_size=4)
CODECS = st.sampled_from(Codec)
AGES = st.integers(-1500, 1500)


@dataclass(frozen=True)
class StoredBatch:
    """What the model knows of a batch: its place, its bytes, its records' time."""

    base_offset: int
    count: int
    content: bytes
    timestamp_ms: int
    segment: str

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


@dataclass(frozen=True)
class Sent:
    sequence: int
    contents: list[bytes]
    base_offset: int

    @property
    def next_sequence(self) -> int:
        return (self.sequence + len(self.contents)) & SEQUENCE_MAX


class LogAgainstModel(RuleBasedStateMachine):
    @initialize(
        config=CONFIGS, first_sequence=st.sampled_from([0, SEQUENCE_MAX - 1, SEQUENCE_MAX - 5])
    )
    def start(self, config: LogConfig, first_sequence: int) -> None:
        self.disk = SimulatedDisk(ROOT)
        self.config = config
        self.now_ms = NOW_MS
        self.batches: list[StoredBatch] = []
        self.start_offset = 0
        self.end_offset = 0
        self.leader_epoch = -1
        self.producer_epoch = 0
        self.next_sequence = first_sequence
        self.sent: deque[Sent] = deque(maxlen=5)
        self.open(was_closed_cleanly=False)

    def open(self, *, was_closed_cleanly: bool) -> None:
        self.leader_epoch += 1
        self.log: PartitionLog = open_log(
            self.disk,
            DIRECTORY,
            self.config,
            leader_epoch=self.leader_epoch,
            now_ms=self.now_ms,
            start_offset=self.start_offset,
            was_closed_cleanly=was_closed_cleanly,
        )

    # --- append -------------------------------------------------------------------------------

    def append(self, content: memoryview, timestamp_ms: int) -> int:
        appended = self.log.append(content, now_ms=self.now_ms)
        assert appended.base_offset == self.end_offset
        assert not appended.is_duplicate
        stamped = self.now_ms if self.config.is_log_append_time else timestamp_ms
        segment = max(name for name in self.disk.names(DIRECTORY) if name.endswith(".log"))
        count = appended.end_offset - appended.base_offset
        self.batches.append(StoredBatch(self.end_offset, count, bytes(content), stamped, segment))
        self.end_offset += count
        return appended.base_offset

    @rule(contents=CONTENTS, codec=CODECS, age_ms=AGES)
    def append_plain(self, contents: list[bytes], codec: Codec, age_ms: int) -> None:
        timestamp_ms = self.now_ms - age_ms
        self.append(batch(*contents, codec=codec, timestamp_ms=timestamp_ms), timestamp_ms)

    @rule(contents=CONTENTS, codec=CODECS)
    def append_idempotent(self, contents: list[bytes], codec: Codec) -> None:
        content = self.produced(contents, self.next_sequence, codec)
        sent = Sent(self.next_sequence, contents, self.append(content, self.now_ms))
        self.sent.append(sent)
        self.next_sequence = sent.next_sequence

    def produced(
        self, contents: list[bytes], sequence: int, codec: Codec = Codec.NONE
    ) -> memoryview:
        return batch(
            *contents,
            codec=codec,
            timestamp_ms=self.now_ms,
            producer_id=PRODUCER_ID,
            producer_epoch=self.producer_epoch,
            sequence=sequence,
        )

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def retry_one_of_the_last_five(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(list(self.sent)))
        appended = self.log.append(self.produced(sent.contents, sent.sequence), now_ms=self.now_ms)
        assert appended.is_duplicate
        assert appended.base_offset == sent.base_offset
        assert appended.end_offset == sent.base_offset + len(sent.contents)

    @precondition(lambda self: self.sent)
    @rule(contents=CONTENTS, gap=st.integers(1, 1000))
    def leave_a_gap(self, contents: list[bytes], gap: int) -> None:
        sequence = (self.next_sequence + gap) & SEQUENCE_MAX
        with pytest.raises(OutOfOrderSequence):
            self.log.append(self.produced(contents, sequence), now_ms=self.now_ms)

    @precondition(lambda self: self.sent)
    @rule(contents=CONTENTS)
    def begin_a_new_producer_epoch(self, contents: list[bytes]) -> None:
        self.producer_epoch += 1
        with pytest.raises(OutOfOrderSequence):
            self.log.append(self.produced(contents, 3), now_ms=self.now_ms)
        self.sent.clear()
        self.next_sequence = 0
        self.append_idempotent(contents, Codec.NONE)
        self.producer_epoch -= 1
        with pytest.raises(StaleProducerEpoch):
            self.log.append(self.produced(contents, 0), now_ms=self.now_ms)
        self.producer_epoch += 1

    # --- time, sync, restart ------------------------------------------------------------------

    @rule(elapsed_ms=st.sampled_from([1, 600, 3000]))
    def wait(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms

    @rule()
    def sync(self) -> None:
        self.log.sync(now_ms=self.now_ms)
        assert self.log.synced_offset == self.log.high_watermark == self.end_offset

    @rule()
    def roll(self) -> None:
        names = self.segment_names()
        is_empty = not self.size_of(names[-1])
        self.log.roll(now_ms=self.now_ms)
        assert len(self.segment_names()) == len(names) + (0 if is_empty else 1)

    @rule()
    def restart_after_a_clean_stop(self) -> None:
        assert self.log.close(now_ms=self.now_ms)
        self.open(was_closed_cleanly=True)

    @rule()
    def restart_after_the_process_was_killed(self) -> None:
        self.disk = self.disk.copy()
        self.open(was_closed_cleanly=False)

    @rule(survival=st.sampled_from(Survival), seed=st.integers(0, 1000))
    def restart_after_a_power_cut(self, survival: Survival, seed: int) -> None:
        synced_offset = self.log.synced_offset
        self.disk = self.disk.after_power_cut(survival, seed)
        self.open(was_closed_cleanly=False)
        assert synced_offset <= self.log.end_offset <= self.end_offset
        self.end_offset = self.log.end_offset
        self.batches = [b for b in self.batches if b.base_offset < self.end_offset]
        # The producer learns what arrived by sending again; the model just drops the rest.
        self.sent = deque((s for s in self.sent if s.base_offset < self.end_offset), maxlen=5)
        if self.sent:
            self.next_sequence = self.sent[-1].next_sequence
        else:
            self.producer_epoch += 1
            self.next_sequence = 0

    # --- read ---------------------------------------------------------------------------------

    @precondition(lambda self: self.end_offset)
    @rule(data=st.data(), bytes_max=st.sampled_from([0, 1, 100, 250, 700, 1 << 20]))
    def read(self, data: st.DataObject, bytes_max: int) -> None:
        offset = data.draw(st.integers(0, self.end_offset + 2))
        if not self.log.start_offset <= offset <= self.end_offset:
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, bytes_max=bytes_max)
            return
        span = self.log.read(offset, bytes_max=bytes_max)
        expected = [
            b.content for b in self.batches if offset < b.end_offset <= self.log.high_watermark
        ]
        found = [bytes(each) for each in split(span)]
        assert found == expected[: len(found)]
        assert bool(found) == bool(expected)
        assert len(found) <= 1 or len(span) <= bytes_max

    @rule(age_ms=st.integers(-2000, 6000))
    def find_by_time(self, age_ms: int) -> None:
        timestamp = self.now_ms - age_ms
        found = self.log.first_at_or_after(timestamp)
        expected = [offset for offset, time in self.visible_times() if time >= timestamp]
        assert (found.offset if found else None) == (expected[0] if expected else None)

    @rule()
    def find_newest(self) -> None:
        found = self.log.newest()
        times = self.visible_times()
        newest = max((time for _, time in times), default=None)
        assert (found.timestamp_ms if found else None) == newest
        if found is not None:
            assert found.offset == next(offset for offset, time in times if time == newest)

    def visible_times(self) -> list[tuple[int, int]]:
        return [
            (offset, stored.timestamp_ms)
            for stored in self.batches
            for offset in range(stored.base_offset, stored.end_offset)
            if self.log.start_offset <= offset < self.log.high_watermark
        ]

    # --- delete at the front ------------------------------------------------------------------

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.start_offset, self.log.synced_offset))
        self.start_offset = offset
        self.log.advance_start(offset)
        assert self.log.start_offset == offset

    @rule()
    def apply_retention(self) -> None:
        names_before = self.segment_names()
        count = self.log.apply_retention(now_ms=self.now_ms)
        names = self.segment_names()
        gone = names_before[:count]
        assert names[0] not in gone
        assert self.log.start_offset >= int(names[0][:20])
        self.start_offset = self.log.start_offset
        for name in gone:
            assert self.is_old(name) or self.config.retention_bytes >= 0
        if len(names) > 1:
            assert not self.is_old(names[0])
            kept_bytes = sum(map(self.size_of, names[1:]))
            assert self.config.retention_bytes < 0 or kept_bytes < self.config.retention_bytes

    def segment_names(self) -> list[str]:
        return sorted(n for n in self.disk.names(DIRECTORY) if n.endswith(".log"))

    def is_old(self, segment: str) -> bool:
        times = [b.timestamp_ms for b in self.batches if b.segment == segment]
        limit_ms = self.config.retention_ms
        return bool(times) and limit_ms >= 0 and self.now_ms - max(times) > limit_ms

    def size_of(self, segment: str) -> int:
        return sum(len(b.content) for b in self.batches if b.segment == segment)

    @invariant()
    def offsets_are_in_order(self) -> None:
        if hasattr(self, "log"):
            log = self.log
            assert log.start_offset <= log.synced_offset <= log.end_offset == self.end_offset
            assert log.start_offset <= log.high_watermark <= log.end_offset
            if self.config.syncs_before_ack:
                assert log.high_watermark == log.synced_offset
            segments = {b.segment for b in self.batches}
            for name in segments & set(self.segment_names()):
                assert self.size_of(name) <= max(self.config.segment_bytes, self.largest_in(name))

    def largest_in(self, segment: str) -> int:
        return max(len(b.content) for b in self.batches if b.segment == segment)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.sync(now_ms=self.now_ms)
            offset = self.log.start_offset
            while offset < self.end_offset:
                span = self.log.read(offset, bytes_max=1000)
                records = [r.offset for r in read_span(span) if r.offset >= offset]
                assert records == list(range(offset, offset + len(records)))
                offset = check_batch(list(split(span))[-1]).last_offset + 1


def check(*, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        LogAgainstModel,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_a_log_answers_as_a_list_would() -> None:
    check(examples=80, steps=40)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_log_answers_as_a_list_would_at_length() -> None:
    check(examples=1500, steps=80)
