"""Figures over time: a value every few seconds, of the last while. Pure.

A counter only grows; its rate is what is drawn. One that starts over, with another run of a job,
has a gap there.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from millstream.base.quantity import MINUTE_MS, SECOND_MS

Trend = Literal["growing", "steady", "shrinking"]

# Every two seconds: 15 minutes.
SAMPLES_MAX = 450
# A rate is of this long: of less it flickers, of more it lags.
RATE_MS = 8 * SECOND_MS
# Of a job, whose rows come batch by batch, every few seconds.
BATCHES_MS = 24 * SECOND_MS
# How a figure has gone of late: over this long, and by more than this part of it.
TREND_MS = MINUTE_MS
TREND_PART = 0.05
# What was none so recently is no backlog.
CURRENT_MS = 30 * SECOND_MS
# Two samples farther apart have nothing between them: nobody looked meanwhile.
GAP_MS = 30 * SECOND_MS


@dataclass(slots=True)
class Series:
    """`at` and `values` have the same length, the newest last."""

    at: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    values: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))

    def add(self, value: float, *, at_ms: int) -> None:
        """One that is older than the last is left out: a clock was put back."""
        if not self.at or at_ms > self.at[-1]:
            self.at.append(at_ms)
            self.values.append(value)

    def copy(self) -> "Series":
        return Series(at=self.at.copy(), values=self.values.copy())

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values else None

    def gauge(self) -> list[float | None]:
        """The values, with None where nobody looked."""
        found: list[float | None] = []
        times = list(self.at)
        for place, value in enumerate(list(self.values)):
            if place and times[place] - times[place - 1] > GAP_MS:
                found.append(None)
            found.append(value)
        return found

    def rates(self) -> list[float | None]:
        """Of a counter: how much it grew in each second, from sample to sample."""
        samples = list(zip(self.at, self.values, strict=True))
        return [_rate(one, next_one) for one, next_one in pairwise(samples)]

    def trend(self) -> Trend | None:
        """Of a gauge, over the last minute; None before it was looked at for long enough."""
        if not self.at or self.at[-1] - self.at[0] < CURRENT_MS:
            return None
        recent = self._within(TREND_MS)
        first, last = recent[0], recent[-1]
        if abs(last - first) <= TREND_PART * max(first, last):
            return "steady"
        return "growing" if last > first else "shrinking"

    def was_none(self) -> bool:
        """Of a gauge: whether it was 0 a moment ago."""
        return 0 in self._within(CURRENT_MS)

    def _within(self, within_ms: int) -> list[float]:
        if not self.at:
            return []
        pairs = zip(list(self.at), list(self.values), strict=True)
        return [value for at, value in pairs if at >= self.at[-1] - within_ms]

    def rate(self, within_ms: int = RATE_MS) -> float | None:
        """Of a counter, now; None before two samples."""
        samples = list(zip(self.at, self.values, strict=True))
        if len(samples) < 2:
            return None
        recent = [one for one in samples if one[0] >= samples[-1][0] - within_ms]
        first = recent[0] if len(recent) > 1 else samples[-2]
        return _rate(first, samples[-1])


def _rate(one: tuple[int, float], other: tuple[int, float]) -> float | None:
    elapsed_ms = other[0] - one[0]
    if not 0 < elapsed_ms <= GAP_MS or other[1] < one[1]:
        return None
    return (other[1] - one[1]) * SECOND_MS / elapsed_ms


def summed(rates: Sequence[float | None]) -> float | None:
    """None only if none is known."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
