"""Delta tables as a view needs them: each commit is tied to the version it was thought out on.

A commit carries a note of ours (`commitInfo.millstream`): facts that become true in one step with
the rows. Nothing is committed on top of a version that was not looked at (`Overtaken`), so a check
of the note holds until the commit. On a local disk a commit is synced before it counts.
Knows notes and rows, and nothing of jobs, receipts or generations.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from millstream.base.changes import CHANGE, DELETE, UPSERT
from millstream.base.disk import FULL_ERRNOS, DiskFull, RealDisk
from millstream.base.errors import Corrupt, Retryable
from millstream.schemas.library_missing import LibraryMissing
from millstream.views.stores.arrow_columns import leaf
from millstream.views.stores.arrow_netting import NettedTable
from millstream.views.stores.delta.mending import LAST_CHECKPOINT, LOG
from millstream.views.table_layout import StoredColumn, TableLayout, quoted
from millstream.views.view_book import to_json

try:
    from deltalake import CommitProperties, write_deltalake
    from deltalake import DeltaTable as DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
except ModuleNotFoundError:
    raise LibraryMissing(library="deltalake", extra="delta", use="views in Delta") from None

NOTE = "millstream"
# Commits of others, such as an OPTIMIZE by Spark, have no note: look back so far, step by step.
COMMITS_LOOKED_AT = (1, 20, 1000, None)
NO_SPACE = ("No space left on device", "Disk quota exceeded")

Facts = dict[str, Any]
Rows: TypeAlias = pa.Table | pa.RecordBatchReader


class Overtaken(Exception):
    """Another commit came first; nothing was written. Look again. Never leaves the store."""


class DeltaBusy(Retryable):
    def __init__(self, *, place: str, tries: int) -> None:
        super().__init__(f"{place}: other commits came first {tries} times. Try again")
        self.place, self.tries = place, tries


class DeltaFailed(Corrupt):
    def __init__(self, *, place: str, problem: str) -> None:
        super().__init__(f"{place}: Delta Lake could not read or write it ({problem})")
        self.place, self.problem = place, problem


@dataclass(frozen=True, slots=True)
class DeltaPlace:
    """Where a table is; `options` are those of the object store, if it is in one."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)

    def at(self, name: str) -> "DeltaPlace":
        return DeltaPlace(f"{self.uri}/{name}", self.options)

    @property
    def local(self) -> Path | None:
        if self.uri.startswith("file://"):
            return Path(self.uri.removeprefix("file://"))
        return None if "://" in self.uri else Path(self.uri)


@dataclass(frozen=True)
class MergeSource:
    """Changes, at most one of each key; `_change` says which rows go. `null_keys` are columns of
    the key in which some are null."""

    rows: Rows
    null_keys: frozenset[str]
    is_empty: bool


def source_of(layout: TableLayout, netted: NettedTable) -> MergeSource:
    rows = pa.concat_tables([_marked(netted.upserts, UPSERT), _marked(netted.deletes, DELETE)])
    nulls = frozenset(one.name for one in layout.key_columns if leaf(rows, one).null_count)
    return MergeSource(rows, nulls, is_empty=netted.is_empty)


def _marked(rows: pa.Table, change: str) -> pa.Table:
    return rows.append_column(CHANGE, pa.repeat(pa.scalar(change), rows.num_rows))


def find_table(place: DeltaPlace, *, version: int | None = None) -> DeltaTable | None:
    """As it is now, or was; None if there is none."""
    with translated(place):
        try:
            return DeltaTable(place.uri, version=version, storage_options=dict(place.options))
        except TableNotFoundError:
            return None


def make_table(
    place: DeltaPlace,
    schema: pa.Schema,
    facts: Facts,
    *,
    configuration: Mapping[str, str] | None = None,
) -> DeltaTable:
    """A new, empty one; if another process was quicker, its table."""
    if place.local is not None:
        place.local.mkdir(parents=True, exist_ok=True)
    with translated(place), contextlib.suppress(CommitFailedError):
        DeltaTable.create(
            place.uri,
            schema,
            mode="ignore",
            configuration=dict(configuration or {}),
            storage_options=dict(place.options),
            commit_properties=noted(facts, version=0),
        )
    table = find_table(place)
    if table is None:
        raise DeltaFailed(place=place.uri, problem="was removed just now")
    _sync(place, 0)
    return table


def make_part(place: DeltaPlace, rows: pa.Table) -> None:
    """A table that is written once, and needs no sync: it is staged again after a power cut."""
    if place.local is not None:
        place.local.mkdir(parents=True, exist_ok=True)
    with translated(place):
        write_deltalake(place.uri, rows, mode="error", storage_options=dict(place.options))


def renew(place: DeltaPlace, table: DeltaTable) -> None:
    with translated(place):
        table.update_incremental()


# --- notes


def noted(facts: Facts, *, version: int) -> CommitProperties:
    """For the commit that makes this version, or none: it is not tried again on top of others."""
    note = to_json({**facts, "version": version})
    return CommitProperties(custom_metadata={NOTE: note}, max_commit_retries=0)


def note_of(place: DeltaPlace, table: DeltaTable) -> Facts:
    """The last note that is true of the version which `table` shows.

    The history that Delta gives may already have later commits.
    """
    with translated(place):
        for limit in COMMITS_LOOKED_AT:
            for commit in table.history(limit):
                note = json.loads(commit[NOTE]) if NOTE in commit else None
                if note is not None and note["version"] <= table.version():
                    return dict(note)
    raise DeltaFailed(place=place.uri, problem="no commit has a note of Millstream")


# --- commits


def commit_note(place: DeltaPlace, table: DeltaTable, facts: Facts) -> None:
    """A commit without rows."""
    with _committing(place, table) as version:
        properties = noted(facts, version=version)
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)
        table.update_incremental()


def commit_changes(
    place: DeltaPlace, table: DeltaTable, layout: TableLayout, source: MergeSource, facts: Facts
) -> None:
    """Rows in place of those with their keys, and rows away, in one commit."""
    if source.is_empty:
        commit_note(place, table, facts)
        return
    with _committing(place, table) as version:
        _merge(table, layout, source, noted(facts, version=version))
        is_committed = table.version() == version
    if not is_committed:  # only keys to take away that are not there
        commit_note(place, table, facts)


def commit_whole(place: DeltaPlace, table: DeltaTable, rows: Rows, facts: Facts) -> None:
    """These rows and columns in place of all that is there."""
    with _committing(place, table) as version:
        write_deltalake(
            table,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=noted(facts, version=version),
        )


def commit_compacted(place: DeltaPlace, table: DeltaTable, facts: Facts) -> None:
    """The same rows in fewer files."""
    with _committing(place, table) as version:
        table.optimize.compact(commit_properties=noted(facts, version=version))


@contextlib.contextmanager
def _committing(place: DeltaPlace, table: DeltaTable) -> Iterator[int]:
    """The version that a commit inside makes; it may make none."""
    version = table.version() + 1
    with translated(place):
        try:
            yield version
        except CommitFailedError as error:
            table.update_incremental()
            if table.version() >= version:
                raise Overtaken from error
            raise
    if table.version() >= version:
        _sync(place, version)


def _merge(
    table: DeltaTable, layout: TableLayout, source: MergeSource, properties: CommitProperties
) -> None:
    (
        table.merge(
            source.rows,
            _same_key(layout, source),
            source_alias="s",
            target_alias="t",
            # Bounds of what is in memory leave out files; what is read once has none to tell.
            streamed_exec=not isinstance(source.rows, pa.Table),
            commit_properties=properties,
        )
        .when_matched_delete(f"s.{quoted(CHANGE)} = '{DELETE}'")
        .when_matched_update_all(except_cols=[CHANGE])
        .when_not_matched_insert_all(f"s.{quoted(CHANGE)} <> '{DELETE}'", except_cols=[CHANGE])
        .execute()
    )


def _same_key(layout: TableLayout, source: MergeSource) -> str:
    """`=` where it will do: it leaves out files by their bounds, null-safe equality does not."""
    terms = []
    for column in layout.key_columns:
        equals = "IS NOT DISTINCT FROM" if column.name in source.null_keys else "="
        terms.append(f"(t.{_path(column)} {equals} s.{_path(column)})")
    return " AND ".join(terms)


def _path(column: StoredColumn) -> str:
    return ".".join(quoted(part) for part in column.path)


# --- the disk


def _sync(place: DeltaPlace, version: int) -> None:
    """Delta leaves that to the system; what a power cut could take is not written yet."""
    if place.local is None:
        return
    disk, log = RealDisk(), place.local / LOG
    commit = log / f"{version:020}.json"
    checkpoints = list(log.glob(f"{version:020}.checkpoint*"))
    hint = [log / LAST_CHECKPOINT] if checkpoints else []
    for path in (*added_files(commit, place.local), commit, *checkpoints, *hint):
        _sync_file(disk, path)
    for directory in (log, place.local, place.local.parent):
        disk.sync_directory(directory)


def added_files(commit: Path, table: Path) -> list[Path]:
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    return [table / unquote(action["add"]["path"]) for action in actions if "add" in action]


def _sync_file(disk: RealDisk, path: Path) -> None:
    file = disk.open_existing(path)
    try:
        file.sync()
    finally:
        file.close()


@contextlib.contextmanager
def translated(place: DeltaPlace) -> Iterator[None]:
    """Delta's errors in our own words."""
    try:
        yield
    except (DeltaError, OSError) as error:
        is_full = isinstance(error, OSError) and error.errno in FULL_ERRNOS
        if is_full or any(words in str(error) for words in NO_SPACE):
            raise DiskFull(path=Path(place.uri)) from error
        raise DeltaFailed(place=place.uri, problem=str(error)) from error
