"""An archive is interrupted at every step: by kill -9, and by a power cut.

Whatever was left, the next run ends with every record once, in a manifest that names exactly the
files that are there, and a run that said it was done is on the disk.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from millstream.archive.layout import file_name, partition_folder
from millstream.archive.manifest import Manifest
from millstream.archive.stores import ArchiveInUse, DiskStore, Store
from millstream.archive.topic_archive import (
    ArchiveChanged,
    StrangeFile,
    TopicArchive,
    load_manifest,
)
from millstream.base.disk import RealDisk
from tests.support.archived_topic import (
    ArchivableTopic,
    numbered_records,
    read_archive,
    run_archive,
)
from tests.support.simulated_disk import PowerCut, SimulatedDisk, Survival
from tests.support.unlocked_store import UnlockedStore

ROOT = Path("/archive")
# Quick: the two extremes and the two that are neither; the others are much like them.
SLOW = (Survival.DATA, Survival.PREFIX)
SURVIVALS = [pytest.param(one, marks=[pytest.mark.full] if one in SLOW else []) for one in Survival]
HOLES = [one for one in numbered_records(8) if one.offset not in (1, 2, 6)]


def topic_to_archive() -> ArchivableTopic:
    """Partition 0 is full of records, 1 has holes and ends in markers, 2 has only markers."""
    return ArchivableTopic({0: numbered_records(6), 1: HOLES, 2: []}, ends={1: 11, 2: 5})


def store_on(disk: SimulatedDisk) -> Store:
    return DiskStore(disk, ROOT)


def assert_archived(store: Store, topic: ArchivableTopic) -> None:
    assert read_archive(store) == topic.partitions
    manifest = load_manifest(store, topic.name)
    assert manifest is not None
    for number, within in topic.source().available.items():
        assert manifest.partitions[number].offsets == within
        assert manifest.partitions[number].gaps == ()
        assert store.names(partition_folder(topic.name, number)) == named(manifest, number)


def named(manifest: Manifest, partition: int) -> list[str]:
    files = manifest.partitions[partition].files
    return [file_name(file.offsets, file.sha256) for file in files]


def steps_of(topic: ArchivableTopic) -> int:
    disk = SimulatedDisk(ROOT)
    run_archive(store_on(disk), topic)
    return disk.steps


def interrupted_disks(topic: ArchivableTopic) -> Iterator[tuple[int, SimulatedDisk]]:
    """A disk for every step that a run was stopped at."""
    for step in range(steps_of(topic)):
        disk = SimulatedDisk(ROOT)
        disk.cut_power_at(step)
        with pytest.raises(PowerCut):
            run_archive(store_on(disk), topic)
        yield step, disk


def test_a_run_that_is_killed_at_any_step_is_finished_by_the_next() -> None:
    topic = topic_to_archive()
    for _step, disk in interrupted_disks(topic):
        disk.restore_power()
        run_archive(store_on(disk), topic)
        assert_archived(store_on(disk), topic)
        assert_archived(store_on(disk.after_power_cut(Survival.NOTHING)), topic)


def test_there_are_many_steps_to_be_stopped_at() -> None:
    assert steps_of(topic_to_archive()) > 50


@pytest.mark.parametrize("survival", SURVIVALS)
def test_a_power_cut_at_any_step_is_made_good_by_the_next_run(survival: Survival) -> None:
    topic = topic_to_archive()
    for step, disk in interrupted_disks(topic):
        survivor = disk.after_power_cut(survival, seed=step)
        run_archive(store_on(survivor), topic)
        assert_archived(store_on(survivor), topic)


def test_two_runs_that_are_killed_one_after_the_other_are_finished_by_the_third() -> None:
    topic = topic_to_archive()
    for step, disk in interrupted_disks(topic):
        disk.restore_power()
        disk.cut_power_at(disk.steps + step % 7)
        with suppress(PowerCut):
            run_archive(store_on(disk), topic)
        disk.restore_power()
        run_archive(store_on(disk), topic)
        assert_archived(store_on(disk), topic)


def test_a_reader_sees_whole_files_only_at_any_step() -> None:
    topic = topic_to_archive()
    for step, disk in interrupted_disks(topic):
        disk.restore_power()
        if load_manifest(store_on(disk), topic.name) is None:
            continue
        for number, records in read_archive(store_on(disk)).items():
            whole = topic.partitions[number]
            assert records == whole[: len(records)], f"step {step}"


def test_a_file_without_its_manifest_is_kept_when_the_topic_has_lost_its_records(
    tmp_path: Path,
) -> None:
    """The run was killed between the two; until the next one, retention deleted the records."""
    store = KilledBefore("_manifest.json", tmp_path, writes=2)
    topic = ArchivableTopic({0: numbered_records(6)})
    with pytest.raises(PowerCut):
        run_archive(store, topic)
    topic.starts = {0: 4}
    run_archive(DiskStore(RealDisk(), tmp_path), topic)
    assert read_archive(DiskStore(RealDisk(), tmp_path)) == topic.partitions


class KilledBefore(DiskStore):
    """Stops before the n-th write of a name."""

    def __init__(self, name: str, root: Path, *, writes: int) -> None:
        super().__init__(RealDisk(), root)
        self._name, self._left = name, writes

    def write(self, path: str, content: bytes) -> None:
        if path.endswith(self._name):
            self._left -= 1
            if self._left == 0:
                raise PowerCut
        super().write(path, content)


def test_a_file_of_another_topic_is_not_touched(tmp_path: Path) -> None:
    other = ArchivableTopic({0: numbered_records(4)}, id="id-2")
    run_archive(DiskStore(RealDisk(), tmp_path / "other"), other)
    topic = ArchivableTopic({0: []})
    store = DiskStore(RealDisk(), tmp_path / "here")
    run_archive(store, topic)
    folder = partition_folder("orders", 0)
    (name,) = (tmp_path / "other" / folder).iterdir()
    (tmp_path / "here" / folder).mkdir()
    name.rename(tmp_path / "here" / folder / name.name)
    with pytest.raises(StrangeFile, match=r"id-2.*Move it away"):
        run_archive(store, topic)
    assert (tmp_path / "here" / folder / name.name).exists()


def test_files_without_a_manifest_are_not_written_over(tmp_path: Path) -> None:
    store = DiskStore(RealDisk(), tmp_path)
    topic = topic_to_archive()
    run_archive(store, topic)
    (tmp_path / "topic=orders" / "_manifest.json").unlink()
    with pytest.raises(StrangeFile, match="no manifest beside it"):
        run_archive(store, topic)


def test_what_the_archive_lacks_is_cut_from_a_file_and_the_rest_is_removed(tmp_path: Path) -> None:
    """The manifest is an older one, and the topic has lost what came after it."""
    store = DiskStore(RealDisk(), tmp_path)
    topic = ArchivableTopic({0: numbered_records(3)})
    run_archive(store, topic)
    other = ArchivableTopic({0: numbered_records(8)})
    run_archive(DiskStore(RealDisk(), tmp_path / "other"), other, records_max=8)
    (longer,) = (tmp_path / "other").rglob("*.parquet")
    longer.rename(tmp_path / partition_folder("orders", 0) / longer.name)
    other.starts = {0: 8}
    run_archive(store, other)
    assert read_archive(store) == other.partitions
    manifest = load_manifest(store, "orders")
    assert manifest is not None
    assert store.names(partition_folder("orders", 0)) == named(manifest, 0)


# --- two at once -----------------------------------------------------------------------------


def test_a_second_archiver_of_a_directory_is_refused(tmp_path: Path) -> None:
    first, second = (DiskStore(RealDisk(), tmp_path) for _ in range(2))
    with first.hold("topic=orders"):
        refused = pytest.raises(ArchiveInUse, match=r"another command \(process \d+\)")
        with refused, second.hold("topic=orders"):
            pytest.fail("both hold it")
        with second.hold("topic=clicks"):
            pass
    with second.hold("topic=orders"):
        pass


class Rival(UnlockedStore):
    """Another archiver makes its whole run just before, or after, this one's n-th file."""

    def __init__(self, root: Path, topic: ArchivableTopic, *, at_file: int, before: bool) -> None:
        super().__init__(root)
        self._rival = UnlockedStore(root)
        self._topic, self._left, self._before = topic, at_file, before

    def write(self, path: str, content: bytes) -> None:
        self._left -= path.endswith(".parquet")
        is_due, self._left = self._left == 0, self._left or -1
        if is_due and self._before:
            run_archive(self._rival, self._topic, records_max=3)
        super().write(path, content)
        if is_due and not self._before:
            run_archive(self._rival, self._topic, records_max=3)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("at_file", range(1, 5))
def test_two_archivers_at_once_leave_every_record_once(
    tmp_path: Path, at_file: int, before: bool
) -> None:
    topic = topic_to_archive()
    with pytest.raises(ArchiveChanged, match="run this one again"):
        run_archive(Rival(tmp_path, topic, at_file=at_file, before=before), topic, records_max=4)
    assert read_archive(UnlockedStore(tmp_path)) == topic.partitions
    topic.partitions[0] += numbered_records(5, start=6)
    run_archive(UnlockedStore(tmp_path), topic)
    assert read_archive(UnlockedStore(tmp_path)) == topic.partitions


def test_a_file_that_adds_nothing_is_named_where_there_is_no_lock(tmp_path: Path) -> None:
    topic = topic_to_archive()
    with pytest.raises(ArchiveChanged):
        run_archive(Rival(tmp_path, topic, at_file=1, before=True), topic, records_max=4)
    archive = TopicArchive(UnlockedStore(tmp_path), topic.name)
    archive.begin(topic.source(), allow_gaps=False)
    (spare,) = archive.spare
    assert Path(spare).name.startswith(f"{0:020}-{4:020}-")
    assert Path(spare).exists()
