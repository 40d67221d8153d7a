"""How much of a view's past is kept, and which moment of it a reader asks for. Pure.

A view's version rises by one with each batch that changed something. Without a declared history
its last changes are kept for a while, for feeds to go on from; with one, every moment of the span
can be read.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.base.errors import Rejected
from millstream.base.quantity import DAY_MS, MINUTE_MS, format_duration_ms

# What a feed can go on from that was away: a deploy, a laptop's lid. Rows of ten minutes cost
# little beside the view itself.
FEED_KEPT_MS = 10 * MINUTE_MS
# One batch with more changes, or as many batches, is a load: to read the view anew is cheaper.
FEED_CHANGES_MAX = 1_000_000
HISTORY_MS_MAX = 100 * 366 * DAY_MS


class NoHistory(Rejected):
    def __init__(self, *, view: str) -> None:
        super().__init__(
            f"view {view} is declared without history: its past cannot be read. Declare it with "
            f'@app.view(..., history="7 days"), from when on it is kept'
        )
        self.view = view


class OutsideHistory(Rejected):
    def __init__(self, *, view: str, asked: str, span: "Span") -> None:
        super().__init__(f"view {view} as of {asked}: kept is {span}")
        self.view, self.asked, self.span = view, asked, span


class BadHistory(Rejected):
    """A span of history, or a moment, that means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What the view was from `at_ms` on, until the next; `seq_end` is its last change."""

    number: int
    at_ms: int
    seq_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The versions that can be read, both included."""

    first: Version
    last: Version

    def __str__(self) -> str:
        first, last = self.first, self.last
        return (
            f"version {first.number} ({time_of(first.at_ms)}) to {last.number} "
            f"({time_of(last.at_ms)}, the current one)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What a job keeps of its view's past; `history_ms` is None where none is declared."""

    history_ms: int | None = None

    def __post_init__(self) -> None:
        if self.history_ms is not None and not 0 < self.history_ms <= HISTORY_MS_MAX:
            most = format_duration_ms(HISTORY_MS_MAX)
            raise BadHistory(f"a history of {self.history_ms} ms: more than nothing, up to {most}")

    def horizon_ms(self, now_ms: int) -> int:
        """What was replaced before is no longer needed."""
        return now_ms - (FEED_KEPT_MS if self.history_ms is None else self.history_ms)

    def must_keep(self, *, changes: int, is_served: bool) -> bool:
        """A feed follows what is served, and no load; a history has everything."""
        if self.history_ms is not None:
            return True
        return is_served and changes <= FEED_CHANGES_MAX


def time_of(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def time_ms_of(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise BadHistory(f"{moment} has no time zone: give it one, such as datetime.UTC")
    return int(moment.timestamp() * 1000)
