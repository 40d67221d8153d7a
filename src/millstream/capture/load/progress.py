"""How far the loads of a capture are, how fast, and when they will be done. Pure.

A table's number of rows is the database's estimate until it is loaded. Rates are of this run.
"""

from dataclasses import dataclass

from millstream.base.quantity import SECOND_MS, format_duration_roughly
from millstream.capture.load.plan import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    table: str
    phase: Phase
    rows: int
    rows_estimate: int

    @property
    def rows_expected(self) -> int:
        """An estimate that was passed is wrong: then what is there so far is all we know."""
        return self.rows if self.phase is Phase.DONE else max(self.rows, self.rows_estimate)

    @property
    def fraction(self) -> float:
        """Done is done: until then it is less than 1, whatever the estimate was."""
        if self.phase is Phase.DONE:
            return 1.0
        return min(0.99, self.rows / self.rows_expected) if self.rows_expected else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """`rows_here` rows were loaded by this run, in `seconds`."""

    tables: tuple[TableProgress, ...]
    rows_here: int
    seconds: float

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.tables)

    @property
    def rows_expected(self) -> int:
        return sum(one.rows_expected for one in self.tables)

    @property
    def is_done(self) -> bool:
        return all(one.phase is Phase.DONE for one in self.tables)

    @property
    def rows_per_second(self) -> float:
        return self.rows_here / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """None: nobody knows yet."""
        if self.is_done:
            return 0.0
        if not self.rows_per_second:
            return None
        return (self.rows_expected - self.rows) / self.rows_per_second


def progress_line(progress: LoadProgress) -> str:
    """`12,000 of about 48,000 rows (25 %), 3,000 rows/s, 12s left`"""
    if progress.is_done:
        return f"{progress.rows:,} rows, all loaded"
    parts = [_share(progress)]
    if progress.rows_per_second:
        parts.append(f"{progress.rows_per_second:,.0f} rows/s")
    if progress.seconds_left:
        parts.append(f"{_duration(progress.seconds_left)} left")
    return ", ".join(parts)


def _share(progress: LoadProgress) -> str:
    expected = progress.rows_expected
    if not expected:
        return "no rows yet"
    share = min(0.99, progress.rows / expected)
    return f"{progress.rows:,} of about {expected:,} rows ({share:.0%})"


def _duration(seconds: float) -> str:
    return format_duration_roughly(max(1, round(seconds)) * SECOND_MS)
