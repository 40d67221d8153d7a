"""Which files of a view a batch touches, and what is to be written in their place. Pure.

Rows of a file are in the order of the key. A batch makes new files of its rows and of what is left
of the files that it touches; the others stay as they are. Many small files are made one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.views.conditions import Order
from millstream.views.stores.arrow_columns import key_table
from millstream.views.stores.arrow_netting import NettedTable
from millstream.views.stores.arrow_reads import in_order
from millstream.views.stores.parquet.manifest import KeptFile
from millstream.views.table_layout import TableLayout

# What is rewritten for one changed row: about 0.1 s of work, and megabytes.
FILE_ROWS_MAX = 200_000
# A file below this is small; as many of them cost a reader more than writing them as one.
SMALL_ROWS = FILE_ROWS_MAX // 10
SMALL_FILES_MAX = 16

ReadRows = Callable[[KeptFile], pa.Table]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest first part of the keys; None where that is not to be said."""

    first: Any
    last: Any

    def meet(self, other: "Bounds") -> bool:
        if self.first is None or other.first is None:
            return True
        return bool(self.first <= other.last and other.first <= self.last)


@dataclass(frozen=True)
class Merged:
    """Files that stay, and rows for new ones."""

    kept: tuple[KeptFile, ...]
    rows: list[pa.Table]


def bounds_of(layout: TableLayout, rows: pa.Table) -> Bounds:
    first = key_table(layout, rows.select(layout.key)).column(0)
    if not len(first) or first.null_count or pa.types.is_floating(first.type):
        return Bounds(None, None)
    found = pc.min_max(first).as_py()
    return Bounds(found["min"], found["max"])


def merge(
    layout: TableLayout,
    files: Sequence[KeptFile],
    netted: NettedTable,
    *,
    read: ReadRows,
    bounds: Callable[[KeptFile], Bounds],
) -> Merged:
    changed = pa.concat_tables([netted.upserts, netted.deletes])
    own = bounds_of(layout, changed)
    kept, rows = [], [netted.upserts]
    for file in files:
        left = left_of(layout, read(file), changed) if bounds(file).meet(own) else None
        if left is None:
            kept.append(file)
        else:
            rows.append(left)
    small = [file for file in kept if file.rows < SMALL_ROWS]
    if len(small) >= SMALL_FILES_MAX:
        kept = [file for file in kept if file.rows >= SMALL_ROWS]
        rows += [read(file) for file in small]
    return Merged(tuple(kept), list(split(layout, rows)))


def left_of(layout: TableLayout, rows: pa.Table, changed: pa.Table) -> pa.Table | None:
    """The rows whose keys the batch does not name; None if it names none of them."""
    both = pa.concat_tables(
        [
            _placed(key_table(layout, rows), range(rows.num_rows), is_change=False),
            _placed(key_table(layout, changed), [-1] * changed.num_rows, is_change=True),
        ]
    )
    keys = [name for name in both.column_names if name not in ("place", "is_change")]
    groups = both.group_by(keys).aggregate([("place", "max"), ("is_change", "max")])
    is_left = pc.and_(
        pc.greater_equal(groups.column("place_max"), 0),
        pc.equal(groups.column("is_change_max"), 0),
    )
    places = groups.column("place_max").filter(is_left)
    if len(places) == rows.num_rows:
        return None
    return rows.take(places.combine_chunks().sort())


def _placed(keys: pa.Table, places: Iterable[int], *, is_change: bool) -> pa.Table:
    marks = pa.repeat(pa.scalar(int(is_change), pa.int8()), keys.num_rows)
    return keys.append_column("place", pa.array(places, pa.int64())).append_column(
        "is_change", marks
    )


def split(layout: TableLayout, parts: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """In the order of the key, so that each file has a narrow range of it."""
    rows = pa.concat_tables(parts)
    if rows.num_rows:
        rows = in_order(rows, [Order(column) for column in layout.key_columns])
    for start in range(0, rows.num_rows, FILE_ROWS_MAX):
        yield rows.slice(start, FILE_ROWS_MAX)
