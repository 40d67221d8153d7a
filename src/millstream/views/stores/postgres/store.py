"""A view in PostgreSQL, as its job writes it.

    @app.view(key="order_id", store=stores.Postgres("postgresql://app@db/shop", schema="views"))

A batch is one transaction: its rows come by COPY into a temporary table and go from there into the
view's in two statements, with the receipt. The view's row in `_millstream_views` is locked
meanwhile, so that a newer run of the job waits, and an older one finds the newer epoch and stops.
A connection that breaks leaves the whole batch or nothing of it: the receipt says which.
docs/formats/postgres_views.md has the layout; `staging.py` brings large batches.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from millstream.base.ports import BatchReceipt
from millstream.base.schema import Schema
from millstream.views.receipts import is_due, require_newest
from millstream.views.store import (
    Generation,
    Home,
    require_droppable,
    require_generation,
)
from millstream.views.stores.postgres import catalog
from millstream.views.stores.postgres.batch import CopiedBatch, copied_batch
from millstream.views.stores.postgres.connection import (
    Connection,
    ViewDamaged,
    connect,
    place_of,
    translated,
)
from millstream.views.stores.postgres.driver import psycopg, sql
from millstream.views.stores.postgres.reader import PostgresReader
from millstream.views.stores.postgres.staging import (
    PostgresStaging,
    StagedPart,
    drop_parts,
    drop_staged,
)
from millstream.views.stores.postgres.tables import copy_into, make_like, merge
from millstream.views.table_layout import (
    BadView,
    TableLayout,
    grown_layout,
    require_fitting,
    view_layout,
)

BATCH = sql.Identifier("_millstream_batch")


@dataclass(frozen=True)
class Postgres:
    """The choice of an application; `url` is whatever libpq takes."""

    url: str = field(repr=False)  # may have a password
    schema: str = "public"

    def open(self, view: str, key: tuple[str, ...], home: Home) -> "PostgresStore":
        return PostgresStore(self.url, schema=self.schema, view=view, key=key)


class PostgresStore:
    """Where one view is kept; opens a connection for each question."""

    def __init__(self, url: str, *, schema: str, view: str, key: Sequence[str]) -> None:
        self.url, self.schema, self.view, self.key = url, schema, view, tuple(key)
        self.place = place_of(url, schema, view)

    def writer(self, generation: int) -> "PostgresView":
        return PostgresView(self, generation)

    def reader(self, generation: int | None = None) -> PostgresReader:
        return PostgresReader(
            self.url,
            schema=self.schema,
            view=self.view,
            place=self.place,
            generation=generation,
        )

    def generations(self) -> list[Generation]:
        with self._looking() as (db, owner):
            return [] if owner is None else catalog.all_generations(db, owner.id)

    def serve(self, generation: int) -> None:
        with self._looking(holds=True) as (db, owner):
            there = [] if owner is None else catalog.all_generations(db, owner.id)
            require_generation(self.view, generation, [one.number for one in there])
            if owner is not None:
                catalog.serve(db, self.view, owner.id, generation)

    def drop(self, generation: int | None = None) -> None:
        with self._looking(holds=True) as (db, owner):
            if generation is not None:
                self._drop_one(db, owner, generation)
            elif owner is not None:
                drop_staged(db, owner.id)
                catalog.drop_view(db, self.view, owner.id)

    def _drop_one(self, db: Connection, owner: catalog.Owner | None, generation: int) -> None:
        there = [] if owner is None else catalog.all_generations(db, owner.id)
        served = next((one.number for one in there if one.is_served), None)
        numbers = [one.number for one in there]
        require_droppable(self.view, generation, numbers, served=served)
        if owner is not None:
            drop_staged(db, owner.id, generation)
            catalog.drop_generation(db, owner.id, generation)

    @contextlib.contextmanager
    def _looking(self, *, holds: bool = False) -> Iterator[tuple[Connection, catalog.Owner | None]]:
        """One transaction, which may hold the view, if it is there."""
        with translated(self.place), self.connect() as db, db.transaction():
            find = catalog.locked if holds else catalog.looked_up
            is_there = catalog.has_tables(db)
            yield db, find(db, self.view, place=self.place) if is_there else None

    def connect(self) -> Connection:
        return connect(self.url, self.schema, place=self.place)


class PostgresView:
    """What a job writes a generation of a view with. One caller at a time."""

    def __init__(self, store: PostgresStore, generation: int) -> None:
        self.store, self.view, self.place = store, store.view, store.place
        self.generation = generation
        self._owner: catalog.Owner | None = None
        self._layout: TableLayout | None = None
        self._db: Connection | None = None
        self._lock = threading.Lock()

    def claim(self, job: str, columns: Schema) -> int:
        layout = view_layout(self.view, columns, self.store.key)
        catalog.require_names(layout)
        with self._lock:
            self._make_tables()
            return self._claim(job, layout)

    def _make_tables(self) -> None:
        with self._transaction() as db:
            if not catalog.has_tables(db):
                catalog.make_tables(db, self.store.schema)

    def _claim(self, job: str, layout: TableLayout) -> int:
        with self._transaction() as db:
            owner = catalog.claim(db, self.view, job, place=self.place)
            self._layout = self._prepare(db, owner.id, layout)
            drop_staged(db, owner.id, self.generation)
            self._owner = owner
        return owner.epoch

    def write(self, receipt: BatchReceipt, changes: pa.Table) -> bool:
        layout = self._fitting(changes.schema)
        with self._lock:
            batch = copied_batch(layout, changes)
            return self._written(receipt, lambda db: self._apply(db, receipt, batch))

    def serve(self, *, epoch: int | None = None) -> None:
        """Let readers see this generation; of the others, the one they saw before is kept."""
        mine = self._claimed
        with self._lock, self._transaction() as db:
            self._hold(db, mine.job, epoch or mine.epoch)
            there = catalog.all_generations(db, mine.id)
            former = next((one.number for one in there if one.is_served), None)
            if former == self.generation:
                return
            catalog.serve(db, self.view, mine.id, self.generation)
            for one in there:
                if one.number not in (former, self.generation):
                    drop_staged(db, mine.id, one.number)
                    catalog.drop_generation(db, mine.id, one.number)

    def staging(self, receipt: BatchReceipt) -> PostgresStaging:
        mine = self._claimed
        return PostgresStaging(
            url=self.store.url,
            schema=self.store.schema,
            place=self.place,
            layout=self._layout_claimed,
            id=mine.id,
            generation=self.generation,
            batch=receipt.batch,
        )

    def commit(self, receipt: BatchReceipt, facts: Sequence[StagedPart]) -> bool:
        with self._lock:
            is_new = self._written(receipt, lambda db: self._merge_staged(db, facts))
            if not is_new:
                with self._transaction() as db:
                    drop_parts(db, facts)
            return is_new

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    # --- the steps of a transaction

    def _prepare(self, db: Connection, id: int, wanted: TableLayout) -> TableLayout:
        """The generation's table, made or grown to what is wanted."""
        kept = catalog.kept_generation(db, self.view, id, self.generation)
        if kept is None:
            catalog.make_generation(db, id, self.generation, wanted)
            return wanted
        grown = grown_layout(kept.layout, wanted)
        catalog.grow(db, id, self.generation, kept, grown)
        catalog.keep_schema(db, id, self.generation, grown)
        if kept.is_served:
            catalog.show_if_lost(db, self.view, id, self.generation)
        return grown

    def _written(self, receipt: BatchReceipt, apply: Callable[[Connection], None]) -> bool:
        mine = self._claimed
        with self._transaction() as db:
            if not self._is_due(db, receipt):
                return False
            if receipt.batch == 0:  # a job whose directory was removed starts over
                db.execute(sql.SQL("DELETE FROM {}").format(self._rows))
            apply(db)
            catalog.keep_receipt(db, mine.id, self.generation, receipt)
        return True

    def _is_due(self, db: Connection, receipt: BatchReceipt) -> bool:
        mine = self._hold(db, receipt.job, receipt.epoch)
        kept = catalog.kept_generation(db, self.view, mine.id, self.generation)
        if kept is None:
            raise ViewDamaged(place=self.place, problem=f"generation {self.generation} is gone")
        return is_due(receipt, kept.receipt, view=self.view, place=self.place)

    def _hold(self, db: Connection, job: str, epoch: int) -> catalog.Owner:
        """Lock the view, and see that it is still the one that was claimed."""
        found = catalog.locked(db, self.view, place=self.place)
        if found is None or found.id != self._claimed.id:
            raise ViewDamaged(place=self.place, problem="it was dropped since its job claimed it")
        require_newest(job, epoch, claimed=found.epoch)
        return found

    def _apply(self, db: Connection, receipt: BatchReceipt, batch: CopiedBatch) -> None:
        layout = self._layout_claimed
        if receipt.batch == 0:  # there is nothing to merge with
            copy_into(db, self._rows, layout, batch.lines())
        elif batch.rows:
            make_like(db, BATCH, self._rows, kind="TEMPORARY", ends="ON COMMIT DROP")
            copy_into(db, BATCH, layout, batch.marked_lines(), is_marked=True)
            merge(db, layout, BATCH, self._rows, batch.null_parts)

    def _merge_staged(self, db: Connection, facts: Sequence[StagedPart]) -> None:
        parts = [part for part in facts if part.rows]
        for part in parts:
            part.require_whole(db, place=self.place)
            table = sql.Identifier(part.table)
            merge(db, self._layout_claimed, table, self._rows, part.null_parts)
        drop_parts(db, parts)

    @property
    def _rows(self) -> sql.Identifier:
        return catalog.rows_table(self._claimed.id, self.generation)

    @property
    def _claimed(self) -> catalog.Owner:
        if self._owner is None:
            raise BadView(f"view {self.view} is written without a claim")
        return self._owner

    @property
    def _layout_claimed(self) -> TableLayout:
        if self._layout is None:
            raise BadView(f"view {self.view} is written without a claim")
        return self._layout

    def _fitting(self, columns: pa.Schema) -> TableLayout:
        require_fitting(self._layout_claimed, columns)
        return self._layout_claimed

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with translated(self.place), contextlib.ExitStack() as held:
            yield self._begun(held)

    def _begun(self, held: contextlib.ExitStack) -> Connection:
        """Over the connection of the last batch, unless the server was away meanwhile."""
        if self._db is not None:
            try:
                held.enter_context(self._db.transaction())
                return self._db
            except psycopg.OperationalError:
                self._disconnect()
        self._db = self.store.connect()
        held.enter_context(self._db.transaction())
        return self._db

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
