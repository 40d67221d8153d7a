"""What a batch of changes comes to, in columns of COPY's text: rows that come, keys that go. Pure.

Values are the same if their texts are (`values.py`), so that all types are netted as
text, and in Arrow where the words allow it: upserts and deletes among themselves, inserts and
retracts among themselves. A batch that mixes them goes through `views/netting.py` row by row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from millstream.base.changes import CHANGE, DELETE, GOING, INSERT, ORDER, RETRACT, UPSERT
from millstream.views.netting import change_orders, change_words, in_order, net
from millstream.views.stores.postgres.values import NULL, TEXT, copy_lines, copy_texts
from millstream.views.table_layout import NullKey, TableLayout

# Lines are joined in memory, in pieces of this many rows.
LINES_ROWS_MAX = 50_000
PLACE, WEIGHT = "place", "weight"
COMES, GOES = "f", "t"

# Which columns of a key are null, by place.
NullParts = frozenset[int]
Netted = tuple[pa.Table, pa.Table]


@dataclass(frozen=True)
class CopiedBatch:
    """Texts of rows that come, in all columns, and of keys that go; no key is there twice.

    `null_parts` are those that occur among the keys that go.
    """

    comes: pa.Table
    goes: pa.Table
    null_parts: frozenset[NullParts]

    @property
    def rows(self) -> int:
        return int(self.comes.num_rows + self.goes.num_rows)

    def lines(self) -> Iterator[memoryview]:
        """Of rows that come."""
        return _lines(self.comes)

    def marked_lines(self) -> Iterator[memoryview]:
        """Of all; the last column says whether it goes."""
        nothing = [NULL] * (self.comes.num_columns - self.goes.num_columns)
        yield from _lines(self.comes, COMES)
        yield from _lines(self.goes, *nothing, GOES)


def copied_batch(layout: TableLayout, changes: pa.Table) -> CopiedBatch:
    texts, key = _texts(layout, changes), _key_names(layout)
    words = _words(changes)
    if words <= {None, UPSERT, DELETE}:
        comes, goes = _last_of_each(texts, key, changes)
    elif words <= {INSERT, RETRACT}:
        comes, goes = _weighed(texts, key, changes) or _row_by_row(texts, key, changes)
    else:
        comes, goes = _row_by_row(texts, key, changes)
    return CopiedBatch(comes, goes, _null_parts(goes))


def _texts(layout: TableLayout, changes: pa.Table) -> pa.Table:
    """Columns are named by place: the view's names are anybody's."""
    found = copy_texts(layout, changes)
    _require_keys(layout, found[: len(layout.key_columns)])
    filled = [pc.fill_null(text, NULL) for text in found]
    return pa.table(filled, names=_names(len(filled)))


def _require_keys(layout: TableLayout, key: Sequence[pa.Array]) -> None:
    """A part of a key may be null, as in an outer join; not all of it."""
    without = reduce(pc.and_, [part.is_null() for part in key])
    if rows := pc.sum(without).as_py():
        raise NullKey(view=layout.view, key=layout.key, rows=rows)


def _names(width: int) -> list[str]:
    return [str(place) for place in range(width)]


def _key_names(layout: TableLayout) -> list[str]:
    return _names(len(layout.key_columns))


def _words(changes: pa.Table) -> set[str | None]:
    if CHANGE not in changes.column_names:
        return set()
    return set(pc.unique(changes.column(CHANGE)).to_pylist())


# --- upserts and deletes: the last of each key counts


def _last_of_each(texts: pa.Table, key: list[str], changes: pa.Table) -> Netted:
    going = _is_going(changes)
    places = _in_order(going, changes)
    ranked = texts.select(key).take(places).append_column(PLACE, _up_to(texts.num_rows))
    last = ranked.group_by(key, use_threads=False).aggregate([(PLACE, "max")])
    found = pc.take(places, last.column(f"{PLACE}_max").combine_chunks())
    goes = pc.take(going, found)
    comes = texts.take(pc.filter(found, pc.invert(goes)))
    return comes, texts.select(key).take(pc.filter(found, goes))


def _is_going(changes: pa.Table) -> pa.Array:
    if CHANGE not in changes.column_names:
        return pa.repeat(False, changes.num_rows)
    words = changes.column(CHANGE).combine_chunks()
    return pc.is_in(words, value_set=pa.array(sorted(GOING), words.type))


def _in_order(going: pa.Array, changes: pa.Table) -> pa.Array:
    """Places of rows, the earliest change first; of one change, what goes before what comes."""
    if CHANGE not in changes.column_names and ORDER not in changes.column_names:
        return _up_to(changes.num_rows)
    orders = changes.column(ORDER) if ORDER in changes.column_names else pa.repeat(-1, len(going))
    ranks = pa.table([pc.fill_null(orders, -1), pc.invert(going), _up_to(len(going))], list("abc"))
    return pc.sort_indices(ranks, [(name, "ascending") for name in "abc"])


def _up_to(end: int) -> pa.Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), end), start=-1)


# --- inserts and retracts: by the weight of each whole row


def _weighed(texts: pa.Table, key: list[str], changes: pa.Table) -> Netted | None:
    """None if two rows of a key are left: then `net` says so."""
    weights = pc.if_else(_is_going(changes), -1, 1)
    whole = texts.append_column(WEIGHT, weights).group_by(texts.column_names, use_threads=False)
    weighed = whole.aggregate([(WEIGHT, "sum")])
    weight = weighed.column(f"{WEIGHT}_sum")
    left = weighed.filter(pc.greater(weight, 0)).select(texts.column_names)
    taken = _distinct(weighed.filter(pc.less(weight, 0)), key)
    put = _distinct(left, key)
    if put.num_rows < left.num_rows:
        return None
    return left, taken.join(put, key, join_type="left anti", use_threads=False)


def _distinct(rows: pa.Table, key: list[str]) -> pa.Table:
    return rows.group_by(key, use_threads=False).aggregate([])


# --- any words


def _row_by_row(texts: pa.Table, key: list[str], changes: pa.Table) -> Netted:
    rows = list(zip(*(column.to_pylist() for column in texts.columns), strict=True))
    words = change_words(changes)
    places = in_order(words, change_orders(changes))
    netted = net(
        (words[place] for place in places),
        (rows[place] for place in places),
        key_width=len(key),
    )
    return _table(netted.upserts, texts.column_names), _table(netted.deletes, key)


def _table(rows: Sequence[Sequence[object]], names: list[str]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return pa.table([pa.array(column, TEXT) for column in columns], names=names)


# --- lines and keys


def _lines(rows: pa.Table, *more: str) -> Iterator[memoryview]:
    for start in range(0, rows.num_rows, LINES_ROWS_MAX):
        piece = rows.slice(start, LINES_ROWS_MAX).combine_chunks()
        columns = [column.chunk(0) for column in piece.columns]
        yield copy_lines(
            [*columns, *(pa.repeat(pa.scalar(one, TEXT), piece.num_rows) for one in more)]
        )


def _null_parts(goes: pa.Table) -> frozenset[NullParts]:
    are_null = [pc.equal(column, NULL) for column in goes.columns]
    patterns = _distinct(pa.table(are_null, names=goes.column_names), goes.column_names)
    return frozenset(
        frozenset(place for place, is_null in enumerate(row.values()) if is_null)
        for row in patterns.to_pylist()
    )
