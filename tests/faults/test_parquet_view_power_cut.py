"""A power cut at every step of a view in Parquet files: what was acknowledged is there, whole."""

from pathlib import Path

import pytest

from millstream.base.disk import Disk, DiskFull
from millstream.schemas.declaration import schema_of
from millstream.views.store import Row
from millstream.views.stores.parquet.store import ParquetStore
from tests.contracts.view_store_contract import COUNTS, changes, receipt, rows
from tests.support.recording_disk import RecordingDisk
from tests.support.simulated_disk import PowerCut, SimulatedDisk, Survival

SURVIVALS = tuple(Survival)

BATCHES = (
    rows(COUNTS, ("/a", 1), ("/b", 1)),
    changes(("/a", 2, "upsert"), ("/b", None, "delete"), ("/c", 2, "upsert")),
    changes(("/c", None, "delete"), ("/d", 3, "upsert")),
)
# The rows after so many batches.
STATES: tuple[dict[str, int], ...] = (
    {},
    {"/a": 1, "/b": 1},
    {"/a": 2, "/c": 2},
    {"/a": 2, "/d": 3},
)


def opened(root: Path, disk: Disk) -> ParquetStore:
    # Files that were replaced go at once: the clock leaps.
    times = iter(range(0, 10**12, 10**9))
    return ParquetStore(
        root / "counts", view="counts", key=("url",), disk=disk, clock=lambda: next(times)
    )


def write_batches(store: ParquetStore, *, first: int, epoch: int) -> None:
    writer = store.writer(1)
    assert writer.claim("counts", schema_of(COUNTS)) >= epoch
    epoch = writer._epoch
    for batch in range(first, len(BATCHES)):
        writer.write(receipt(epoch=epoch, batch=batch), BATCHES[batch])


def counted(found: list[Row]) -> dict[str, int]:
    return {row["url"]: row["count"] for row in found}


def batches_in(store: ParquetStore) -> int:
    (one,) = store.generations()
    return 0 if one.batch is None else one.batch + 1


def test_a_cut_at_any_step_leaves_the_view_as_of_a_batch(lock_path: Path) -> None:
    disk = RecordingDisk(lock_path)
    store = opened(lock_path, disk)
    writer = store.writer(1)
    writer.claim("counts", schema_of(COUNTS))
    cuts = 0
    for batch, table in enumerate(BATCHES):
        disk.leftovers.clear()
        disk.start()
        writer.write(receipt(epoch=1, batch=batch), table)
        leftovers = list(disk.stop())
        for moment, left in leftovers:
            found = opened(lock_path, left)
            at = batches_in(found)
            is_done = moment.startswith("at the end")
            assert at in ((batch + 1,) if is_done else (batch, batch + 1)), moment
            assert counted(found.reader().scan()) == STATES[at], moment
            cuts += 1
    assert cuts > 100


def test_a_job_goes_on_after_a_cut_at_any_step(lock_path: Path) -> None:
    whole = SimulatedDisk(lock_path)
    write_batches(opened(lock_path, whole), first=0, epoch=1)
    for step in range(whole.steps):
        disk = RecordingDisk(lock_path)
        disk.cut_power_at(step)
        with pytest.raises(PowerCut):
            write_batches(opened(lock_path, disk), first=0, epoch=1)
        left = disk.after_power_cut(SURVIVALS[step % len(SURVIVALS)], seed=step)
        store = opened(lock_path, left)
        first = batches_in(store) if store.generations() else 0
        write_batches(store, first=first, epoch=1)
        assert counted(store.reader().scan()) == STATES[-1], f"cut at step {step}"


def test_a_full_disk_loses_nothing_and_heals(lock_path: Path) -> None:
    whole = SimulatedDisk(lock_path)
    write_batches(opened(lock_path, whole), first=0, epoch=1)
    for step in range(1, whole.steps):
        disk = SimulatedDisk(lock_path)
        disk.fill_at(step)
        store = opened(lock_path, disk)
        try:
            write_batches(store, first=0, epoch=1)
        except DiskFull:
            disk.heal()
            first = batches_in(store) if store.generations() else 0
            if store.generations():
                assert counted(store.reader().scan()) == STATES[first], f"full at step {step}"
            write_batches(store, first=first, epoch=1)
        assert counted(store.reader().scan()) == STATES[-1], f"full at step {step}"
