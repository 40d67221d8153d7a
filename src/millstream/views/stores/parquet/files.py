"""A view's directory of Parquet files: the manifest, and rows to bytes and back.

A file of rows is synced, and its name, before a manifest lists it; the manifest is replaced as a
whole: a kill or a power cut leaves the former one valid, and files that no manifest lists.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.base.disk import Disk, FileGone, read_file, replace_file
from millstream.views.stores.parquet.manifest import (
    MANIFEST,
    KeptFile,
    Manifest,
    ManifestDamaged,
    manifest_from_json,
    manifest_to_json,
)

# Readers without our schema, Spark among them, know moments in microseconds.
WRITE_OPTIONS = {"compression": "zstd", "coerce_timestamps": "us", "store_schema": True}


class ParquetDirectory:
    """All names are within `path`. One writer at a time (`view_lock.py`), any number of readers."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.disk, self.path = disk, path

    def make(self) -> None:
        """The directory and those above it, synced."""
        missing = [one for one in (self.path, *self.path.parents) if not self.disk.exists(one)]
        for one in reversed(missing):
            self.disk.make_directory(one)
            self.disk.sync_directory(one.parent)

    def manifest(self) -> Manifest:
        """An empty one if there is none."""
        path = self.path / MANIFEST
        content = read_file(self.disk, path)
        return Manifest() if content is None else manifest_from_json(content, path=path)

    def keep(self, manifest: Manifest) -> None:
        replace_file(self.disk, self.path / MANIFEST, manifest_to_json(manifest))

    def make_generation(self, name: str) -> None:
        self.disk.make_directory(self.path / name)
        self.disk.sync_directory(self.path)

    def write(self, name: str, rows: pa.Table) -> KeptFile:
        """Synced; its name is not yet."""
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, **WRITE_OPTIONS)
        file = self.disk.open(self.path / name)
        try:
            file.truncate(0)  # a run that was killed may have left something here
            file.append([memoryview(sink.getvalue())])
            file.sync()
        finally:
            file.close()
        return KeptFile(name, rows.num_rows)

    def sync_names(self, generation: str) -> None:
        self.disk.sync_directory(self.path / generation)

    def read(self, file: KeptFile) -> pa.Table:
        content = read_file(self.disk, self.path / file.name)
        if content is None:
            raise FileGone(path=self.path / file.name)
        try:
            return pq.read_table(pa.BufferReader(content))
        except pa.ArrowInvalid as error:
            problem = f"the file {file.name}: {error}"
            raise ManifestDamaged(place=self.path, problem=problem) from error

    def remove(self, names: list[str]) -> None:
        for name in names:
            if self.disk.exists(self.path / name):
                self.disk.remove(self.path / name)

    def remove_unlisted(self, manifest: Manifest) -> None:
        """What runs left that were killed, and directories that are empty now."""
        listed = manifest.names()
        kept = {manifest.book.directory(number) for number in manifest.book.born}
        for directory in self.disk.names(self.path):
            if not directory.startswith("generation-"):
                continue
            names = [f"{directory}/{name}" for name in self.disk.names(self.path / directory)]
            self.remove([name for name in names if name not in listed])
            if directory not in kept and not any(name in listed for name in names):
                self.disk.remove_directory(self.path / directory)
