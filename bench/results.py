"""What was measured: metrics with their goals, and the samples of both sides.

Pure values: no broker, no clock.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from bench.brokers import Mode, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What must hold of our median and Kafka's."""

    text: str
    is_met: Callable[[float, float], bool]


def ratio_at_least(bound: float) -> Goal:
    return Goal(text=f"ratio ≥ {bound:g}", is_met=lambda ours, kafka: ours >= bound * kafka)


def ratio_at_most(bound: float) -> Goal:
    return Goal(text=f"ratio ≤ {bound:g}", is_met=lambda ours, kafka: ours <= bound * kafka)


def ours_below(bound: float, unit: str) -> Goal:
    return Goal(text=f"ours < {bound:g} {unit}", is_met=lambda ours, _: ours < bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One line of the report. `mode` is None where syncing makes no difference."""

    name: str
    unit: str
    mode: Mode | None = None
    goal: Goal | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Both sides' samples of one metric, summed up."""

    metric: Metric
    ours: list[float]
    kafka: list[float]

    @property
    def ratio(self) -> float:
        return median(self.ours) / median(self.kafka)

    @property
    def is_met(self) -> bool | None:
        goal = self.metric.goal
        return None if goal is None else goal.is_met(median(self.ours), median(self.kafka))


class Results:
    """All samples so far, in the order in which their metrics first appeared."""

    def __init__(self) -> None:
        self._samples: dict[Metric, dict[Side, list[float]]] = {}

    def add(self, metric: Metric, side: Side, value: float) -> None:
        self._samples.setdefault(metric, {"ours": [], "kafka": []})[side].append(value)

    @property
    def lines(self) -> list[Line]:
        return [
            Line(metric=metric, ours=sides["ours"], kafka=sides["kafka"])
            for metric, sides in self._samples.items()
            if sides["ours"] and sides["kafka"]
        ]
