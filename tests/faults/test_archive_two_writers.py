"""Two archivers at once in a store without locks, their steps in every order.

A step is one call to the store. Whatever the order, what a run reported as done is in the archive
once, after the next run at the latest, even if the topic has lost it since; and at every moment
the manifest names only files that are there as they were written.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import product
from threading import Semaphore, Thread

import pytest

from millstream.archive.layout import MANIFEST_NAME, partition_folder
from millstream.archive.parquet import checksum
from millstream.archive.topic_archive import ArchiveChanged, load_manifest
from tests.support.archived_topic import (
    ArchivableTopic,
    numbered_records,
    read_archive,
    run_archive,
)

RECORDS = numbered_records(8)
STEPS_MAX = 8
SWITCHES = [
    pytest.param(range(3), id="few"),
    pytest.param(range(3, 4), id="many", marks=pytest.mark.full),
]
Order = tuple[int, ...]


class MemoryStore:
    """A `Store` of single, whole steps, with no lock; `gate` is passed before each of them."""

    place = "memory"
    has_lock = False

    def __init__(self, files: dict[str, bytes], gate: Callable[[], None] = lambda: None) -> None:
        self.files, self._gate = files, gate

    def read(self, path: str) -> bytes | None:
        self._gate()
        return self.files.get(path)

    def write(self, path: str, content: bytes) -> None:
        self._gate()
        self.files[path] = content
        if path.endswith(MANIFEST_NAME):
            assert_whole(MemoryStore(self.files))

    def names(self, folder: str) -> list[str]:
        self._gate()
        inside = [path.removeprefix(f"{folder}/") for path in self.files if folder in path]
        return sorted({path.partition("/")[0] for path in inside})

    def remove(self, path: str) -> None:
        self._gate()
        self.files.pop(path, None)

    def hold(self, folder: str) -> AbstractContextManager[None]:
        return nullcontext()


def assert_whole(store: MemoryStore) -> None:
    manifest = load_manifest(store, "orders")
    assert manifest is not None
    for number, partition in manifest.partitions.items():
        folder = partition_folder("orders", number)
        there = [checksum(content) for path, content in store.files.items() if folder in path]
        assert {file.sha256 for file in partition.files} <= set(there)


@dataclass(frozen=True)
class Writer:
    """`starts`: the topic has lost what is before; `records_max` cuts other files.

    `compacted` offsets are not in the topic any more: a file of the same range has other bytes.
    """

    records_max: int = 4
    starts: int = 0
    end: int = 8
    compacted: frozenset[int] = frozenset()
    times: int = 1

    def run(self, store: MemoryStore) -> set[int]:
        """The offsets that it reports as archived."""
        records = [one for one in RECORDS[: self.end] if one.offset not in self.compacted]
        topic = ArchivableTopic({0: records}, starts={0: self.starts})
        runs = [
            run
            for _ in range(self.times)
            for run in run_archive(store, topic, records_max=self.records_max, allow_gaps=True)
        ]
        ranges = [file.offsets for run in runs for file in run.files]
        return {one.offset for one in records if any(one.offset in within for within in ranges)}


class Run:
    """One writer in a thread, which makes one step when it is told to."""

    def __init__(self, writer: Writer, files: dict[str, bytes]) -> None:
        self.writer = writer
        self.failure: BaseException | None = None
        self.reported: set[int] = set()
        self._ended = False
        self._go, self._waiting = Semaphore(0), Semaphore(0)
        self._thread = Thread(target=self._run, args=(MemoryStore(files, self._gate),))
        self._thread.start()
        self._waiting.acquire()

    def _gate(self) -> None:
        self._waiting.release()
        self._go.acquire()

    def _run(self, store: MemoryStore) -> None:
        try:
            self.reported = self.writer.run(store)
        except BaseException as error:
            self.failure = error
        self._ended = True
        self._waiting.release()

    def step(self) -> bool:
        """False if it has ended."""
        if self._ended:
            return False
        self._go.release()
        self._waiting.acquire()
        return True

    def finish(self) -> None:
        while self.step():
            pass
        self._thread.join()


def orders(switches: int, most: int) -> Iterator[Order]:
    """How many steps are made before each change to the other writer."""
    for steps in product(range(1, most), repeat=switches):
        if sum(steps[0::2]) < most and sum(steps[1::2]) < most:
            yield steps


def run_both(writers: tuple[Writer, Writer], files: dict[str, bytes], order: Order) -> list[Run]:
    runs = [Run(writer, files) for writer in writers]
    for turn, steps in enumerate(order):
        for _ in range(steps):
            runs[turn % 2].step()
    for run in (runs[len(order) % 2], runs[(len(order) + 1) % 2]):
        run.finish()
    return runs


def archive_of(count: int) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    if count:
        Writer(end=count).run(MemoryStore(files))
    return files


def assert_kept(runs: list[Run], files: dict[str, bytes], *, archived: int) -> None:
    """The topic loses everything; the next run ends with what was reported as done, once."""
    for run in runs:
        assert run.failure is None or isinstance(run.failure, ArchiveChanged), run.failure
    store = MemoryStore(files)
    Writer(starts=8).run(store)
    found = [record.offset for record in read_archive(store)[0]]
    assert found == sorted(set(found))
    known = {*range(archived), *runs[0].reported, *runs[1].reported}
    assert known - runs[0].writer.compacted - runs[1].writer.compacted <= set(found)


@pytest.mark.parametrize("switches", SWITCHES)
@pytest.mark.parametrize("first", [0, pytest.param(1, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("archived", "pair"),
    [
        pytest.param(4, (Writer(), Writer()), id="the_same_file"),
        pytest.param(4, (Writer(records_max=2), Writer(records_max=3)), id="other_files"),
        pytest.param(4, (Writer(), Writer(compacted=frozenset({5}))), id="other_bytes"),
        pytest.param(4, (Writer(), Writer(records_max=2, times=2)), id="one_runs_twice"),
        pytest.param(4, (Writer(starts=4), Writer(starts=6)), id="one_sees_a_gap"),
        pytest.param(0, (Writer(), Writer(records_max=8)), id="the_first_run"),
        pytest.param(0, (Writer(), Writer(starts=3)), id="the_first_run_of_one_is_late"),
    ],
)
def test_no_order_of_two_writers_loses_or_doubles_a_record(
    archived: int, pair: tuple[Writer, Writer], first: int, switches: range
) -> None:
    before, most = archive_of(archived), STEPS_MAX * max(one.times for one in pair)
    for order in (order for count in switches for order in orders(count, most)):
        files = dict(before)
        runs = run_both((pair[first], pair[1 - first]), files, order)
        try:
            assert_kept(runs, files, archived=archived)
        except Exception as error:
            raise AssertionError(f"order {order}") from error
