"""`stores.Parquet("lake")`: a view as Parquet files, which everything can read that reads Parquet.

    lake/orders/manifest.json              which files are the view, who writes it, its last batch
    lake/orders/generation-1-1/rows-7.parquet
    lake/orders/lock                       held while a batch is written

A batch writes the files that it changes anew and then the manifest, in one rename: rows, receipt
and positions become true together. For views that grow at one end, such as windows in time, and
for snapshots; a batch that changes rows everywhere writes everything anew.
docs/formats/parquet_views.md has the layout; `reader.py` reads it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from millstream.base.clock import Clock, system_clock
from millstream.base.disk import Disk, RealDisk
from millstream.base.ports import BatchReceipt
from millstream.base.schema import Schema
from millstream.views.receipts import is_due, require_newest
from millstream.views.store import (
    Generation,
    Home,
    NoSuchGeneration,
    ViewNotFound,
    require_generation,
)
from millstream.views.stores.arrow_columns import grown_rows
from millstream.views.stores.arrow_netting import netted_table
from millstream.views.stores.parquet.files import ParquetDirectory
from millstream.views.stores.parquet.manifest import KeptFile, KeptGeneration, Manifest
from millstream.views.stores.parquet.merge import Bounds, bounds_of, merge
from millstream.views.stores.parquet.reader import ParquetReads
from millstream.views.stores.view_lock import locked
from millstream.views.table_layout import (
    BadView,
    TableLayout,
    grown_layout,
    require_fitting,
    view_layout,
)
from millstream.views.view_book import GenerationState, ViewBook

# A reader that has read the former manifest may be busy with its files for so long.
DROPPED_KEPT_MS = 10 * 60_000


@dataclass(frozen=True, slots=True)
class Parquet:
    """A directory on a disk of this machine, or one that has file locks."""

    path: str | Path

    def open(self, view: str, key: tuple[str, ...], home: Home) -> "ParquetStore":
        return ParquetStore(Path(self.path).absolute() / view, view=view, key=key)


class ParquetStore:
    def __init__(
        self,
        path: Path,
        *,
        view: str,
        key: tuple[str, ...],
        disk: Disk | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.view, self.place = view, str(path)
        self._files = ParquetDirectory(disk or RealDisk(), path)
        self._key, self._clock = key, clock

    def writer(self, generation: int) -> "ParquetWriter":
        return ParquetWriter(
            self._files, view=self.view, key=self._key, generation=generation, clock=self._clock
        )

    def reader(self, generation: int | None = None) -> ParquetReads:
        return ParquetReads(self._files, view=self.view, generation=generation)

    def generations(self) -> list[Generation]:
        manifest = self._files.manifest()
        return [
            one.state.generation(number, is_served=number == manifest.book.served)
            for number, one in manifest.generations.items()
        ]

    def serve(self, generation: int) -> None:
        if self._files.manifest().served is None:
            raise ViewNotFound(view=self.view, place=self.place)
        with self._changing() as manifest:
            book = manifest.book.rolled_back(self.view, generation)
            self._files.keep(replace(manifest, book=book))

    def drop(self, generation: int | None = None) -> None:
        if self._files.manifest().served is None:
            if generation is not None:
                require_generation(self.view, generation, ())
            return
        with self._changing() as manifest:
            book = manifest.book
            left = book.emptied() if generation is None else book.without(self.view, generation)
            self._drop(manifest, left)

    @contextmanager
    def _changing(self) -> Iterator[Manifest]:
        with locked(self._files.path):
            yield self._files.manifest()

    def _drop(self, manifest: Manifest, book: ViewBook) -> None:
        """Files that are dropped so are not kept for readers; they go at once."""
        kept, _ = manifest.with_book(book, now_ms=0).without_dropped(before_ms=1)
        if not book.born:
            kept = replace(kept, dropped={})
        self._files.keep(kept)
        self._files.remove_unlisted(kept)


class ParquetWriter:
    """What a job writes a generation with. One caller at a time."""

    def __init__(
        self,
        files: ParquetDirectory,
        *,
        view: str,
        key: tuple[str, ...],
        generation: int,
        clock: Clock,
    ) -> None:
        self.view, self.generation = view, generation
        self._files, self._key, self._clock = files, key, clock
        self._layout: TableLayout | None = None
        self._job, self._epoch = "", 0
        self._bounds: dict[KeptFile, Bounds] = {}
        self._lock = threading.Lock()

    def claim(self, job: str, columns: Schema) -> int:
        wanted = view_layout(self.view, columns, self._key)
        with self._changing() as manifest:
            book = manifest.book.claimed(job, self.generation, place=self._files.path)
            self._files.remove_unlisted(manifest)
            self._files.make_generation(book.directory(self.generation))
            claimed = replace(manifest, book=book)
            self._keep(self._prepared(claimed, wanted))
            self._layout, self._job, self._epoch = wanted, job, book.epoch
        return book.epoch

    def write(self, receipt: BatchReceipt, changes: pa.Table) -> bool:
        layout = self._fitting(changes)
        with self._changing() as manifest:
            require_newest(receipt.job, receipt.epoch, claimed=manifest.book.epoch)
            found = self._found(manifest)
            place = self._files.path
            if not is_due(receipt, found.state.receipt, view=self.view, place=place):
                return False
            if receipt.batch == 0:  # a job whose directory was removed starts over
                found = replace(found, files=())
            after = replace(found, state=found.state.after(receipt))
            self._keep(self._changed(manifest, after, layout, changes))
        return True

    def serve(self, *, epoch: int | None = None) -> None:
        with self._changing() as manifest:
            book = manifest.book.serving(self.generation, job=self._job, epoch=epoch or self._epoch)
            self._keep(manifest.with_book(book, now_ms=self._clock()))

    def close(self) -> None:
        """Nothing is held between batches."""

    @contextmanager
    def _changing(self) -> Iterator[Manifest]:
        self._files.make()
        with self._lock, locked(self._files.path):
            yield self._files.manifest()

    def _keep(self, manifest: Manifest) -> None:
        """Also lets go of files that were dropped long ago."""
        kept, old = manifest.without_dropped(before_ms=self._clock() - DROPPED_KEPT_MS)
        self._files.keep(kept)
        self._files.remove(old)

    def _found(self, manifest: Manifest) -> KeptGeneration:
        there = manifest.generations
        if self.generation not in there:
            raise NoSuchGeneration(view=self.view, generation=self.generation, there=tuple(there))
        return there[self.generation]

    def _prepared(self, manifest: Manifest, wanted: TableLayout) -> Manifest:
        """With the generation, made or grown to what is wanted."""
        kept = manifest.generations.get(self.generation)
        if kept is None:
            state = GenerationState(key=wanted.key, schema=wanted.schema, epoch=manifest.book.epoch)
            return self._with(manifest, KeptGeneration(state=state), [])
        grown = grown_layout(kept.state.layout(self.view), wanted)
        if grown.schema == kept.state.schema:
            return manifest
        rows = [grown_rows(grown, self._files.read(file)) for file in kept.files]
        state = replace(kept.state, schema=grown.schema)
        return self._with(manifest, KeptGeneration(state=state), rows)

    def _fitting(self, changes: pa.Table) -> TableLayout:
        if self._layout is None:
            raise BadView(f"view {self.view} is written without a claim")
        require_fitting(self._layout, changes.schema)
        return self._layout

    def _changed(
        self, manifest: Manifest, found: KeptGeneration, layout: TableLayout, changes: pa.Table
    ) -> Manifest:
        netted = netted_table(layout, changes)
        if netted.is_empty:
            return self._with(manifest, found, [])
        merged = merge(
            layout, found.files, netted, read=self._files.read, bounds=self._bounds_in(layout)
        )
        return self._with(manifest, replace(found, files=merged.kept), merged.rows)

    def _with(self, manifest: Manifest, found: KeptGeneration, rows: list[pa.Table]) -> Manifest:
        """With these rows in new files, beside the files that are named."""
        directory = manifest.book.directory(self.generation)
        new = [
            self._files.write(f"{directory}/rows-{serial}.parquet", part)
            for serial, part in enumerate(rows, manifest.serial + 1)
        ]
        if new:
            self._files.sync_names(directory)
        found = replace(found, files=(*found.files, *new))
        serial = manifest.serial + len(new)
        return manifest.with_files(self.generation, found, serial=serial, now_ms=self._clock())

    def _bounds_in(self, layout: TableLayout) -> Callable[[KeptFile], Bounds]:
        def bounds(file: KeptFile) -> Bounds:
            if file not in self._bounds:
                self._bounds[file] = bounds_of(layout, self._files.read(file))
            return self._bounds[file]

        return bounds
