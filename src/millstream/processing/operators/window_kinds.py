"""The kinds of windows, and where they lie in time. Pure; times are microseconds since 1970.

A window is [start, end): tumbling and hopping ones stand at fixed places. A session lasts until
nothing came for `gap`; two events exactly `gap` apart are in one, as in Spark. A sliding window
ends with an event and includes it: (at - size, at].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from millstream.base.declared import BadDeclaration, duration_ms

# Each event costs as much as all its windows.
WINDOWS_MAX = 1_000
MS_US = 1000
# An event costs as much as all its windows.
WINDOWS_MAX = 10_000
CALENDAR_UNITS = ("month", "quarter", "year")


class BadWindow(BadDeclaration):
    """A window, or an aggregate over one, that cannot be as it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hopping:
    """A window of `size_us` every `every_us`, one of them from `start_us` on.

    With `every_us` equal to `size_us` it is a tumbling one: each event is in one window.
    """

    size_us: int
    every_us: int
    start_us: int = 0

    def __post_init__(self) -> None:
        require_positive("size", self.size_us)
        require_positive("every", self.every_us)
        if self.every_us > self.size_us:
            raise BadWindow(
                f"every ({self.every_us // MS_US} ms) is longer than size "
                f"({self.size_us // MS_US} ms): events between two windows would be in none"
            )
        if self.size_us // self.every_us > WINDOWS_MAX:
            raise BadWindow(
                f"an event would be in {self.size_us // self.every_us:,} windows, of "
                f"{self.size_us // MS_US} ms every {self.every_us // MS_US} ms; at most "
                f"{WINDOWS_MAX:,}. windows.sliding has one for each event"
            )

    def starts_of(self, at: int) -> Iterator[int]:
        """The starts of all windows that `at` is in, latest first."""
        latest = at - (at - self.start_us) % self.every_us
        yield from range(latest, at - self.size_us, -self.every_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    gap_us: int

    def __post_init__(self) -> None:
        require_positive("gap", self.gap_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding:
    size_us: int

    def __post_init__(self) -> None:
        require_positive("size", self.size_us)


WindowKind: TypeAlias = Hopping | Session | Sliding


def require_positive(what: str, duration_us: int) -> None:
    if duration_us <= 0:
        raise BadWindow(f"{what}={duration_us // MS_US} ms: a window needs some time")


def window_us(given: str | int | float, *, what: str) -> int:
    """The length of a window; not one of the calendar, whose months differ."""
    if isinstance(given, str) and any(unit in given.lower() for unit in CALENDAR_UNITS):
        raise BadWindow(
            f"{what}={given!r}: months and years differ in length. Give weeks, days or less, or "
            'group by F.date_trunc("month", ...)'
        )
    return duration_ms(given, what=what) * MS_US
