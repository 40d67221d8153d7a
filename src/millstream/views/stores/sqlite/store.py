"""A view in one SQLite file, as its job writes it.

Rows and the batch's receipt are one transaction, synced before it counts (WAL, synchronous=FULL):
a batch that Spark repeats finds its receipt and changes nothing. Each run of the job claims a
higher epoch; a run that finds a higher one than its own is a zombie, and stops. A view that is
rebuilt grows in a table of its own, a new generation, and is read from there once it is served.
docs/formats/view_store.md has the layout; `reader.py` reads it.
"""

import contextlib
import errno
import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from millstream.base.changes import CHANGE, ORDER
from millstream.base.clock import Clock, system_clock
from millstream.base.disk import DiskFailed, DiskFull, RealDisk
from millstream.base.errors import Corrupt, Rejected, Retryable
from millstream.base.ports import BatchReceipt
from millstream.base.positions import positions_from
from millstream.base.schema import Schema
from millstream.schemas.spark_json import schema_from_spark_json, schema_to_spark_json
from millstream.views.history import Keeping
from millstream.views.netting import (
    Netted,
    StoredRow,
    change_orders,
    change_words,
    in_order,
    net,
)
from millstream.views.receipts import (
    ClaimLost,
    KeptReceipt,
    OwnedByAnother,
    RowsLost,
    is_due,
    require_newest,
)
from millstream.views.stores.sqlite.history import PastTables, drop_past, has_past, make_past
from millstream.views.stores.sqlite.values import null_of, stored_columns
from millstream.views.table_layout import (
    BadView,
    NullKey,
    TableLayout,
    grown_layout,
    quoted,
    require_fitting,
    view_layout,
)

APPLICATION_ID = 0x4D6C5374  # "MlSt"
FORMAT = 2  # 1 had no past
# Another run of the job may be in the midst of a large batch.
BUSY_SECONDS_MAX = 30.0
FIRST_GENERATION = 1

# Which file a path leads to: device and inode.
FileId = tuple[int, int]

MAKE_TABLES = """
CREATE TABLE _claim (job TEXT NOT NULL, epoch INTEGER NOT NULL);
CREATE TABLE _generations (
  generation INTEGER PRIMARY KEY,
  served     INTEGER NOT NULL,  -- 1: readers see this one
  key        TEXT NOT NULL,     -- names of columns, as JSON
  schema     TEXT NOT NULL,     -- Spark's JSON
  query      TEXT,              -- the last batch that was written
  batch      INTEGER,
  positions  TEXT NOT NULL      -- where the job has read to with it: topic, partition, offset
);
"""

MARKS = """
SELECT (SELECT count(*) FROM sqlite_schema) > 0, application_id, user_version
FROM pragma_application_id, pragma_user_version
"""


class ViewBusy(Retryable):
    def __init__(self, *, path: Path) -> None:
        super().__init__(f"{path}: another process has been writing to it for long. Try again")
        self.path = path


class ViewDamaged(Corrupt):
    def __init__(self, *, path: Path, problem: str) -> None:
        super().__init__(f"{path}: not the view that was written ({problem}). Rebuild the view")
        self.path, self.problem = path, problem


class NotAView(Rejected):
    def __init__(self, *, path: Path, problem: str) -> None:
        super().__init__(f"{path}: {problem}; nothing was changed in it")
        self.path, self.problem = path, problem


class SqliteView:
    """What a job writes a view with. One caller at a time."""

    def __init__(
        self,
        path: Path,
        *,
        view: str,
        key: Sequence[str],
        generation: int = FIRST_GENERATION,
        keeping: Keeping | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.path, self.view, self.generation = path, view, generation
        self._key, self._keeping, self._clock = tuple(key), keeping or Keeping(), clock
        self._layout: TableLayout | None = None
        self._job, self._epoch = "", 0
        self._db: sqlite3.Connection | None = None
        self._file: FileId | None = None
        self._lock = threading.Lock()

    @property
    def table(self) -> str:
        return rows_table(self.generation)

    def claim(self, job: str, columns: Schema) -> int:
        layout = view_layout(self.view, columns, self._key)
        with self._lock:
            if not self._holds_its_file():
                self._disconnect()
            return self._claim(job, layout)

    def _claim(self, job: str, layout: TableLayout) -> int:
        with self._transaction() as db:
            make_tables(db)
            self._add_past(db)
            epoch = claim_epoch(db, self.path, job)
            self._layout = self._prepare(db, layout)
            self._past(self._layout).declare(db, self._keeping)
            self._job, self._epoch = job, epoch
        return epoch

    def write(self, receipt: BatchReceipt, changes: pa.Table) -> bool:
        layout = self._fitting(changes)
        with self._lock:
            if not self._must_write(receipt):
                return False
            netted = netted_rows(layout, changes)
            with self._transaction() as db:
                if not self._is_due(db, receipt):
                    return False
                self._keep(db, receipt)
                self._change(db, layout, netted, receipt)
        return True

    def serve(self, *, epoch: int | None = None) -> None:
        """Let readers see this generation; of the others, the one they saw before is kept."""
        with self._lock, self._transaction() as db:
            self._require_held(db)
            _require_newest(db, self._job, epoch or self._epoch)
            former = served_generation(db)
            if former == self.generation:
                return
            serve_generation(db, self.generation)
            others = db.execute("SELECT generation FROM _generations").fetchall()
            for (other,) in others:
                if other not in (former, self.generation):
                    drop_generation(db, other)

    def close(self) -> None:
        with self._lock:
            self._disconnect()

    def _prepare(self, db: sqlite3.Connection, wanted: TableLayout) -> TableLayout:
        """The generation's table, made or grown to what is wanted."""
        found = db.execute(
            "SELECT key, schema FROM _generations WHERE generation = ?", (self.generation,)
        ).fetchone()
        if found is None:
            _make_generation(db, self.generation, wanted)
            self._past(wanted).make(db, now_ms=self._clock())
            return wanted
        kept = layout_from(self.view, *found)
        grown = grown_layout(kept, wanted)
        added = [column for column in grown.columns if kept.column(column.name) is None]
        for column in added:
            db.execute(f"ALTER TABLE {self.table} ADD COLUMN {column.quoted} {column.kept_as}")
        self._past(grown).grow(db, added)
        _keep_schema(db, self.generation, grown)
        return grown

    def _fitting(self, changes: pa.Table) -> TableLayout:
        if self._layout is None:
            raise BadView(f"view {self.view} is written without a claim")
        require_fitting(self._layout, changes.schema)
        return self._layout

    def _must_write(self, receipt: BatchReceipt) -> bool:
        """Look before the work of netting; what counts is the look inside the transaction."""
        with self._connected() as db:
            return self._is_due(db, receipt)

    def _is_due(self, db: sqlite3.Connection, receipt: BatchReceipt) -> bool:
        self._require_held(db, batch=receipt.batch)
        _require_newest(db, receipt.job, receipt.epoch)
        last = db.execute(
            "SELECT query, batch, positions FROM _generations WHERE generation = ?",
            (self.generation,),
        ).fetchone()
        if last is None:
            raise ViewDamaged(path=self.path, problem=f"generation {self.generation} is gone")
        query, batch, positions = last
        kept = None
        if query is not None:
            kept = KeptReceipt(query, int(batch), positions_from(json.loads(positions)))
        return is_due(receipt, kept, view=self.view, place=self.path)

    def _change(
        self, db: sqlite3.Connection, layout: TableLayout, netted: Netted, receipt: BatchReceipt
    ) -> None:
        """The rows, and how they came to be so; batch 0 is of a job that starts over."""
        past, starts_over = self._past(layout), receipt.batch == 0
        if not (netted.upserts or netted.deletes or starts_over):
            return
        if self._must_keep_changes(db, netted):
            changes = past.apply(db, netted, starts_over=starts_over)
            if changes:
                version = past.add_version(
                    db, changes=changes, now_ms=self._clock(), positions=receipt.positions
                )
                past.trim(db, self._keeping, version)
                past.stamp(db, version, now_ms=self._clock())
            return
        if starts_over:
            db.execute(f"DELETE FROM {self.table}")
        self._apply(db, layout, netted)
        version = past.add_version(db, changes=1, now_ms=self._clock(), positions=receipt.positions)
        past.pass_over(db, version)
        past.stamp(db, version, now_ms=self._clock())

    def _must_keep_changes(self, db: sqlite3.Connection, netted: Netted) -> bool:
        ((served,),) = db.execute(
            "SELECT served FROM _generations WHERE generation = ?", (self.generation,)
        )
        changes = len(netted.upserts) + len(netted.deletes)
        return self._keeping.must_keep(changes=changes, is_served=bool(served))

    def _past(self, layout: TableLayout) -> PastTables:
        return PastTables(layout, self.generation, rows_table(self.generation))

    def _add_past(self, db: sqlite3.Connection) -> None:
        """To a file of format 1."""
        if has_past(db):
            return
        make_past(db)
        kept = db.execute("SELECT generation, key, schema FROM _generations").fetchall()
        for generation, key, schema in kept:
            layout = layout_from(self.view, key, schema)
            PastTables(layout, generation, rows_table(generation)).make(db, now_ms=self._clock())
        db.execute(f"PRAGMA user_version = {FORMAT}")

    def _apply(self, db: sqlite3.Connection, layout: TableLayout, netted: Netted) -> None:
        if netted.deletes:
            where = " AND ".join(f"{column.quoted} = ?" for column in layout.key_columns)
            db.executemany(f"DELETE FROM {self.table} WHERE {where}", netted.deletes)
        if netted.upserts:
            names = ", ".join(column.quoted for column in layout.columns)
            marks = ", ".join("?" for _ in layout.columns)
            db.executemany(
                f"INSERT OR REPLACE INTO {self.table} ({names}) VALUES ({marks})", netted.upserts
            )

    def _keep(self, db: sqlite3.Connection, receipt: BatchReceipt) -> None:
        db.execute(
            "UPDATE _generations SET query = ?, batch = ?, positions = ? WHERE generation = ?",
            (receipt.query, receipt.batch, json.dumps(receipt.positions), self.generation),
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connected() as db, transaction(db):
            yield db

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with translated(self.path):
            if self._db is None:
                self._db = open_for_writing(self.path)
                self._file = file_at(self.path)
            yield self._db

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _holds_its_file(self) -> bool:
        """A file that was removed takes writes still, from who has it open: nobody reads them."""
        return self._db is None or self._file == file_at(self.path)

    def _require_held(self, db: sqlite3.Connection, *, batch: int = 0) -> None:
        if self._holds_its_file() and has_tables(db):
            return
        if batch > 0:
            raise RowsLost(view=self.view, place=self.path, batch=batch)
        raise ClaimLost(place=self.path)


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def open_for_writing(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    db = sqlite3.connect(
        path, timeout=BUSY_SECONDS_MAX, isolation_level=None, check_same_thread=False
    )
    require_view(db, path)
    if is_new:
        sync_names(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA temp_store = MEMORY")  # a batch on its way
    db.execute("PRAGMA trusted_schema = OFF")  # the file may be a copy that somebody else made
    return db


def file_at(path: Path) -> FileId | None:
    """None if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def sync_names(path: Path) -> None:
    """A new file is found after a power cut only if its name, and its directory's, are synced."""
    disk = RealDisk()
    disk.sync_directory(path.parent)
    disk.sync_directory(path.parent.parent)


def require_view(db: sqlite3.Connection, path: Path) -> None:
    """Refuse the file of somebody else, or of a newer Millstream; an empty one will do.

    Asked in one statement: tables and the id come, and go, in one transaction, maybe just now.
    """
    ((is_used, application, format),) = db.execute(MARKS)
    if application != APPLICATION_ID and is_used:
        raise NotAView(path=path, problem="a SQLite database, but not a view of Millstream")
    if format > FORMAT:
        problem = f"has format {format}, this version reads up to {FORMAT}: upgrade millstream"
        raise NotAView(path=path, problem=problem)


def has_tables(db: sqlite3.Connection) -> bool:
    ((tables,),) = db.execute("SELECT count(*) FROM sqlite_schema")
    return bool(tables)


def make_tables(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,):
        return
    for statement in MAKE_TABLES.split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def claim_epoch(db: sqlite3.Connection, path: Path, job: str) -> int:
    found = db.execute("SELECT job, epoch FROM _claim").fetchone()
    if found is None:
        db.execute("INSERT INTO _claim VALUES (?, 1)", (job,))
        return 1
    owner, epoch = found
    if owner != job:
        raise OwnedByAnother(place=path, owner=owner, job=job)
    db.execute("UPDATE _claim SET epoch = ?", (epoch + 1,))
    return int(epoch) + 1


def _require_newest(db: sqlite3.Connection, job: str, epoch: int) -> None:
    ((claimed,),) = db.execute("SELECT epoch FROM _claim")
    require_newest(job, epoch, claimed=claimed)


def _make_generation(db: sqlite3.Connection, generation: int, layout: TableLayout) -> None:
    ((served,),) = db.execute("SELECT count(*) FROM _generations")
    columns = ", ".join(
        f"{column.quoted} {column.kept_as}{' NOT NULL' if column.in_key else ''}"
        for column in layout.columns
    )
    key = ", ".join(column.quoted for column in layout.key_columns)
    db.execute(
        f"CREATE TABLE {rows_table(generation)} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID"
    )
    db.execute(
        "INSERT INTO _generations VALUES (?, ?, '[]', '', NULL, NULL, '{}')",
        (generation, int(not served)),
    )
    _keep_schema(db, generation, layout)
    if not served:
        _name_rows(db, generation)


def served_generation(db: sqlite3.Connection) -> int | None:
    found = db.execute("SELECT generation FROM _generations WHERE served = 1").fetchone()
    return None if found is None else int(found[0])


def serve_generation(db: sqlite3.Connection, generation: int) -> None:
    db.execute("UPDATE _generations SET served = (generation = ?)", (generation,))
    _name_rows(db, generation)


def drop_generation(db: sqlite3.Connection, generation: int) -> None:
    db.execute(f"DROP TABLE IF EXISTS {rows_table(generation)}")
    drop_past(db, generation)
    db.execute("DELETE FROM _generations WHERE generation = ?", (generation,))


def _keep_schema(db: sqlite3.Connection, generation: int, layout: TableLayout) -> None:
    schema = json.dumps(schema_to_spark_json(layout.schema))
    db.execute(
        "UPDATE _generations SET key = ?, schema = ? WHERE generation = ?",
        (json.dumps(layout.key), schema, generation),
    )


def _name_rows(db: sqlite3.Connection, generation: int) -> None:
    """`rows` is the generation that is served, for who reads with SQLite's own tools."""
    db.execute("DROP VIEW IF EXISTS rows")
    db.execute(f"CREATE VIEW rows AS SELECT * FROM {rows_table(generation)}")


def rows_table(generation: int) -> str:
    return quoted(f"rows_{int(generation)}")


def layout_from(view: str, key: str, schema: str) -> TableLayout:
    return TableLayout(view, schema_from_spark_json(json.loads(schema)), tuple(json.loads(key)))


def netted_rows(layout: TableLayout, changes: pa.Table) -> Netted:
    rows: list[StoredRow] = list(zip(*stored_columns(layout, changes), strict=True))
    _require_keys(layout, rows)
    if CHANGE not in changes.column_names and ORDER not in changes.column_names:
        return Netted(upserts=rows)
    words = change_words(changes)
    places = in_order(words, change_orders(changes))
    return net(
        (words[place] for place in places),
        (rows[place] for place in places),
        key_width=len(layout.key_columns),
    )


def _require_keys(layout: TableLayout, rows: Sequence[StoredRow]) -> None:
    """A part of a key may be null, as in an outer join; not all of it."""
    nulls = tuple(null_of(column) for column in layout.key_columns)
    without = sum(1 for row in rows if row[: len(nulls)] == nulls)
    if without:
        raise NullKey(view=layout.view, key=layout.key, rows=without)


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors in our own words."""
    try:
        yield
    except sqlite3.Error as error:
        raise _error_from(error, path) from error


def _error_from(error: sqlite3.Error, path: Path) -> Exception:
    name: Any = getattr(error, "sqlite_errorname", "") or ""
    if name == "SQLITE_FULL":
        return DiskFull(path=path)
    if name.startswith("SQLITE_IOERR"):
        return DiskFailed(path=path, action="read or write", error=OSError(errno.EIO, name))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return ViewBusy(path=path)
    if name in ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_READONLY_DIRECTORY"):
        return NotAView(path=path, problem=f"cannot be opened for this ({error})")
    if name == "SQLITE_NOTADB":
        again = "remove it and build it again: `millstream run APP_FILE --rebuild VIEW`"
        return NotAView(path=path, problem=f"not a SQLite database, or damaged; {again}")
    return ViewDamaged(path=path, problem=f"{error}")
