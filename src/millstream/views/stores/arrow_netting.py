"""The changes of one batch as tables of Arrow: rows to put, and keys to take away. Pure.

For stores that take columns rather than rows. Upserts and deletes, which are by key, stay in Arrow.
Where whole rows are inserted and retracted, `netting.net` decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.changes import CHANGE, DELETE, ORDER, UPSERT
from millstream.views.netting import StoredRow, change_orders, change_words, in_order, net
from millstream.views.stores.arrow_columns import fitted_rows, key_table, leaf
from millstream.views.stores.sqlite.values import stored_columns
from millstream.views.table_layout import NullKey, TableLayout


@dataclass(frozen=True)
class NettedTable:
    """Both with all columns of the view; of deletes only the key's count. No key is in both."""

    upserts: pa.Table
    deletes: pa.Table

    @property
    def is_empty(self) -> bool:
        return not self.upserts.num_rows and not self.deletes.num_rows


def netted_table(layout: TableLayout, changes: pa.Table) -> NettedTable:
    rows = fitted_rows(layout, changes)
    _require_keys(layout, rows)
    if _is_by_key(changes):
        return _net_by_key(layout, rows, changes)
    return _net_by_row(layout, rows, changes)


def _require_keys(layout: TableLayout, rows: pa.Table) -> None:
    """A part of a key may be null, as in an outer join; not all of it."""
    nulls = [leaf(rows, column).is_null() for column in layout.key_columns]
    without = nulls[0]
    for more in nulls[1:]:
        without = pc.and_(without, more)
    if found := pc.sum(without).as_py():
        raise NullKey(view=layout.view, key=layout.key, rows=found)


def _is_by_key(changes: pa.Table) -> bool:
    if CHANGE not in changes.column_names:
        return True
    return set(changes.column(CHANGE).unique().to_pylist()) <= {UPSERT, DELETE, None}


def _net_by_key(layout: TableLayout, rows: pa.Table, changes: pa.Table) -> NettedTable:
    """The last change of each key counts."""
    coming = _coming(changes)
    places = _in_order(changes, coming)
    ranked = key_table(layout, rows.take(places))
    names = ranked.column_names
    ranked = ranked.append_column("rank", _numbers(rows.num_rows))
    last = ranked.group_by(names).aggregate([("rank", "max")]).column("rank_max")
    return _parted(rows, places.take(last.combine_chunks()).sort(), coming)


def _coming(changes: pa.Table) -> pa.Array:
    """Whether each row is put, rather than taken away."""
    if CHANGE not in changes.column_names:
        return pa.repeat(pa.scalar(True), changes.num_rows)
    return pc.not_equal(changes.column(CHANGE).combine_chunks(), DELETE).fill_null(True)


def _in_order(changes: pa.Table, coming: pa.Array) -> pa.Array:
    """Places of rows, the earliest change first, as in `netting.in_order`."""
    places = _numbers(changes.num_rows)
    if ORDER not in changes.column_names and CHANGE not in changes.column_names:
        return places
    ranks = {"order": _orders(changes), "coming": coming.cast(pa.int8()), "place": places}
    keys = [(name, "ascending") for name in ranks]
    return pc.sort_indices(pa.table(ranks), sort_keys=keys).cast(pa.int64())


def _orders(changes: pa.Table) -> pa.Array:
    if ORDER not in changes.column_names:
        return pa.repeat(pa.scalar(-1), changes.num_rows)
    return changes.column(ORDER).combine_chunks().cast(pa.int64()).fill_null(-1)


def _numbers(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _parted(rows: pa.Table, places: pa.Array, coming: pa.Array) -> NettedTable:
    is_put = coming.take(places)
    return NettedTable(
        upserts=rows.take(places.filter(is_put)),
        deletes=rows.take(places.filter(pc.invert(is_put))),
    )


def _net_by_row(layout: TableLayout, rows: pa.Table, changes: pa.Table) -> NettedTable:
    words = change_words(changes)
    order = in_order(words, change_orders(changes))
    kept: list[StoredRow] = list(zip(*stored_columns(layout, rows), strict=True))
    width = len(layout.key_columns)
    netted = net(
        (words[place] for place in order), (kept[place] for place in order), key_width=width
    )
    place_of_row = {row: place for place, row in enumerate(kept)}
    place_of_key = {row[:width]: place for place, row in enumerate(kept)}
    return NettedTable(
        upserts=_at(rows, [place_of_row[row] for row in netted.upserts]),
        deletes=_at(rows, [place_of_key[key] for key in netted.deletes]),
    )


def _at(rows: pa.Table, places: Sequence[int]) -> pa.Table:
    return rows.take(pa.array(places, pa.int64()))
