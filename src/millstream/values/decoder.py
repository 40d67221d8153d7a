"""What every decoder does: bytes in, columns out, and the rows that could not be read by number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Bad:
    """A value that is not what the schema says. `row` is its place among the values given."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """`batch` has a row for every value, in order.

    A bad row has nulls in every column; so has a tombstone (a null value), which is not bad.
    Every column is nullable therefore: that a field is NOT NULL is checked, row by row.

    Of values that are changes: `gone` marks those that delete their row, `passed` those that say
    nothing of one.
    """

    batch: pa.RecordBatch
    bad: Sequence[Bad]
    gone: pa.BooleanArray | None = None
    passed: pa.BooleanArray | None = None


class Decoder(Protocol):
    """Decodes the values of one topic. Says the same of a value whatever its neighbours are."""

    @property
    def arrow_schema(self) -> pa.Schema: ...

    def decode(self, values: pa.BinaryArray) -> Decoded: ...
