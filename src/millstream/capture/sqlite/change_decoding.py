"""What the triggers stored, as changes. Pure but for the shapes that it asks for, once each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from millstream.capture.change import CREATED, DELETED, TRUNCATED, UPDATED, CapturedTable, Change
from millstream.capture.sqlite.change_table import FIXED_COLUMNS, StoredChange
from millstream.capture.sqlite.shape import Shape
from millstream.capture.sqlite.stored_values import ToJson, key_to_json, row_to_json


@dataclass(frozen=True, slots=True)
class _Decoding:
    table: CapturedTable
    width: int
    row: ToJson
    key: Callable[[Any], bytes | None]


class ChangeDecoder:
    def __init__(
        self, shape_of: Callable[[int], Shape], table_of: Callable[[Shape], CapturedTable]
    ) -> None:
        self._shape_of, self._table_of = shape_of, table_of
        self._known: dict[int, _Decoding] = {}

    def changes(self, stored: StoredChange) -> Iterator[Change]:
        """One; two if the row has another key than before."""
        _, op, shape_id = stored[:3]
        assert isinstance(shape_id, int)
        how = self._decoding(shape_id)
        if op == TRUNCATED:
            yield Change(how.table, TRUNCATED, None, None, None)
            return
        end = FIXED_COLUMNS + 2 * how.width
        old, new = stored[FIXED_COLUMNS:end:2], stored[FIXED_COLUMNS + 1 : end : 2]
        if op == CREATED:
            yield Change(how.table, CREATED, how.key(new), None, how.row(new))
        elif op == DELETED:
            yield Change(how.table, DELETED, how.key(old), how.row(old), None)
        else:
            yield from _updated(how, old, new)

    def _decoding(self, shape_id: int) -> _Decoding:
        if shape_id not in self._known:
            shape = self._shape_of(shape_id)
            self._known[shape_id] = _Decoding(
                self._table_of(shape), len(shape.columns), row_to_json(shape), key_to_json(shape)
            )
        return self._known[shape_id]


def _updated(how: _Decoding, old: StoredChange, new: StoredChange) -> Iterator[Change]:
    old_key, new_key = how.key(old), how.key(new)
    if old_key == new_key:
        yield Change(how.table, UPDATED, new_key, how.row(old), how.row(new))
    else:
        yield Change(how.table, DELETED, old_key, how.row(old), None)
        yield Change(how.table, CREATED, new_key, None, how.row(new))
