"""Keeps paged maps in Spark's state: the shell around steps that are pure.

A step takes pages and rows, and returns rows. Rows are spread over `SLOTS` groups by the hash of
their key, not one group for each key: a group costs Spark about a millisecond in Python, so that
100,000 keys in a batch would take minutes. What one group keeps is a map in pages (paged_map.py).

A static frame is one batch of all its rows, after which nothing is kept.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import StructType

from millstream.processing.state.paged_map import PageStore, hash_of
from millstream.processing.state.state_terms import telling

# Kept in checkpoints: where a key's rows are depends on it. More than tasks that run at once, few
# enough to be quick when all are touched.
SLOTS = 64
SLOT = "slot"
ROWS_PER_FRAME = 10_000

Step = Callable[[PageStore, Iterator[tuple[Any, ...]]], Iterable[tuple[Any, ...]]]


def slot_of(key: str) -> int:
    """By other bits than those that choose a page."""
    return (hash_of(key) >> 48) % SLOTS


def in_slots(frame: DataFrame, step: Step, columns: StructType, *terms: object) -> DataFrame:
    """The rows that `step` makes of every slot's rows, with what it keeps from batch to batch.

    `terms` are what that depends on.
    """
    if not frame.isStreaming:
        return frame.repartition(SLOT).mapInArrow(AtOnce(step, columns), columns)
    processor = PagedProcessor(step, columns.names)
    told = telling(columns, *terms)
    return frame.groupBy(SLOT).transformWithStateInPandas(processor, told, "Update", "None")


class PagedProcessor(StatefulProcessor):
    """Runs a step over the rows of one slot, which it gets as tuples without the slot."""

    def __init__(self, step: Step, names: list[str]) -> None:
        self._step = step
        self._names = names

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._pages = StatePages(handle.getMapState("pages", "name STRING", "page BINARY"))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        made = iter(self._step(self._pages, _tuples(rows)))
        while chunk := list(islice(made, ROWS_PER_FRAME)):
            yield pd.DataFrame(chunk, columns=self._names)

    def close(self) -> None:
        """Nothing is open."""


def _tuples(rows: Iterator[pd.DataFrame]) -> Iterator[tuple[Any, ...]]:
    for frame in rows:
        yield from frame.drop(columns=SLOT).itertuples(index=False, name=None)


class StatePages:
    """A map of Spark's state as a PageStore."""

    def __init__(self, state: MapState) -> None:
        self._state = state

    def read(self, name: str) -> bytes | None:
        kept = self._state.getValue((name,))
        return None if kept is None else bytes(kept[0])

    def write(self, name: str, page: bytes) -> None:
        self._state.updateValue((name,), (page,))

    def remove(self, name: str) -> None:
        self._state.removeKey((name,))


@dataclass(frozen=True)
class AtOnce:
    """Runs in tasks: a step over all rows of some slots, whose keys are not in others."""

    step: Step
    columns: StructType

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = iter(self.step(Unkept(), _rows_of(batches)))
        schema = to_arrow_schema(self.columns)
        while chunk := list(islice(made, ROWS_PER_FRAME)):
            rows = [dict(zip(schema.names, row, strict=True)) for row in chunk]
            yield pa.RecordBatch.from_pylist(rows, schema)


def _rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(
            *(batch[name].to_pylist() for name in batch.schema.names if name != SLOT), strict=True
        )


class Unkept:
    """Pages of which none comes back: a step holds what it works on."""

    def read(self, name: str) -> bytes | None:
        return None

    def write(self, name: str, page: bytes) -> None:
        """It is not asked for again."""

    def remove(self, name: str) -> None:
        """It was never there."""
