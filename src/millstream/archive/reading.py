"""Reading an archive: what it holds, and its records in order. Every file is checked first.

Does not write, and takes no lock: files never change, and the manifest is replaced as a whole.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from millstream.archive.layout import (
    file_path,
    manifest_path,
    topic_from_folder,
)
from millstream.archive.manifest import ArchivedFile, Manifest
from millstream.archive.parquet import DamagedFile, batches, checksum, require_pyarrow
from millstream.archive.selection import Selection
from millstream.archive.stores import Store, open_store
from millstream.archive.topic_archive import load_manifest
from millstream.base.errors import Rejected
from millstream.base.quantity import INT64_MAX

if TYPE_CHECKING:
    import pyarrow


class NotArchived(Rejected):
    def __init__(self, *, place: str, topic: str, known: list[str]) -> None:
        there = f"There are: {', '.join(known)}" if known else "There is no archive at all"
        super().__init__(f"{place} holds no archive of topic {topic}. {there}")
        self.place, self.topic = place, topic


def read(
    path: str,
    topic: str,
    partition: int | None = None,
    start: int | None = None,
    end: int | None = None,
) -> Iterator["pyarrow.RecordBatch"]:
    """The archived records with offsets [start, end), in order, partition after partition.

    Columns: partition, offset, timestamp, timestamp_type, key, value, headers.
    """
    store = open_store(path)
    manifest = require_manifest(store, topic)
    selection = Selection(start=start or 0, end=INT64_MAX if end is None else end)
    for number in sorted(manifest.partitions) if partition is None else [partition]:
        yield from read_partition(store, manifest, number, selection)


def read_partition(
    store: Store, manifest: Manifest, partition: int, selection: Selection
) -> Iterator["pyarrow.RecordBatch"]:
    require_pyarrow()
    archived = manifest.partitions.get(partition)
    for file in archived.files if archived else ():
        if selection.may_hold(file):
            content = read_checked(store, manifest.topic, partition, file)
            yield from batches(content, partition=partition, selection=selection)


def read_checked(store: Store, topic: str, partition: int, file: ArchivedFile) -> bytes:
    """The bytes that were written, or an error that names the file."""
    path = file_path(topic, partition, file.offsets, file.sha256)
    content = store.read(path)
    place = f"{store.place}/{path}"
    if content is None:
        raise DamagedFile(place=place, problem="is missing, although the manifest names it")
    if checksum(content) != file.sha256:
        raise DamagedFile(place=place, problem="has other bytes than were written (checksum)")
    return content


def archived_topics(store: Store) -> list[str]:
    folders = [topic_from_folder(name) for name in store.names("")]
    topics = [topic for topic in folders if topic is not None]
    return [topic for topic in topics if store.read(manifest_path(topic)) is not None]


def require_manifest(store: Store, topic: str) -> Manifest:
    manifest = load_manifest(store, topic)
    if manifest is None:
        raise NotArchived(place=store.place, topic=topic, known=archived_topics(store))
    return manifest
