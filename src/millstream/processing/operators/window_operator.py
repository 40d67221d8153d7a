"""Windows in Spark: rows in, the changes of their windows out. The adapter around the book.

A row that comes in is (slot, time, at, the key's values, a value for each aggregate); one that
goes out (change, the key's values, start, end, the results), by place. Times are microseconds;
`time` is until when the row can be used, which Spark compares with its watermark. Names and types
are `windows.py`'s business.
"""

# ruff: noqa: N802, N803  # Spark's names

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from millstream.processing.operators.aggregates import Aggregate
from millstream.processing.operators.arrow_rows import rows_of, table_of
from millstream.processing.operators.window_changes import (
    Change,
    Emit,
    Key,
    WindowBook,
    book_from,
    changes_in_batch,
)
from millstream.processing.operators.window_kinds import (
    MS_US,
    Hopping,
    Session,
    Sliding,
    WindowKind,
)
from millstream.processing.operators.window_state import NO_WATERMARK, Event, Windows, windows_of
from millstream.processing.reading.last_use import LastUse

SLOT, TIME, AT = "slot", "time", "at"
BEFORE_KEY = 3


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What is computed, as the workers get it."""

    kind: WindowKind
    aggregates: tuple[Aggregate, ...]
    emit: Emit
    key_size: int
    grace_us: int = 0

    @property
    def columns(self) -> list[str]:
        """Of the rows that go out."""
        keys = [f"key_{place}" for place in range(self.key_size)]
        results = [f"result_{place}" for place in range(len(self.aggregates))]
        return ["change", *keys, "start", "end", *results]

    def windows(self) -> Windows:
        return windows_of(self.kind, self.aggregates, tells_last=self.emit == "final")

    def last_use(self) -> LastUse:
        """Until when an event can be used: here nothing is over before there is a watermark."""
        match self.kind:
            case Hopping(size_us=size, every_us=every, start_us=start):
                span, at = size + self.grace_us, {"every_us": every, "start_us": start}
                return LastUse(span_us=span, from_1970=False, **at)
            case Session(gap_us=span) | Sliding(size_us=span):
                return LastUse(span_us=span + self.grace_us, from_1970=False)

    def events_of(self, rows: Iterable[tuple[Any, ...]]) -> dict[Key, list[Event]]:
        values_from = BEFORE_KEY + self.key_size
        events: dict[Key, list[Event]] = {}
        for row in rows:
            event = (row[BEFORE_KEY - 1], row[values_from:])
            events.setdefault(tuple(row[BEFORE_KEY:values_from]), []).append(event)
        return events


def row_of(change: Change) -> tuple[Any, ...]:
    result = change.result
    return (change.change, *change.key, result.start, result.end, *result.values)


class WindowProcessor(StatefulProcessor):
    """One entry of state, and one timer, for each slot of keys."""

    def __init__(self, plan: WindowPlan) -> None:
        self._plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._windows = self._plan.windows()
        self._row = Row(*self._plan.columns)
        self._kept = handle.getValueState("windows", "book BINARY")

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        book = self._book()
        changes = [*book.add(self._plan.events_of(rows), watermark_us(timerValues))]
        self._keep(book)
        return (self._row(*row_of(change)) for change in changes)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        book = self._book()
        changes = [*book.close(watermark_us(timerValues))]
        book.wake_at = None
        self._keep(book)
        return (self._row(*row_of(change)) for change in changes)

    def _book(self) -> WindowBook:
        kept = self._kept.get()
        if kept is None:
            return WindowBook(self._windows, self._plan.emit, grace=self._plan.grace_us)
        return book_from(kept[0], self._windows, self._plan.emit, self._plan.grace_us)

    def _keep(self, book: WindowBook) -> None:
        due = book.next_close()
        if due is None:
            self._kept.clear()
            return
        if book.wake_at is None or due < book.wake_at:
            # Not before it is due; and not at 0, which is Spark's watermark before there is one.
            self._handle.registerTimer(max(-(-due // MS_US), 1))
            book.wake_at = due
        self._kept.update((book.to_bytes(),))


def watermark_us(timer_values: TimerValues) -> int:
    """Spark's first watermark is 0: nothing was seen yet, and nothing is over."""
    watermark_ms = timer_values.getCurrentWatermarkInMs()
    return watermark_ms * MS_US if watermark_ms > 0 else NO_WATERMARK


def over_batch(plan: WindowPlan, schema: pa.Schema) -> Callable[[pa.Table], pa.Table]:
    """The same over a static group of rows, in Arrow. A function of its own: Spark counts what it
    takes, and a method's `self` with it."""

    def told(table: pa.Table) -> pa.Table:
        events = plan.events_of(rows_of(table))
        changes = changes_in_batch(plan.windows(), plan.emit, events)
        return table_of(schema, [row_of(change) for change in changes])

    return told
