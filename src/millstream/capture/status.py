"""How a capture is, for people and for commands: a few words and numbers. Pure.

Written to `_captures.<name>` every few seconds: an older one says that nobody runs the capture.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from millstream.base.quantity import MIB, SECOND_MS, format_duration_roughly
from millstream.capture.definition import CaptureDefinition
from millstream.capture.source import Lag

State = Literal["starting", "loading", "streaming", "paused", "waiting", "failed", "ended"]

STATUS_EVERY_MS = 3_000
# Two that failed to come, and some patience.
STALE_MS = 15_000
# The disk of the database is in danger before it is full.
RETAINED_WARN_FRACTION = 0.5

# Less is on its way: a look is a few seconds old, and a batch may be as large.
LOAD_WAITS_FROM_MS = 5 * SECOND_MS
LOAD_WAITS_FROM_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """`run` names one start of a capture, in `process` on `host`. `behind_ms`: how old the last
    change was when it was written; 0 when nothing is left to read. `waiting`: an error passes by
    itself; `failed`: somebody must do what `error` says."""

    state: State
    run: str
    host: str = ""
    process: int = 0
    at_ms: int = 0
    since_ms: int = 0
    position: str = ""
    commit: str = ""
    behind_ms: int | None = None
    lag_bytes: int | None = None
    retained_bytes: int | None = None
    retained_bytes_max: int | None = None
    changes: int = 0
    transactions: int = 0
    rows_loaded: int = 0
    changes_per_s: float = 0.0
    load: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    error: str = ""
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"load": [dict(one) for one in self.load]}

    @property
    def load_waits_for(self) -> str:
        """Why the load gets on slowly, or not at all; empty if it is not the stream.

        A chunk is written only when all changes before its snapshot are: a stream that is behind
        holds every load up.
        """
        behind_ms, lag_bytes = self.behind_ms or 0, self.lag_bytes or 0
        is_behind = behind_ms >= LOAD_WAITS_FROM_MS or lag_bytes >= LOAD_WAITS_FROM_BYTES
        if self.state != "loading" or not is_behind:
            return ""
        parts = [f"{format_duration_roughly(behind_ms)} behind"] if behind_ms else []
        parts += [f"{lag_bytes / MIB:,.0f} MiB to read"] if lag_bytes >= MIB else []
        return f"waits for the stream to catch up: {', '.join(parts)}"

    def is_stale(self, *, now_ms: int) -> bool:
        """Nobody runs this capture, or cannot write."""
        return now_ms - self.at_ms > STALE_MS


def status_from_json(found: Mapping[str, Any]) -> Status:
    """Fields that a newer version wrote are left out."""
    return Status(**{name: found[name] for name in Status.__slots__ if name in found})


def with_lag(status: Status, lag: Lag, definition: CaptureDefinition) -> Status:
    return replace(
        status,
        lag_bytes=lag.bytes,
        retained_bytes=lag.retained_bytes,
        retained_bytes_max=_least(definition.retained_bytes_max, lag.retained_bytes_max),
        warnings=retained_warnings(lag, definition),
    )


def retained_warnings(lag: Lag, definition: CaptureDefinition) -> list[str]:
    limit = _least(definition.retained_bytes_max, lag.retained_bytes_max)
    retained = lag.retained_bytes or 0
    if limit is None or retained < limit * RETAINED_WARN_FRACTION:
        return []
    return [
        f"the database keeps {retained:,} bytes of its log for the capture {definition.name}, of "
        f"{limit:,} that it may: find out why the capture is behind (`millstream capture show "
        f"{definition.name}`), or drop it"
    ]


def is_over_limit(lag: Lag, definition: CaptureDefinition) -> bool:
    limit = definition.retained_bytes_max
    return limit is not None and (lag.retained_bytes or 0) >= limit


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)


@dataclass(slots=True)
class Rate:
    """Changes per second, between one look and the next."""

    count: int = 0
    at_ms: int = 0

    def at(self, count: int, *, now_ms: int) -> float:
        elapsed_ms = now_ms - self.at_ms
        since = count - self.count if count >= self.count else count  # another run counts anew
        per_s = since * 1000 / elapsed_ms if self.at_ms and elapsed_ms > 0 else 0.0
        self.count, self.at_ms = count, now_ms
        return round(per_s, 1)
