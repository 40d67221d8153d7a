"""Decoding row by row, for formats without a reader of whole blocks."""

from collections.abc import Callable

import pyarrow as pa

from millstream.values.decoder import Bad, Decoded
from millstream.values.row_columns import Row, columns_of
from millstream.values.unfit import Unfit


def decode_rows(
    values: pa.BinaryArray, read: Callable[[bytes], Row], schema: pa.Schema, *, start: int = 0
) -> Decoded:
    """`read` makes a row of a value, or raises `Unfit`. `start` is the number of the first row."""
    rows: list[Row] = []
    bad: list[Bad] = []
    for number, value in enumerate(values.to_pylist(), start):
        try:
            rows.append(None if value is None else read(value))
        except Unfit as error:
            bad.append(Bad(number, str(error)))
            rows.append(None)
    return Decoded(columns_of(rows, schema), bad)
