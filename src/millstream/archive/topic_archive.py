"""One topic's archive, open for writing: files first, then the manifest that makes them count.

Whatever a crash leaves between two steps is finished by the next run: a file that follows the
last one is taken into the manifest, since its records may be gone from the topic by then; a file
whose range is covered is removed. Does not read topics, and does not lock: the caller holds the
folder (`Store.hold`).
"""

from dataclasses import replace

from millstream.archive.layout import (
    file_path,
    manifest_path,
    offsets_from_name,
    partition_folder,
    topic_folder,
)
from millstream.archive.manifest import (
    ArchivedFile,
    ArchivedPartition,
    Manifest,
    manifest_from_json,
    manifest_to_json,
)
from millstream.archive.parquet import Origin, describe
from millstream.archive.plan import Source, continue_with, new_gaps
from millstream.archive.stores import TEMPORARY_SUFFIX, Store
from millstream.base.errors import Rejected, Retryable
from millstream.base.offsets import OffsetRange


class StrangeFile(Rejected):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place} does not belong there: {problem}. Move it away and run again")
        self.place, self.problem = place, problem


class ArchiveChanged(Retryable):
    """Another writer was quicker. Nothing of this writer's last step is left."""

    def __init__(self, *, place: str) -> None:
        super().__init__(
            f"{place} was changed by another command meanwhile. What it wrote is safe: wait until "
            "it has ended, and run this one again"
        )
        self.place = place


def load_manifest(store: Store, topic: str) -> Manifest | None:
    content = store.read(manifest_path(topic))
    place = f"{store.place}/{manifest_path(topic)}"
    return None if content is None else manifest_from_json(content, place=place)


class TopicArchive:
    """`manifest` is what the store has: it is replaced here only after it was written there."""

    def __init__(self, store: Store, topic: str) -> None:
        self._store = store
        self._topic = topic
        self._manifest = load_manifest(store, topic)

    @property
    def manifest(self) -> Manifest:
        if self._manifest is None:
            raise ValueError("begin() first")
        return self._manifest

    @property
    def is_new(self) -> bool:
        return self._manifest is None

    def begin(self, source: Source, *, allow_gaps: bool) -> dict[int, OffsetRange]:
        """Finish what an interrupted run left, and note where this one starts.

        Returns the gaps that are new, by partition. The manifest is written even if it says
        nothing new: its new revision keeps out a writer that began earlier, and what a killed one
        left may not be on the device yet.
        """
        if self._manifest is None:
            self._require_empty()
        else:
            self._mend(self._manifest)
        before = self._manifest
        start = continue_with(before, source, allow_gaps=allow_gaps)
        self._commit(start)
        return new_gaps(before, start)

    def append(self, partition: int, file: ArchivedFile, content: bytes) -> None:
        path = file_path(self._topic, partition, file.offsets)
        grown = self._partition(partition).with_file(file)
        self._store.write(path, content)
        try:
            self._commit(self.manifest.with_partition(partition, grown))
        except ArchiveChanged:
            self._remove_unless_theirs(path, partition, file)
            raise

    def pass_over(self, partition: int, *, until: int) -> None:
        """There was nothing to read up to that offset."""
        grown = self._partition(partition).without_records(until=until)
        self._commit(self.manifest.with_partition(partition, grown))

    def _partition(self, number: int) -> ArchivedPartition:
        return self.manifest.partitions[number]

    def _commit(self, manifest: Manifest) -> None:
        """The revision must be the one that this writer knows: stores have no locks in common."""
        stored = load_manifest(self._store, self._topic)
        if (stored and stored.revision) != (self._manifest and self._manifest.revision):
            raise ArchiveChanged(place=self._place(topic_folder(self._topic)))
        following = replace(manifest, revision=manifest.revision + 1)
        self._store.write(manifest_path(self._topic), manifest_to_json(following))
        self._manifest = following

    def _remove_unless_theirs(self, path: str, partition: int, file: ArchivedFile) -> None:
        theirs = load_manifest(self._store, self._topic)
        files = theirs.partitions[partition].files if theirs else ()
        if file.offsets not in [one.offsets for one in files]:
            self._store.remove(path)

    # What an interrupted run left

    def _require_empty(self) -> None:
        for folder in self._store.names(topic_folder(self._topic)):
            if folder.startswith("partition="):
                place = self._place(f"{topic_folder(self._topic)}/{folder}")
                raise StrangeFile(place=place, problem="there is no manifest beside it")

    def _mend(self, manifest: Manifest) -> None:
        for number in sorted(manifest.partitions):
            folder = partition_folder(self._topic, number)
            known = {file.offsets for file in manifest.partitions[number].files}
            for name in self._store.names(folder):
                offsets = offsets_from_name(name)
                if name.endswith(TEMPORARY_SUFFIX):
                    self._store.remove(f"{folder}/{name}")
                elif offsets is not None and offsets not in known:
                    self._mend_one(number, f"{folder}/{name}")

    def _mend_one(self, partition: int, path: str) -> None:
        content = self._store.read(path)
        described = None if content is None else describe(content)
        covered = self._partition(partition).offsets
        if described is None:  # an upload that broke off
            self._store.remove(path)
            return
        origin, file = described
        if origin != Origin(
            topic=self._topic, topic_id=self.manifest.topic_id, partition=partition
        ):
            raise StrangeFile(place=self._place(path), problem=f"it is of {origin}")
        if content and file.offsets.start == covered.end:
            self._store.write(path, content)  # its name may not be on the device yet
            grown = self._partition(partition).with_file(file)
            self._commit(self.manifest.with_partition(partition, grown))
        elif file.offsets.start >= covered.start and file.offsets.end <= covered.end:
            self._store.remove(path)
        else:
            problem = f"it covers {file.offsets}, the archive {covered}"
            raise StrangeFile(place=self._place(path), problem=problem)

    def _place(self, path: str) -> str:
        return f"{self._store.place}/{path}"
