"""Rows of a stream meet the table's row of their key, as it is when they come. Pure: one key.

A row that finds none is given without (left), left out (inner), or first waits for one: until the
watermark has passed its time and `wait_ms` more. Does not look at the time of the table's rows.
"""

from dataclasses import dataclass, field
from typing import Literal

from millstream.processing.operators.stream_table import (
    Arrival,
    Joined,
    Plain,
    Row,
    Step,
    TableChange,
    by_order,
    ms_after,
)

How = Literal["left", "inner"]
HOWS = ("left", "inner")


@dataclass(slots=True)
class EnrichmentState:
    """The table's row of this key, and the rows that wait for one: (until when, row)."""

    table_row: Row | None = None
    waiting: list[tuple[int, Row]] = field(default_factory=list)

    def plain(self) -> Plain | None:
        if self.table_row is None and not self.waiting:
            return None
        return (self.table_row, self.waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrichment:
    """`wait_ms` None: nobody waits."""

    how: How
    wait_ms: int | None = None

    def recall(self, plain: Plain | None) -> EnrichmentState:
        if plain is None:
            return EnrichmentState()
        table_row, waiting = plain
        return EnrichmentState(table_row, list(waiting))

    def step(
        self,
        state: EnrichmentState,
        changes: list[TableChange],
        arrivals: list[Arrival],
        *,
        watermark_ms: int | None,
    ) -> Step:
        for change in by_order(changes):
            state.table_row = change.row
        joined = self._found(state)
        joined += self._arrived(state, arrivals)
        joined += self._given_up(state, watermark_ms)
        return Step(joined)

    def due_ms(self, state: EnrichmentState) -> int | None:
        return min((until_ms for until_ms, _ in state.waiting), default=None)

    def _found(self, state: EnrichmentState) -> list[Joined]:
        """What waited for the row that is there now."""
        if state.table_row is None:
            return []
        found = [Joined(row, state.table_row) for _, row in state.waiting]
        state.waiting = []
        return found

    def _arrived(self, state: EnrichmentState, arrivals: list[Arrival]) -> list[Joined]:
        if state.table_row is not None:
            return [Joined(arrival.row, state.table_row) for arrival in arrivals]
        alone: list[Joined] = []
        for arrival in arrivals:
            if self.wait_ms is not None and arrival.at_us is not None:
                state.waiting.append((ms_after(arrival.at_us) + self.wait_ms, arrival.row))
            else:
                alone += self._without(arrival.row)
        return alone

    def _given_up(self, state: EnrichmentState, watermark_ms: int | None) -> list[Joined]:
        if watermark_ms is None:
            return []
        over = [row for until_ms, row in state.waiting if until_ms <= watermark_ms]
        if over:
            state.waiting = [held for held in state.waiting if held[0] > watermark_ms]
        return [joined for row in over for joined in self._without(row)]

    def _without(self, row: Row) -> list[Joined]:
        return [Joined(row, None)] if self.how == "left" else []
