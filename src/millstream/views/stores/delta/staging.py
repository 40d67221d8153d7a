"""Large batches: each part is netted and written beside the view by the process that has it.

A part is a small Delta table of its own, `_staged/<batch>-<part>-<token>` in the directory of its
generation, where other tools do not look: Spark may run a task twice. The commit streams the parts
into the view, so that no process holds all of it. What a run that was killed has left goes with
the next claim. All processes must see the same place.
"""

import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from millstream.views.stores.arrow_netting import netted_table
from millstream.views.stores.delta.table import (
    DeltaFailed,
    DeltaPlace,
    MergeSource,
    Rows,
    find_table,
    make_part,
    source_of,
    translated,
)
from millstream.views.table_layout import TableLayout, require_fitting

STAGED = "_staged"
TOKEN_BYTES = 6


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The facts of a part: where it is, and what `MergeSource` wants to know of it."""

    place: DeltaPlace
    rows: int
    null_keys: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaStaging:
    """One batch on its way; goes to the processes that have its parts."""

    place: DeltaPlace
    layout: TableLayout
    batch: int

    def stage(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        name = f"{self.batch}-{part}-{secrets.token_hex(TOKEN_BYTES)}"
        place = self.place.at(STAGED).at(name)
        found = [batch for batch in batches if batch.num_rows]
        if not found:
            return StagedPart(place, 0, frozenset())
        changes = pa.Table.from_batches(found)
        require_fitting(self.layout, changes.schema)
        source = source_of(self.layout, netted_table(self.layout, changes))
        make_part(place, source.rows)
        return StagedPart(place, source.rows.num_rows, source.null_keys)


def merge_source(parts: Sequence[StagedPart]) -> MergeSource:
    """All parts, to be read once."""
    there = [part for part in parts if part.rows]
    nulls = frozenset(name for part in there for name in part.null_keys)
    rows: Rows = pa.table({}) if not there else _read(there)
    return MergeSource(rows, nulls, is_empty=not there)


def _read(parts: Sequence[StagedPart]) -> pa.RecordBatchReader:
    tables = []
    for part in parts:
        table = find_table(part.place)
        if table is None:
            raise DeltaFailed(place=part.place.uri, problem="the part that was staged is gone")
        with translated(part.place):
            tables.append(table.to_pyarrow_dataset())
    schema = tables[0].schema
    batches = (batch.cast(schema) for one in tables for batch in one.to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def remove_staged(place: DeltaPlace) -> None:
    """On an object store it stays: `_staged/` is for a rule of its own there."""
    if place.local is not None:
        shutil.rmtree(place.local / STAGED, ignore_errors=True)
