"""Whether two tables hold the same rows: a view as its job has kept it, and the same recomputed.

In full, or on a sample of keys that is the same for both, whatever their order. Reads only.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.base.errors import Corrupt
from millstream.base.ports import BatchReceipt
from millstream.schemas.arrow_types import schema_from_arrow
from millstream.views.store import Row, ViewReads, ViewStore

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES_MAX = 3
SHOWN_LENGTH_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A key, its row in the view and the one that it should have; None: there is none."""

    key: Mapping[str, Any]
    found: Row | None
    expected: Row | None

    def __str__(self) -> str:
        key = ", ".join(f"{name} {value!r}" for name, value in self.key.items())
        return f"{key} is {_shown(self.found)}, recomputed {_shown(self.expected)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`rows` were compared; `sample` is their part of all keys, in percent."""

    rows: int
    differing: int = 0
    sample: float = 100.0
    examples: tuple[Difference, ...] = ()

    @property
    def is_same(self) -> bool:
        return not self.differing


class ViewDiffers(Corrupt):
    def __init__(self, *, view: str, generation: int, verdict: Verdict) -> None:
        told = "; ".join(map(str, verdict.examples))
        super().__init__(
            f"view {view}, generation {generation}: {verdict.differing} of {verdict.rows} rows are "
            f"not what its topics come to: {told}"
        )
        self.view, self.generation, self.verdict = view, generation, verdict


def compared(found: ViewReads, expected: ViewReads, *, sample: float = 100.0) -> Verdict:
    """Compare the rows of `sample` percent of the keys."""
    kept, wanted = (_by_key(one, found.key, sample) for one in (found, expected))
    differing = [
        Difference(key=_key_in(found.key, kept, wanted, mark), found=row, expected=should)
        for mark, row, should in _pairs(kept, wanted)
        if row != should and repr(row) != repr(should)  # a NaN is a NaN
    ]
    return Verdict(
        rows=len(kept.keys() | wanted.keys()),
        differing=len(differing),
        sample=sample,
        examples=tuple(differing[:EXAMPLES_MAX]),
    )


def write_whole(store: ViewStore, rows: "pa.Table", *, job: str) -> None:
    """All rows of a view as one batch, the first."""
    writer = store.writer(1)
    try:
        epoch = writer.claim(job, schema_from_arrow(rows.schema))
        writer.write(BatchReceipt(job=job, epoch=epoch, query="", batch=0), rows)
    finally:
        writer.close()


Rows = Mapping[str, Row]


def _by_key(reads: ViewReads, key: Sequence[str], sample: float) -> Rows:
    marked = ((repr([row[name] for name in key]), row) for row in reads.scan())
    return {mark: _in_order(row) for mark, row in marked if is_in_sample(mark, sample)}


def is_in_sample(mark: str, percent: float) -> bool:
    return zlib.crc32(mark.encode()) < (1 << 32) * percent / 100


def _in_order(row: Row) -> Row:
    """Columns may have been added in another order."""
    return dict(sorted(row.items()))


def _pairs(kept: Rows, wanted: Rows) -> Iterator[tuple[str, Row | None, Row | None]]:
    for mark in sorted(kept.keys() | wanted.keys()):
        yield mark, kept.get(mark), wanted.get(mark)


def _key_in(key: Sequence[str], kept: Rows, wanted: Rows, mark: str) -> dict[str, Any]:
    row = kept.get(mark) or wanted[mark]
    return {name: row[name] for name in key}


def _shown(row: Row | None) -> str:
    if row is None:
        return "not there"
    text = repr(row)
    return text if len(text) <= SHOWN_LENGTH_MAX else text[: SHOWN_LENGTH_MAX - 1] + "…"
