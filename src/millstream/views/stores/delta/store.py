"""`stores.Delta("lake")`: a view as Delta tables, which every engine that knows Delta can read.

    lake/orders/_view/               who writes the view, and which generation readers see
    lake/orders/generation-1-1/      the rows of a generation, a Delta table like any other
    lake/orders/current              on a local disk: a link to the one that is served

A batch is one MERGE; its receipt and positions are a note in the same commit (`table.py`).
A claim puts its epoch into the notes of all generations: whoever holds an older one finds it there.
Does not read: `reader.py` does. docs/formats/delta_views.md has the layout.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.changes import CHANGE, DELETE
from millstream.base.disk import RealDisk
from millstream.base.ports import BatchReceipt
from millstream.base.quantity import DAY_MS, HOUR_MS
from millstream.base.schema import ListOf, Schema
from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.views.receipts import is_due, require_newest
from millstream.views.store import Generation, Home, ViewNotFound, require_generation
from millstream.views.stores.arrow_columns import grown_rows
from millstream.views.stores.arrow_netting import netted_table
from millstream.views.stores.delta.mending import mend
from millstream.views.stores.delta.reader import DeltaReads
from millstream.views.stores.delta.staging import (
    DeltaStaging,
    StagedPart,
    merge_source,
    remove_staged,
)
from millstream.views.stores.delta.table import (
    DeltaBusy,
    DeltaPlace,
    DeltaTable,
    MergeSource,
    Overtaken,
    Rows,
    commit_changes,
    commit_compacted,
    commit_note,
    commit_whole,
    find_table,
    make_table,
    note_of,
    renew,
    source_of,
    translated,
)
from millstream.views.table_layout import (
    BadView,
    TableLayout,
    grown_layout,
    require_fitting,
    view_layout,
)
from millstream.views.view_book import GenerationState, ViewBook, book_from, state_from

BOOK = "_view"
CURRENT = "current"
BOOK_COLUMNS = pa.schema([("nothing", pa.int64())])  # a Delta table has at least one column
# What Parquet and Spark refuse in the name of a column of a Delta table.
# Those of Parquet, and what `deltalake` puts around names in a MERGE without escaping it.
CHARACTERS_REFUSED = frozenset(" ,;{}()\n\t=`")
# Other writers of the view are runs of its job that are about to stop, and table maintenance.
TRIES_MAX = 20
# A MERGE looks into every file whose bounds meet those of the batch: 23 ms with 8 files, 87 with
# 32, 315 with 128. To compact 32 of them takes 80 ms, once in as many batches.
FILES_MAX = 32
# Delta's own defaults: what a slow reader, or one of the past, may still ask for.
HISTORY_MS_MIN = 7 * DAY_MS
LOG_KEPT_MS_MIN = 30 * DAY_MS

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Delta:
    """A directory, or an address such as s3://bucket/lake with the options of its store."""

    keeps_history: ClassVar[bool] = True

    path: str | Path
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self, view: str, key: tuple[str, ...], home: Home) -> "DeltaStore":
        place = DeltaPlace(self._uri, self.options).at(view)
        history_ms = max(home.history_ms or 0, HISTORY_MS_MIN)
        return DeltaStore(place, view=view, key=key, history_ms=history_ms)

    @property
    def _uri(self) -> str:
        """Tasks of a job may have another directory to start from."""
        text = str(self.path).rstrip("/")
        return text if "://" in text else str(Path(text).absolute())


class DeltaBook:
    """The table that says who writes the view: it has no rows, only notes."""

    def __init__(self, place: DeltaPlace) -> None:
        self.place = place
        self._table: DeltaTable | None = None

    def read(self) -> ViewBook:
        table = self._found()
        return ViewBook() if table is None else book_from(note_of(self.place.at(BOOK), table))

    def change(self, change: Callable[[ViewBook], ViewBook]) -> ViewBook:
        """Keep what `change` makes of the book; it is asked again if another change came first."""
        place = self.place.at(BOOK)
        for _ in range(TRIES_MAX):
            with contextlib.suppress(Overtaken):
                table = self._found() or make_table(place, BOOK_COLUMNS, ViewBook().facts())
                before = book_from(note_of(place, table))
                after = change(before)
                if after != before:
                    commit_note(place, table, after.facts())
                return after
        raise DeltaBusy(place=place.uri, tries=TRIES_MAX)

    def _found(self) -> DeltaTable | None:
        if self._table is None:
            self._table = find_table(self.place.at(BOOK))
        else:
            renew(self.place.at(BOOK), self._table)
        return self._table


class DeltaStore:
    def __init__(
        self,
        place: DeltaPlace,
        *,
        view: str,
        key: tuple[str, ...],
        history_ms: int = HISTORY_MS_MIN,
    ) -> None:
        self.view, self.place = view, place.uri
        self._at, self._key, self._history_ms = place, key, history_ms

    def writer(self, generation: int) -> "DeltaWriter":
        return DeltaWriter(
            self._at,
            view=self.view,
            key=self._key,
            generation=generation,
            history_ms=self._history_ms,
        )

    def reader(self, generation: int | None = None) -> DeltaReads:
        return DeltaReads(self._at, DeltaBook(self._at).read, view=self.view, generation=generation)

    def generations(self) -> list[Generation]:
        book = DeltaBook(self._at).read()
        tables = {number: find_rows(self._at.at(book.directory(number))) for number in book.born}
        return [
            rows.state().generation(number, is_served=number == book.served)
            for number, rows in tables.items()
            if rows is not None  # its first claim has not ended
        ]

    def serve(self, generation: int) -> None:
        if not self.generations():
            raise ViewNotFound(view=self.view, place=self.place)
        book = DeltaBook(self._at).change(lambda book: book.rolled_back(self.view, generation))
        show_current(self._at, book)

    def drop(self, generation: int | None = None) -> None:
        books = DeltaBook(self._at)
        if not books.read().born:
            if generation is not None:
                require_generation(self.view, generation, ())
            return
        if generation is None:
            after = books.change(ViewBook.emptied)
        else:
            after = books.change(lambda book: book.without(self.view, generation))
        show_current(self._at, after)
        remove_others(self._at, after)


class DeltaWriter:
    """What a job writes a generation with. One caller at a time."""

    def __init__(
        self,
        place: DeltaPlace,
        *,
        view: str,
        key: tuple[str, ...],
        generation: int,
        history_ms: int,
    ) -> None:
        self.view, self.generation = view, generation
        self._at, self._key, self._history_ms = place, key, history_ms
        self._book = DeltaBook(place)
        self._layout: TableLayout | None = None
        self._rows: DeltaRows | None = None
        self._job, self._epoch = "", 0
        self._lock = threading.Lock()

    def claim(self, job: str, columns: Schema) -> int:
        wanted = view_layout(self.view, columns, self._key)
        require_names(wanted)
        require_mergeable(wanted)
        with self._lock:
            self._mend()
            self._require_growing(wanted)
            book = self._book.change(self._claiming(job))
            for number in book.born:
                self._fence(self._at.at(book.directory(number)), book.epoch)
            self._rows = self._prepared(self._at.at(book.directory(self.generation)), wanted, book)
            self._show(book)
            remove_staged(self._rows.place)
            self._layout, self._job, self._epoch = wanted, job, book.epoch
        return book.epoch

    def write(self, receipt: BatchReceipt, changes: pa.Table) -> bool:
        layout, _ = self._claimed()
        require_fitting(layout, changes.schema)
        return self._put(receipt, lambda: source_of(layout, netted_table(layout, changes)))

    def staging(self, receipt: BatchReceipt) -> DeltaStaging:
        layout, rows = self._claimed()
        return DeltaStaging(place=rows.place, layout=layout, batch=receipt.batch)

    def commit(self, receipt: BatchReceipt, facts: Sequence[StagedPart]) -> bool:
        _, rows = self._claimed()
        is_written = self._put(receipt, lambda: merge_source(facts))
        remove_staged(rows.place)
        return is_written

    def serve(self, *, epoch: int | None = None) -> None:
        with self._lock:
            self._show(self._book.change(self._serving(epoch or self._epoch)))

    def close(self) -> None:
        self._rows = None

    def _claiming(self, job: str) -> Callable[[ViewBook], ViewBook]:
        return lambda book: book.claimed(job, self.generation, place=self._at.uri)

    def _serving(self, epoch: int) -> Callable[[ViewBook], ViewBook]:
        return lambda book: book.serving(self.generation, job=self._job, epoch=epoch)

    def _show(self, book: ViewBook) -> None:
        show_current(self._at, book)
        remove_others(self._at, book)

    def _mend(self) -> None:
        """Before the first look: what a power cut has torn cannot be read."""
        if self._at.local is not None:
            for table in (self._at.local / BOOK, *self._at.local.glob("generation-*")):
                mend(table)

    def _require_growing(self, wanted: TableLayout) -> None:
        """Before anything changes: a claim that is refused fences nobody."""
        book = self._book.read()
        if self.generation in book.born:
            rows = find_rows(self._at.at(book.directory(self.generation)))
            if rows is not None:
                grown_layout(rows.state().layout(self.view), wanted)

    def _fence(self, place: DeltaPlace, epoch: int) -> None:
        if (rows := find_rows(place)) is not None:
            rows.on_newest(lambda state: rows.keep(replace(state, epoch=max(epoch, state.epoch))))

    def _prepared(self, place: DeltaPlace, wanted: TableLayout, book: ViewBook) -> "DeltaRows":
        """The generation's table, made or grown to what is wanted."""
        new = GenerationState(key=wanted.key, schema=wanted.schema, epoch=book.epoch)
        schema = nullable_arrow_schema(wanted.schema)
        kept = {"delta.logRetentionDuration": interval(max(self._history_ms, LOG_KEPT_MS_MIN))}
        rows = find_rows(place) or DeltaRows(
            place, make_table(place, schema, new.facts(), configuration=kept)
        )
        rows.on_newest(
            lambda state: rows.grow(state, grown_layout(state.layout(self.view), wanted))
        )
        return rows

    def _claimed(self) -> "tuple[TableLayout, DeltaRows]":
        if self._layout is None or self._rows is None:
            raise BadView(f"view {self.view} is written without a claim")
        return self._layout, self._rows

    def _put(self, receipt: BatchReceipt, source: Callable[[], MergeSource]) -> bool:
        layout, rows = self._claimed()

        def put(state: GenerationState) -> bool:
            require_newest(receipt.job, receipt.epoch, claimed=state.epoch)
            if not is_due(receipt, state.receipt, view=self.view, place=rows.place.uri):
                return False
            rows.put(layout, state.after(receipt), source(), is_whole=receipt.batch == 0)
            return True

        with self._lock:
            renew(rows.place, rows.table)
            is_written = rows.on_newest(put)
            if is_written:
                rows.tidy(history_ms=self._history_ms)
        return is_written


@dataclass(frozen=True)
class DeltaRows:
    """The table of a generation, whose notes are its states."""

    place: DeltaPlace
    table: DeltaTable

    def state(self) -> GenerationState:
        return state_from(note_of(self.place, self.table))

    def on_newest(self, act: Callable[[GenerationState], Done]) -> Done:
        """What `act` commits on the last state; it is asked again if another commit came first."""
        for _ in range(TRIES_MAX):
            with contextlib.suppress(Overtaken):
                return act(self.state())
        raise DeltaBusy(place=self.place.uri, tries=TRIES_MAX)

    def keep(self, state: GenerationState) -> None:
        commit_note(self.place, self.table, state.facts())

    def put(
        self, layout: TableLayout, after: GenerationState, source: MergeSource, *, is_whole: bool
    ) -> None:
        """`is_whole`: in place of all that is there, as a job starts over."""
        if is_whole:
            rows = coming_rows(layout, source.rows)
            commit_whole(self.place, self.table, rows, after.facts())
        else:
            commit_changes(self.place, self.table, layout, source, after.facts())

    def grow(self, state: GenerationState, layout: TableLayout) -> None:
        if layout.schema == state.schema:
            return
        with translated(self.place):
            rows = grown_rows(layout, self.table.to_pyarrow_table())
        after = replace(state, schema=layout.schema)
        commit_whole(self.place, self.table, rows, after.facts())

    def tidy(self, *, history_ms: int) -> None:
        """The same rows in fewer files; another time if somebody else commits just now."""
        if len(self.table.file_uris()) <= FILES_MAX:
            return
        with contextlib.suppress(Overtaken), translated(self.place):
            commit_compacted(self.place, self.table, self.state().facts())
            self.table.vacuum(retention_hours=ceil(history_ms / HOUR_MS), dry_run=False)


def find_rows(place: DeltaPlace) -> DeltaRows | None:
    table = find_table(place)
    return None if table is None else DeltaRows(place, table)


def coming_rows(layout: TableLayout, changes: Rows) -> Rows:
    """Rows of changes, without those that go."""
    schema = nullable_arrow_schema(layout.schema)
    if isinstance(changes, pa.Table):
        return _coming(changes, schema) if changes.num_columns else schema.empty_table()
    return pa.RecordBatchReader.from_batches(
        schema, (part for batch in changes for part in _coming(batch, schema).to_batches())
    )


def _coming(changes: pa.Table | pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    table = pa.table(changes)
    coming = table.filter(pc.not_equal(table.column(CHANGE), DELETE))
    return coming.select(schema.names).cast(schema)


def interval(duration_ms: int) -> str:
    return f"interval {ceil(duration_ms / DAY_MS)} days"


def require_names(layout: TableLayout) -> None:
    for column in layout.columns:
        if refused := CHARACTERS_REFUSED & set("".join(column.path)):
            raise BadView(
                f"view {layout.view}: {column.name!r} cannot be a column of a Delta table, for "
                f"{min(refused)!r} in its name: rename it"
            )


def require_mergeable(layout: TableLayout) -> None:
    for column in layout.key_columns:
        if isinstance(column.type, ListOf):
            raise BadView(
                f"view {layout.view}: {column.name} of its key is an array, by which Delta cannot "
                "find a row: make a text of it, as with to_json, or use another store"
            )


def show_current(place: DeltaPlace, book: ViewBook) -> None:
    """The link for who reads with other tools; it is set again by each claim."""
    if place.local is None:
        return
    link = place.local / CURRENT
    if book.served is None:
        link.unlink(missing_ok=True)
    elif not link.is_symlink() or os.readlink(link) != book.directory(book.served):
        new = link.with_name(f"{CURRENT}.tmp")
        new.unlink(missing_ok=True)
        new.symlink_to(book.directory(book.served))
        new.replace(link)
        RealDisk().sync_directory(place.local)


def remove_others(place: DeltaPlace, book: ViewBook) -> None:
    """What is left of generations that are no longer in the book; an object store keeps it."""
    if place.local is None:
        return
    kept = {book.directory(number) for number in book.born}
    for path in place.local.glob("generation-*"):
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)
