"""The compactor's shell: what it chooses, what it swaps in, and what it leaves alone."""

import threading
from collections.abc import Iterator

import pytest

from millstream.broker.compactor import RETRY_MS
from millstream.broker.compactor_process import CompactionFailed, Pace, Result
from millstream.broker.topics import Topic
from millstream.log.compaction_job import CompactionJob
from millstream.log.compaction_run import CompactionRun
from millstream.log.log_directory import LogDirectory
from millstream.log.partition_log import PartitionLog
from tests.support.batches import read_records
from tests.support.compaction import keyed, state_of
from tests.support.served_node import ServedNode
from tests.support.simulated_disk import SimulatedDisk

SEGMENT_BYTES = "500"


class CleanerHere:
    """Carries out jobs in the compactor's own thread, on the test's disk."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._results: Iterator[Result] = iter(())
        self.jobs: list[CompactionJob] = []
        self.failure: CompactionFailed | None = None
        self.ends = 0
        # A test can hold results back, and learn that one is waited for.
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = threading.Event()

    def begin(self, job: CompactionJob) -> None:
        self.jobs.append(job)
        self._results = CompactionRun(self._disk, job).run()

    def next_result(self) -> Result:
        self.asked.set()
        assert self.may_answer.wait(10)
        if self.failure is not None:
            raise self.failure
        return next(self._results)

    def end(self) -> None:
        self.ends += 1


@pytest.fixture
def cleaner(served: ServedNode, disk: SimulatedDisk) -> CleanerHere:
    here = CleanerHere(disk)
    served.node.compactor.cleaner = here
    return here


def create(served: ServedNode, name: str = "orders", **config: str) -> Topic:
    overrides = {"cleanup_policy": "compact", "segment_bytes": SEGMENT_BYTES, **config}
    named = {key.replace("_", "."): value for key, value in overrides.items()}
    return served.run(served.node.topics.create(name, 1, named))


def fill(served: ServedNode, topic: Topic, *, count: int = 40, keys: int = 4) -> PartitionLog:
    log = topic.partitions[0].log
    for number in range(count):
        log.append(keyed((b"%d" % (number % keys), b"value %d" % number)), now_ms=served.now_ms)
    log.sync(now_ms=served.now_ms)
    return log


def clean(served: ServedNode) -> bool:
    return served.run(served.node.compactor.clean_dirtiest())


def test_a_dirty_log_is_cleaned_once_and_then_left_alone(
    served: ServedNode, cleaner: CleanerHere
) -> None:
    log = fill(served, create(served))
    before = state_of(read_records(log))
    size_bytes, end_offset = log.size_bytes, log.end_offset
    assert clean(served)
    assert log.size_bytes < size_bytes / 2
    assert log.end_offset == end_offset
    assert state_of(read_records(log)) == before
    assert not clean(served)
    assert len(cleaner.jobs) == 1


def test_what_was_done_is_counted(served: ServedNode, cleaner: CleanerHere) -> None:
    log = fill(served, create(served))
    size_bytes = log.size_bytes
    clean(served)
    totals = served.node.compactor.totals
    last = totals.last["orders", 0]
    assert (totals.cleanings, totals.failures) == (1, 0)
    assert totals.bytes_saved == size_bytes - log.size_bytes
    assert totals.bytes_read >= last.bytes_before > last.bytes_after
    assert totals.records_removed == 40 - len(read_records(log))
    assert last.ended_ms == served.now_ms
    assert last.counts.keys == 4


def test_the_cleaned_offset_outlives_a_crash(served: ServedNode, cleaner: CleanerHere) -> None:
    log = fill(served, create(served))
    clean(served)
    cleaned_offset = served.node.directory.cleaned_offset(("orders", 0))
    assert 0 < cleaned_offset <= log.closed_segments[-1].end_offset
    served.crash()
    directory = LogDirectory(served.path, disk=served.node.directory.disk)
    assert directory.cleaned_offset(("orders", 0)) == cleaned_offset
    directory.abandon()


def test_the_dirtiest_log_comes_first(served: ServedNode, cleaner: CleanerHere) -> None:
    half_dirty, dirty = create(served, "half", min_cleanable_dirty_ratio="0.1"), create(served)
    fill(served, half_dirty, keys=40)
    assert clean(served)
    fill(served, half_dirty, keys=40)
    fill(served, dirty)
    assert clean(served)
    assert clean(served)
    assert [job.directory.name for job in cleaner.jobs] == ["half-0", "orders-0", "half-0"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"cleanup_policy": "delete"}, "not compacted"),
        ({"cleanup_policy": ""}, "not compacted"),
        ({"min_compaction_lag_ms": "60000"}, "too young"),
        ({"min_cleanable_dirty_ratio": "1"}, "not more than all of it is dirty"),
        ({"segment_bytes": "1000000"}, "still growing"),
    ],
)
def test_a_log_that_must_wait_is_not_cleaned(
    served: ServedNode, cleaner: CleanerHere, config: dict[str, str], why: str
) -> None:
    fill(served, create(served, **config))
    assert not clean(served), why


def test_the_growing_segment_is_closed_for_max_compaction_lag(
    served: ServedNode, cleaner: CleanerHere
) -> None:
    topic = create(
        served, segment_bytes="1000000", max_compaction_lag_ms="5000", min_cleanable_dirty_ratio="1"
    )
    log = fill(served, topic)
    assert not clean(served)
    served.advance(6)
    assert clean(served)
    assert len(read_records(log)) == 4


def test_internal_topics_are_never_cleaned(served: ServedNode, cleaner: CleanerHere) -> None:
    for _ in range(50):
        served.put(b"key", b"value" * 50)
    assert not clean(served)


def test_a_log_that_cannot_be_cleaned_is_left_as_it_is_and_tried_again_much_later(
    served: ServedNode, cleaner: CleanerHere, caplog: pytest.LogCaptureFixture
) -> None:
    log = fill(served, create(served))
    before = read_records(log)
    cleaner.failure = CompactionFailed("00000000000000000000.log: cannot be compacted")
    assert clean(served)
    assert read_records(log) == before
    assert "orders-0: not compacted, tried again in 60 s: 00000000000000000000.log" in caplog.text
    assert not clean(served), "not at once"
    served.advance(RETRY_MS / 1000)
    assert clean(served)
    served.advance(RETRY_MS / 1000)
    assert not clean(served), "twice as long the second time"
    cleaner.failure = None
    served.advance(RETRY_MS / 1000)
    assert clean(served)
    assert len(read_records(log)) < len(before)
    assert served.node.compactor.totals.failures == 2


def test_other_logs_are_cleaned_although_one_cannot_be(
    served: ServedNode, cleaner: CleanerHere
) -> None:
    fill(served, create(served, "broken"))
    cleaner.failure = CompactionFailed("no")
    clean(served)
    cleaner.failure = None
    log = fill(served, create(served))
    assert clean(served)
    assert len(read_records(log)) < 40


# --- while it works ---------------------------------------------------------------------------


def begin(served: ServedNode, cleaner: CleanerHere) -> "object":
    """A cleaning under way: its first result is waited for."""
    cleaner.may_answer.clear()
    task = served.start(served.node.compactor.clean_dirtiest())
    while not cleaner.asked.is_set():
        served.turn()
    return task


def test_a_topic_can_be_deleted_and_made_again_meanwhile(
    served: ServedNode, cleaner: CleanerHere
) -> None:
    topic = create(served)
    fill(served, topic)
    task = begin(served, cleaner)
    deletion = served.start(served.node.topics.delete(topic))
    while not cleaner.ends:  # the deletion has asked it to let go
        served.turn()
    cleaner.may_answer.set()
    served.run(deletion)
    assert served.run(task) is True  # type: ignore[arg-type] # a task
    log = fill(served, create(served), count=5)
    assert len(read_records(log)) == 5
    names = served.node.directory.disk.names(log.directory)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert served.node.directory.cleaned_offset(("orders", 0)) == 0


def test_records_deleted_meanwhile_stay_deleted(served: ServedNode, cleaner: CleanerHere) -> None:
    topic = create(served, min_cleanable_dirty_ratio="0")
    log = fill(served, topic)
    expected = [one for one in read_records(log) if one.offset >= 37]
    task = begin(served, cleaner)
    served.node.topics.delete_records(topic.partitions[0], 37)
    cleaner.may_answer.set()
    served.run(task)  # type: ignore[arg-type] # a task
    assert log.start_offset == 37
    assert state_of(read_records(log)) == state_of(expected)
    clean(served)
    assert state_of(read_records(log)) == state_of(expected)


def test_a_stop_waits_for_nothing_but_a_swap(served: ServedNode, cleaner: CleanerHere) -> None:
    log = fill(served, create(served))
    task = begin(served, cleaner)
    stop = served.start(served.node.compactor.stop())
    cleaner.may_answer.set()
    served.run(stop)
    served.run(task)  # type: ignore[arg-type] # a task
    assert len(read_records(log)) == 40
    assert not clean(served)


# --- the pace ---------------------------------------------------------------------------------


def test_a_limit_makes_a_cleaning_wait_for_its_bytes() -> None:
    waited: list[float] = []
    pace = Pace(1_000, seconds=lambda: 100.0 + sum(waited), wait=waited.append)
    for _ in range(4):
        pace(500)
    assert sum(waited) == pytest.approx(2.0)
