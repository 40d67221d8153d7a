"""Rows of a stream meet the version of the table's row that held at their time. Pure: one key.

The version that holds at a time is the last one that is valid from then or earlier. Versions come
in any order, and after the rows that ask for them. Two ways to live with that:

  ignore    a row is given once, when the watermark has reached its time. A version that comes
            after that is counted; it serves the rows that are still to come.
  correct   a row is given at once, and again when a version comes, or goes, that changes its
            answer; until the watermark is `keep_ms` beyond its time.

Versions that nobody can ask for any more are dropped: of those behind the watermark the last stays.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Literal

from millstream.base.changes import DELETE
from millstream.base.quantity import DAY_MS
from millstream.processing.operators.enrichment_state import How
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

LateVersions = Literal["ignore", "correct"]
LATE_VERSION_POLICIES = ("ignore", "correct")

# A key that the table does not know leaves one number: the time of its last row, by which a late
# first version is known as late. Rows of unknown keys must not fill the disk: a day, and it goes.
MARK_KEPT_MS = DAY_MS

# Since when it holds, and the table's row.
Version = tuple[int, Row]
# Its time, whether it was given yet, and with which row of the table.
Held = tuple[int, Row, bool, Row | None]


@dataclass(slots=True)
class AsOfState:
    """Versions by time, and the rows whose answer may still change.

    `settled_us` is the greatest time of a row whose answer is final.
    """

    versions: list[Version] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    settled_us: int | None = None

    def plain(self) -> Plain | None:
        if not self.versions and not self.held and self.settled_us is None:
            return None
        return (self.versions, self.held, self.settled_us)

    def answer(self, at_us: int) -> Row | None:
        place = bisect_right(self.versions, at_us, key=_valid_from)
        return self.versions[place - 1][1] if place else None

    def change(self, change: TableChange) -> None:
        if change.from_us is None:
            self.versions = []
            return
        place = bisect_left(self.versions, change.from_us, key=_valid_from)
        is_known = place < len(self.versions) and self.versions[place][0] == change.from_us
        version = [] if change.row is None else [(change.from_us, change.row)]
        self.versions[place : place + is_known] = version

    def hold(self, arrivals: list[Arrival]) -> None:
        timed = ((arrival.at_us, arrival.row) for arrival in arrivals)
        self.held += [(at_us, row, False, None) for at_us, row in timed if at_us is not None]

    def settle(self, until_us: int) -> list[Held]:
        """Take out the rows up to this time."""
        over = [held for held in self.held if held[0] <= until_us]
        if over:
            self.held = [held for held in self.held if held[0] > until_us]
            known_us = over[0][0] if self.settled_us is None else self.settled_us
            self.settled_us = max(known_us, *(at_us for at_us, *_ in over))
        return over

    def forget(self, before_us: int) -> None:
        """Drop what holds for no time after `before_us`; and, one day, the mark of a lost key."""
        place = bisect_right(self.versions, before_us, key=_valid_from)
        del self.versions[: max(place - 1, 0)]
        mark_us = self.mark_us()
        if mark_us is not None and mark_us + MARK_KEPT_MS * 1000 <= before_us:
            self.settled_us = None

    def mark_us(self) -> int | None:
        """The time of the last row, when that is all that there is of this key."""
        return None if self.versions or self.held else self.settled_us


def _valid_from(version: Version) -> int:
    return version[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    how: How
    late_versions: LateVersions
    keep_ms: int = 0

    @property
    def held_ms(self) -> int:
        """How long a row is held after the watermark has reached it: to be corrected, if it is."""
        return self.keep_ms if self.late_versions == "correct" else 0

    def recall(self, plain: Plain | None) -> AsOfState:
        if plain is None:
            return AsOfState()
        versions, held, settled_us = plain
        return AsOfState(list(versions), list(held), settled_us)

    def step(
        self,
        state: AsOfState,
        changes: list[TableChange],
        arrivals: list[Arrival],
        *,
        watermark_ms: int | None,
    ) -> Step:
        step = Step(late_versions=sum(_is_late(change, state) for change in changes))
        for change in by_order(changes):
            state.change(change)
        step.joined += self._timeless(arrivals)
        state.hold(arrivals)
        if self.late_versions == "correct":
            step.joined += self._revised(state)
        if watermark_ms is not None:
            step.joined += self._settled(state, (watermark_ms - self.held_ms) * 1000)
        return step

    def due_ms(self, state: AsOfState) -> int | None:
        if state.held:
            return ms_after(min(at_us for at_us, *_ in state.held)) + self.held_ms
        mark_us = state.mark_us()
        return None if mark_us is None else ms_after(mark_us) + MARK_KEPT_MS + self.held_ms

    def _timeless(self, arrivals: list[Arrival]) -> list[Joined]:
        """At no time no version holds."""
        rows = [arrival.row for arrival in arrivals if arrival.at_us is None]
        return [Joined(row, None) for row in rows] if self.how == "left" else []

    def _revised(self, state: AsOfState) -> list[Joined]:
        """Every row whose answer is new or another."""
        revised: list[Joined] = []
        for place, (at_us, row, is_given, known) in enumerate(state.held):
            answer = state.answer(at_us)
            if not is_given or answer != known:
                state.held[place] = (at_us, row, True, answer)
                revised += self._given(row, answer, is_first=not is_given)
        return revised

    def _settled(self, state: AsOfState, until_us: int) -> list[Joined]:
        """Rows up to this time get their last answer; "correct" has given it already."""
        over = state.settle(until_us)
        given: list[Joined] = []
        if self.late_versions == "ignore":
            for at_us, row, *_ in over:
                given += self._given(row, state.answer(at_us), is_first=True)
        state.forget(until_us)
        return given

    def _given(self, row: Row, table_row: Row | None, *, is_first: bool) -> list[Joined]:
        if table_row is not None or self.how == "left":
            return [Joined(row, table_row)]
        return [] if is_first else [Joined(row, None, DELETE)]


def _is_late(change: TableChange, state: AsOfState) -> bool:
    """Whether rows that have their final answer might have got another."""
    if state.settled_us is None:
        return False
    return change.from_us is None or change.from_us <= state.settled_us
