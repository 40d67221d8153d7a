"""Reads a view from its Parquet files, as of one manifest for each call. Writes nothing."""

import pyarrow as pa

from millstream.base.disk import FileGone
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.views.store import ViewNotFound, require_generation
from millstream.views.stores.arrow_columns import fitted_rows
from millstream.views.stores.arrow_reads import ArrowReads, Loaded
from millstream.views.stores.parquet.files import ParquetDirectory
from millstream.views.stores.parquet.manifest import KeptFile, KeptGeneration, Manifest

# A file is gone only if its manifest was replaced long ago, between two looks.
TRIES_MAX = 5


class ParquetReads(ArrowReads):
    """The generation that is served, whichever that is then; or this one, served or not.

    Files that the next manifest still lists are not read again.
    """

    def __init__(
        self, files: ParquetDirectory, *, view: str, generation: int | None = None
    ) -> None:
        super().__init__(view, self._load_newest)
        self._files, self._name, self._generation = files, view, generation
        self._tables: dict[KeptFile, pa.Table] = {}
        self._last: tuple[KeptGeneration, Loaded] | None = None

    def _load_newest(self) -> Loaded:
        for _ in range(TRIES_MAX - 1):
            try:
                return self._load_now()
            except FileGone:
                continue
        return self._load_now()

    def _load_now(self) -> Loaded:
        found = self._found(self._files.manifest())
        if self._last is None or self._last[0] != found:
            self._last = (found, self._loaded(found))
        return self._last[1]

    def _found(self, manifest: Manifest) -> KeptGeneration:
        if manifest.book.served is None:
            raise ViewNotFound(view=self._name, place=self._files.path)
        number = manifest.book.served if self._generation is None else self._generation
        require_generation(self._name, number, tuple(manifest.generations))
        return manifest.generations[number]

    def _loaded(self, found: KeptGeneration) -> Loaded:
        known = self._tables
        self._tables = {
            file: known[file] if file in known else self._files.read(file) for file in found.files
        }
        empty = nullable_arrow_schema(found.state.schema).empty_table()
        layout = found.state.layout(self._name)
        rows = pa.concat_tables(
            [empty, *(fitted_rows(layout, one) for one in self._tables.values())]
        )
        return Loaded(
            schema=found.state.schema,
            key=found.state.key,
            table=rows,
            positions=found.state.positions,
        )
