"""How often a value fell between which bounds. Pure; as cheap as two additions and a search."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

# From less than a sync takes to as long as clients wait.
SECONDS_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
# 256 bytes, a small record in its batch, to 64 MiB, each four times the one before it.
BYTES_BOUNDS = tuple(1 << power for power in range(8, 28, 2))


class Histogram:
    """Counts of values up to each bound, and of those past the last; and their sum."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Each bound with how many values were not above it; at last infinity, with all."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self._counts, strict=True):
            total += count
            yield bound, total
