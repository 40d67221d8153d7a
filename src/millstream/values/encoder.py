"""What every encoder does: a row in, bytes out; or an error that names the field."""

from typing import Any, Protocol

import pyarrow as pa


class Encoder(Protocol):
    """Takes a mapping, a dataclass or a pydantic model; raises `Unfit` if it is another shape."""

    def encode(self, row: Any) -> bytes: ...


def encode_batch(encoder: Encoder, batch: pa.RecordBatch) -> pa.BinaryArray:
    """A value for every row of columns."""
    rows = batch.to_pylist(maps_as_pydicts="strict")
    return pa.array([encoder.encode(row) for row in rows], pa.binary())
