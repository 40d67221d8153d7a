"""JSON values to columns: blocks at once, and row by row only where a block is not plain.

A block that Arrow's reader refuses is halved until the few values around the odd one remain;
those are read one by one (`json_rows.py`), which finds the bad ones and the reason of each.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from millstream.schemas.arrow_types import nullable_arrow_schema
from millstream.schemas.declaration import Declared, schema_of
from millstream.values.decoder import Bad, Decoded
from millstream.values.json_blocks import JsonBlocks
from millstream.values.json_rows import JsonRows
from millstream.values.row_columns import Row, columns_of
from millstream.values.row_decoding import decode_rows
from millstream.values.unfit import Unfit

# Large enough that the price of a call (0.1 ms) is nothing, small enough to stay in the cache.
BLOCK_BYTES_MAX = 4 * 1024 * 1024
# Below this, reading one by one costs less than halving further.
ROWS_ONE_BY_ONE = 256


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
        for start, block in _blocks(values):
            for part in self._decode_block(start, block):
                batches.append(part.batch)
                bad.extend(part.bad)
        if not batches:
            return Decoded(columns_of([], self.arrow_schema), bad)
        return Decoded(pa.concat_batches(batches), bad)

    def _decode_block(self, start: int, values: pa.BinaryArray) -> Iterator[Decoded]:
        batch = self._blocks.read(values)
        if batch is not None:
            yield Decoded(batch, [])
        elif len(values) <= ROWS_ONE_BY_ONE:
            yield decode_rows(values, self._row, self.arrow_schema, start=start)
        else:
            half = len(values) // 2
            yield from self._decode_block(start, values[:half])
            yield from self._decode_block(start + half, values[half:])

    def _row(self, value: bytes) -> Row:
        try:
            return self._rows.row(value)
        except RecursionError:
            return self._row_by_arrow(value, Unfit("not JSON, or nested too deeply"))
        except Unfit as error:
            if b"Inf" in value or b"NaN" in value:
                return self._row_by_arrow(value, error)
            raise

    def _row_by_arrow(self, value: bytes, error: Unfit) -> Row:
        """In fields that nobody asked for, Arrow passes over more than Python reads.

        Among others it would do so too, and a value must not depend on its neighbours.
        """
        alone = self._blocks.read(pa.array([value], pa.binary()))
        if alone is None:
            raise error from None
        row: Row = alone.to_pylist()[0]
        return row


def _blocks(values: pa.BinaryArray) -> Iterator[tuple[int, pa.BinaryArray]]:
    """The values in runs of a bounded size, each with the number of its first one."""
    rows = len(values)
    mean_bytes = max(1, values.nbytes // max(1, rows))
    step = max(1, BLOCK_BYTES_MAX // mean_bytes)
    for start in range(0, rows, step):
        yield start, values[start : start + step]
