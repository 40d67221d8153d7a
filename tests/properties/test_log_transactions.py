"""Random transactions in one log, with rolls, restarts and crashes, against a naive model."""

from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.log.config import LogConfig
from millstream.log.partition_log import PartitionLog, SyncJob
from millstream.log.record_batch import (
    TRANSACTIONAL,
    Marker,
    check_batch,
    decode_records,
    encode_batch,
    read_marker,
)
from tests.support.batches import NOW_MS, batch, open_log, split
from tests.support.simulated_disk import SimulatedDisk

from millstream.base.record import Record  # isort: skip

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
PATH = Path("/data/orders-0")
PRODUCERS = st.integers(1, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PRODUCERS),
        st.tuples(st.just("commit"), PRODUCERS),
        st.tuples(st.just("abort"), PRODUCERS),
        st.tuples(st.sampled_from(["begin sync", "sync"]), st.just(0)),
        st.tuples(st.sampled_from(["plain", "roll", "stop", "crash"]), st.just(0)),
    ),
    min_size=5,
    max_size=50,
)


class Model:
    """All that was written, in order, and how each transaction ended."""

    def __init__(self) -> None:
        self.log: list[tuple[int, int, bytes]] = []  # offset, producer (0: none), value
        self.end_offset = 0
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []  # producer, first and last offset
        self.ended: list[tuple[int, int]] = []  # first and last offset

    def write(self, producer: int, value: bytes) -> None:
        if producer:
            self.open.setdefault(producer, self.end_offset)
        self.log.append((self.end_offset, producer, value))
        self.end_offset += 1

    def end(self, producer: int, *, is_commit: bool) -> None:
        first = self.open.pop(producer, None)
        if first is not None:
            self.ended.append((first, self.end_offset))
        if first is not None and not is_commit:
            self.aborted.append((producer, first, self.end_offset))
        self.end_offset += 1

    @property
    def stable(self) -> int:
        return self.stable_at(self.end_offset)

    def stable_at(self, visible_end: int) -> int:
        """Seen from a reader, a transaction is open until it can see the marker."""
        unseen = [first for first, last in self.ended if last >= visible_end]
        return min([visible_end, *self.open.values(), *unseen])

    def committed(self) -> list[bytes]:
        return [
            value
            for offset, producer, value in self.log
            if offset < self.stable
            and not any(p == producer and f <= offset < e for p, f, e in self.aborted)
        ]


class Subject:
    """A log on a disk that forgets what was not synced."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(PATH.parent)
        self.log = open_log(self.disk, PATH, CONFIG)
        self.sequences: dict[int, int] = {}
        self.job: SyncJob | None = None

    def begin_sync(self) -> None:
        """What comes after this is not synced by it."""
        self.finish_sync()
        self.job = self.log.sync_job()

    def finish_sync(self) -> None:
        if self.job is not None:
            self.job.run()
            self.log.complete(self.job, now_ms=NOW_MS)
            self.job = None

    def write(self, producer: int, value: bytes) -> None:
        record = Record(value=value, timestamp_ms=NOW_MS)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        data = encode_batch(
            [record],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        self.log.append(memoryview(data), now_ms=NOW_MS, in_transaction=True)

    def end(self, producer: int, *, is_commit: bool) -> None:
        marker = Marker(is_commit, 0)
        self.log.append_marker(marker, producer_id=producer, producer_epoch=0, now_ms=NOW_MS)

    def stop(self) -> None:
        self.finish_sync()
        assert self.log.close(now_ms=NOW_MS)
        self.log = open_log(self.disk, PATH, CONFIG, was_closed_cleanly=True)

    def crash(self) -> None:
        """With everything synced: what is lost by a crash is not the question here."""
        self.finish_sync()
        self.log.sync(now_ms=NOW_MS)
        synced = self.log.synced_offset
        self.log = open_log(self.disk, PATH, CONFIG, synced_offset=synced)

    def committed(self) -> list[bytes]:
        """As a consumer does it, one batch after the other."""
        log = self.log
        aborted = log.aborted_in(log.start_offset, log.last_stable_offset)
        values: list[bytes] = []
        for one in stable_batches(log):
            header = check_batch(one)
            if header.is_control:
                assert read_marker(one) is not None
            elif not any(
                entry.producer_id == header.producer_id
                and entry.first_offset <= header.base_offset < entry.last_offset
                for entry in aborted
            ):
                values += [record.value or b"" for record in decode_records(one)]
        return values


def stable_batches(log: PartitionLog) -> Iterator[memoryview]:
    offset = log.start_offset
    while offset < log.last_stable_offset:
        end_offset = log.last_stable_offset
        span, _ = log.read_stable(offset, bytes_max=1 << 20, end_offset=end_offset)
        for one in split(span):
            offset = check_batch(one).last_offset + 1
            yield one


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_what_is_stable_and_committed_is_what_a_naive_model_says(
    steps: list[tuple[str, int]],
) -> None:
    model, subject = Model(), Subject()
    for number, (step, producer) in enumerate(steps):
        value = b"%d" % number
        match step:
            case "write":
                subject.write(producer, value)
                model.write(producer, value)
            case "commit" | "abort":
                subject.end(producer, is_commit=step == "commit")
                model.end(producer, is_commit=step == "commit")
            case "plain":
                subject.log.append(batch(value), now_ms=NOW_MS)
                model.write(0, value)
            case "begin sync":
                subject.begin_sync()
            case "sync":
                subject.finish_sync()
            case "roll":
                subject.log.roll(now_ms=NOW_MS)
            case "stop":
                subject.stop()
            case "crash":
                subject.crash()
        assert subject.log.last_stable_offset == model.stable_at(subject.log.high_watermark)
    subject.finish_sync()
    subject.log.sync(now_ms=NOW_MS)
    assert subject.log.last_stable_offset == model.stable
    assert subject.committed() == model.committed()
    entries = [(one.producer_id, one.first_offset, one.last_offset) for one in
               subject.log.aborted_in(0, model.end_offset)]  # fmt: skip
    assert sorted(entries) == sorted(model.aborted)
    for start in range(0, model.end_offset, 3):
        for end in range(start + 1, model.end_offset + 1, 2):
            found = {one.last_offset for one in subject.log.aborted_in(start, end)}
            assert found == {e for _, f, e in model.aborted if e >= start and f < end}
