"""One topic's archive, open for writing: files first, then the manifest that makes them count.

Whatever a crash or another writer leaves is finished by the next run: what the archive lacks is
taken from files that no manifest names, since those records may be gone from the topic by then.
A file that adds nothing is removed, but only where a lock keeps others away: without one, a
slow writer may still be about to name it. Does not read topics, and does not lock: the caller
holds the folder (`Store.hold`).
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
from millstream.archive.parquet import Origin, cut, describe
from millstream.archive.plan import Source, continue_with, new_gaps, nothing_from
from millstream.archive.stores import TEMPORARY_SUFFIX, Store
from millstream.base.errors import Rejected, Retryable
from millstream.base.offsets import OffsetRange


class StrangeFile(Rejected):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place} does not belong there: {problem}. Move it away and run again")
        self.place, self.problem = place, problem


class ArchiveChanged(Retryable):
    """Another writer was quicker. The file of the last step stays, unnamed, for the next run."""

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
    """`manifest` is what the store has: it is replaced here only after it was written there.

    `spare` are files that add nothing, and that were not removed for want of a lock.
    """

    def __init__(self, store: Store, topic: str) -> None:
        self._store = store
        self._topic = topic
        self._manifest = load_manifest(store, topic)
        self.spare: list[str] = []

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
            self._mend(sorted({*self._manifest.partitions, *source.available}))
        before = self._manifest
        start = continue_with(before, source, allow_gaps=allow_gaps)
        self._commit(start)
        return new_gaps(before, start)

    def append(self, partition: int, file: ArchivedFile, content: bytes) -> None:
        """After `ArchiveChanged` the file stays: another writer may be about to name it."""
        self._put(partition, self._partition(partition).with_file(file), file, content)

    def pass_over(self, partition: int, *, until: int) -> None:
        """There was nothing to read up to that offset."""
        grown = self._partition(partition).without_records(until=until)
        self._commit(self.manifest.with_partition(partition, grown))

    def _partition(self, number: int) -> ArchivedPartition:
        return self.manifest.partitions.get(number, nothing_from(0))

    def _put(
        self, number: int, grown: ArchivedPartition, file: ArchivedFile, content: bytes
    ) -> None:
        self._store.write(self._path_of(number, file), content)
        self._commit(self.manifest.with_partition(number, grown))

    def _path_of(self, number: int, file: ArchivedFile) -> str:
        return file_path(self._topic, number, file.offsets, file.sha256)

    def _commit(self, manifest: Manifest) -> None:
        """The manifest must be the one that this writer knows: stores have no locks in common."""
        if load_manifest(self._store, self._topic) != self._manifest:
            raise ArchiveChanged(place=self._place(topic_folder(self._topic)))
        following = replace(manifest, revision=manifest.revision + 1)
        self._store.write(manifest_path(self._topic), manifest_to_json(following))
        self._manifest = following

    # What an interrupted run left

    def _require_empty(self) -> None:
        for folder in self._store.names(topic_folder(self._topic)):
            if folder.startswith("partition="):
                self._require_no_manifest()
                place = self._place(f"{topic_folder(self._topic)}/{folder}")
                raise StrangeFile(place=place, problem="there is no manifest beside it")

    def _require_no_manifest(self) -> None:
        if load_manifest(self._store, self._topic) is not None:
            raise ArchiveChanged(place=self._place(topic_folder(self._topic)))

    def _mend(self, numbers: list[int]) -> None:
        for number in numbers:
            left = self._unnamed(number)
            # What is taken may lead up to another file: look again after each one.
            while (path := self._first_of_use(number, left)) is not None:
                self._take(number, path)
                del left[path]
            for path in [path for path, offsets in left.items() if self._covers(number, offsets)]:
                self._drop(number, path)

    def _unnamed(self, number: int) -> dict[str, OffsetRange]:
        """Files that the manifest does not name, in order of their offsets."""
        folder = partition_folder(self._topic, number)
        named = {self._path_of(number, file) for file in self._partition(number).files}
        found = {}
        for name in self._store.names(folder):
            path, offsets = f"{folder}/{name}", offsets_from_name(name)
            if name.endswith(TEMPORARY_SUFFIX):
                self._store.remove(path)
            elif offsets is not None and path not in named:
                found[path] = offsets
        return found

    def _first_of_use(self, number: int, left: dict[str, OffsetRange]) -> str | None:
        partition = self._partition(number)
        return next((path for path, offsets in left.items() if partition.lacks(offsets)), None)

    def _covers(self, number: int, offsets: OffsetRange) -> bool:
        """A file that begins beyond the archive is of use later."""
        return offsets.end <= self._partition(number).offsets.end

    def _take(self, number: int, path: str) -> None:
        """Put what the archive lacks into it; the file as it is, if that is all of it."""
        content = self._store.read(path)
        described = None if content is None else describe(content)
        if content is None or described is None:  # an upload that broke off
            self._discard(path)
            return
        origin, whole = described
        self._require_ours(origin, number, path)
        for lacking in self._partition(number).lacks(whole.offsets):
            is_whole = lacking == whole.offsets
            file, part = (whole, content) if is_whole else cut(content, origin, lacking)
            # Also one that is there is written: its name may not be on the device yet.
            self._put(number, self._partition(number).with_found(file), file, part)
        if whole not in self._partition(number).files:
            self._discard(path)

    def _drop(self, number: int, path: str) -> None:
        """Looked into before it is removed: it may be of another topic."""
        if self._store.has_lock:
            self._take(number, path)
        else:
            self._discard(path)

    def _require_ours(self, origin: Origin, number: int, path: str) -> None:
        expected = Origin(topic=self._topic, topic_id=self.manifest.topic_id, partition=number)
        if origin != expected:
            raise StrangeFile(place=self._place(path), problem=f"it is of {origin}")

    def _discard(self, path: str) -> None:
        if self._store.has_lock:
            self._store.remove(path)
        else:
            self.spare.append(self._place(path))

    def _place(self, path: str) -> str:
        return f"{self._store.place}/{path}"
