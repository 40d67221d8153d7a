"""JSON values to columns: blocks at once, and row by row only where a block is not plain.

A block that Arrow's reader refuses is cut until the few values around the odd one remain; those
are read one by one (`json_rows.py`), which finds the bad ones and the reason of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.schemas.declaration import Declared, schema_of
from millstream.values.decoder import Bad, Decoded
from millstream.values.json_blocks import JsonBlocks, NotPlain
from millstream.values.json_rows import JsonRows
from millstream.values.row_columns import Row, columns_of
from millstream.values.row_decoding import decode_rows
from millstream.values.unfit import Unfit

# Large enough that the price of a call (0.1 ms) is nothing, small enough to stay in the cache.
BLOCK_BYTES_MAX = 4 * 1024 * 1024
# To read so many one by one costs about as much as one more call of Arrow's reader.
ROWS_ONE_BY_ONE = 128
# A block is read up to the odd value again: not too large a one.
HINTED_ROWS_MAX = 8_192


@dataclass(frozen=True, slots=True)
class _Part:
    """Some values of a block; `start` is the number of the first."""

    start: int
    values: pa.BinaryArray
    one_by_one: bool = False

    def cut(self, row: int | None) -> list["_Part"]:
        """What to read instead, when the whole was refused: less at once, around `row`."""
        size = len(self.values)
        if size <= ROWS_ONE_BY_ONE:
            return [replace(self, one_by_one=True)]
        if row is None or not row < size <= HINTED_ROWS_MAX:
            half = size // 2
            return [self._slice(0, half), self._slice(half, size)]
        first = row if row > ROWS_ONE_BY_ONE else 0
        end = min(size, row + ROWS_ONE_BY_ONE)
        around = self._slice(first, end, one_by_one=True)
        parts = [self._slice(0, first), around, self._slice(end, size)]
        return [part for part in parts if len(part.values)]

    def _slice(self, start: int, end: int, *, one_by_one: bool = False) -> "_Part":
        return _Part(self.start + start, self.values[start:end], one_by_one)


class JsonDecoder:
    """`epoch` is the unit of timestamps that are numbers: s, ms or us."""

    def __init__(self, schema: Declared, *, epoch: str = "ms") -> None:
        self.schema = schema_of(schema)
        self.arrow_schema = nullable_arrow_schema(self.schema)
        self.epoch = epoch
        self._rows = JsonRows(self.schema, epoch=epoch)
        self._blocks = JsonBlocks(self.schema, epoch=epoch)

    def __reduce__(self) -> tuple[Any, ...]:
        """By what it was made of: Spark sends it to its workers."""
        return partial(JsonDecoder, epoch=self.epoch), (self.schema,)

    def decode(self, values: pa.BinaryArray) -> Decoded:
        batches: list[pa.RecordBatch] = []
        bad: list[Bad] = []
        for block in _blocks(values):
            for part in self._decode_block(block):
                batches.append(part.batch)
                bad.extend(part.bad)
        if not batches:
            return Decoded(columns_of([], self.arrow_schema), bad)
        return Decoded(pa.concat_batches(batches), bad)

    def _decode_block(self, block: _Part) -> Iterator[Decoded]:
        waiting = [block]
        while waiting:
            part = waiting.pop()
            if part.one_by_one:
                yield decode_rows(part.values, self._row, self.arrow_schema, start=part.start)
                continue
            try:
                yield Decoded(self._blocks.read(part.values), [])
            except NotPlain as refusal:
                waiting.extend(reversed(part.cut(refusal.row)))

    def _row(self, value: bytes) -> Row:
        try:
            return self._rows.row(value)
        except RecursionError:
            return self._row_by_arrow(value, Unfit("not JSON, or nested too deeply"))

    def _row_by_arrow(self, value: bytes, error: Unfit) -> Row:
        """In fields that nobody asked for, Arrow passes over deeper nesting than Python reads.

        Among others it would do so too, and a value must not depend on its neighbours.
        """
        try:
            alone = self._blocks.read(pa.array([value], pa.binary()))
        except NotPlain:
            raise error from None
        row: Row = alone.to_pylist()[0]
        return row


def _blocks(values: pa.BinaryArray) -> Iterator[_Part]:
    """The values in runs of a bounded size."""
    rows = len(values)
    mean_bytes = max(1, values.nbytes // max(1, rows))
    step = max(1, BLOCK_BYTES_MAX // mean_bytes)
    return (_Part(start, values[start : start + step]) for start in range(0, rows, step))
