"""What was measured of both sides, with the goals, as a table. Pure: no clock, no database.

A ratio is taken in each round, ours / Debezium's, and the median of the rounds is told: what the
machine did in one round it did to both.
"""

from dataclasses import dataclass
from statistics import median

from bench.capture_sides import Side

HEAD = (
    "measured | unit | ours | Debezium | ours / Debezium | goal | ",
    "---|---|---|---|---|---|---",
)


@dataclass(frozen=True, slots=True)
class Measure:
    """One line. A goal is a bound of the ratio, or of our own figure."""

    name: str
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    ours_below: float | None = None

    @property
    def goal(self) -> str:
        if self.at_least is not None:
            return f"ratio ≥ {self.at_least:g}"
        if self.at_most is not None:
            return f"ratio ≤ {self.at_most:g}"
        return "" if self.ours_below is None else f"ours < {self.ours_below:g} {self.unit}"

    def is_met(self, ours: float, ratio: float) -> bool | None:
        if self.at_least is not None:
            return ratio >= self.at_least
        if self.at_most is not None:
            return ratio <= self.at_most
        return None if self.ours_below is None else ours < self.ours_below


class CaptureResults:
    """Samples in the order of rounds; lines in the order in which they first appeared."""

    def __init__(self) -> None:
        self._samples: dict[Measure, dict[Side, list[float]]] = {}

    def add(self, measure: Measure, *, side: Side, value: float) -> None:
        self._samples.setdefault(measure, {"ours": [], "debezium": []})[side].append(value)

    @property
    def rows(self) -> list[list[str]]:
        return [
            row_of(measure, sides["ours"], sides["debezium"])
            for measure, sides in self._samples.items()
            if sides["ours"] and sides["debezium"]
        ]


def row_of(measure: Measure, ours: list[float], debezium: list[float]) -> list[str]:
    ratio = median(one / other for one, other in zip(ours, debezium, strict=False))
    verdict = measure.is_met(median(ours), ratio)
    return [
        measure.name,
        measure.unit,
        figures(ours),
        figures(debezium),
        f"{ratio:.2f}",
        measure.goal,
        "" if verdict is None else "met" if verdict else "not met",
    ]


def figures(samples: list[float]) -> str:
    """The median, with the lowest and the highest."""
    if len(samples) == 1:
        return number(samples[0])
    return f"{number(median(samples))} [{number(min(samples))} - {number(max(samples))}]"


def number(value: float) -> str:
    """Three digits that mean something: 0.123, 12.3, 12,345."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(results: CaptureResults) -> str:
    return "\n".join([*HEAD, *(" | ".join(row) for row in results.rows)])
