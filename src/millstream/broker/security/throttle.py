"""When a client has done more than its quota allows, and how long it must then keep still.

As in Kafka (KIP-13, KIP-124, KIP-219): what was done is counted in 11 windows of a second, the
newest not yet full. Above the limit, the client is answered at once and told the delay; for that
long nothing more is read from its connection (it is muted), whether the client obeys or not. The
delay is what brings the average down to the limit. Time is a parameter; the shell mutes.
"""

from collections import deque
from dataclasses import dataclass

from millstream.base.quantity import INT32_MAX
from millstream.broker.security.quotas import REQUEST_PERCENTAGE, Quotas

WINDOW_MS = 1_000
WINDOWS = 11
# Of request time Kafka never asks for more than one window: its average moves fast enough.
REQUEST_THROTTLE_MS_MAX = WINDOW_MS
THROTTLE_MS_MAX = INT32_MAX  # the field of the answers
IDLE_MS = 60 * 60_000


class Rate:
    """How much there was per second, over the last windows."""

    def __init__(self) -> None:
        self._windows: deque[tuple[int, float]] = deque()  # (start, amount), the oldest first
        self.recorded_ms = 0

    def record(self, amount: float, *, now_ms: int) -> None:
        """A negative amount takes back what was recorded for nothing."""
        self.recorded_ms = now_ms
        if self._windows and now_ms - self._windows[-1][0] < WINDOW_MS:
            start_ms, before = self._windows.pop()
            self._windows.append((start_ms, before + amount))
        else:
            self._windows.append((now_ms, amount))

    def measure(self, *, now_ms: int) -> tuple[float, int]:
        """The amount per second, and over how many milliseconds: never under the full windows."""
        while self._windows and now_ms - self._windows[0][0] >= WINDOWS * WINDOW_MS:
            self._windows.popleft()
        oldest_ms = self._windows[0][0] if self._windows else now_ms
        elapsed_ms = now_ms - oldest_ms
        missing = max(WINDOWS - 1 - elapsed_ms // WINDOW_MS, 0)
        span_ms = elapsed_ms + missing * WINDOW_MS
        total = sum(amount for _, amount in self._windows)
        return total * 1_000 / span_ms, span_ms


def throttle_ms(rate: float, limit: float, span_ms: int) -> int:
    """How long to pause so that (what was done) / (span + pause) is the limit."""
    if rate <= limit:
        return 0
    return min(round((rate - limit) / limit * span_ms), THROTTLE_MS_MAX)


def bytes_without_throttle(limit: float) -> int:
    """The most that a rested client can fetch at once: more would only be thrown away."""
    return int(limit * (WINDOWS - 1) * WINDOW_MS / 1_000)


class Throttle:
    """The rates of all clients with a quota. Owned by the broker's loop."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._rates: dict[tuple[str, str | None, str | None], Rate] = {}

    def __len__(self) -> int:
        return len(self._rates)

    def charge(self, quota: str, *, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count what a client did; the milliseconds to mute it for, 0 without or within a quota.

        `amount` is bytes, or of `request_percentage` milliseconds of work.
        """
        applied = self._quotas.applied(quota, user, client_id)
        if applied is None:
            return 0
        done = self._rates.setdefault((quota, *applied.shared_by), Rate())
        is_time = quota == REQUEST_PERCENTAGE
        done.record(_percent(amount) if is_time else amount, now_ms=now_ms)
        rate, span_ms = done.measure(now_ms=now_ms)
        delay_ms = throttle_ms(rate, applied.limit, span_ms)
        return min(delay_ms, REQUEST_THROTTLE_MS_MAX) if is_time else delay_ms

    def take_back(
        self, quota: str, *, user: str, client_id: str, amount: float, now_ms: int
    ) -> None:
        """A throttled fetch is answered without records: they do not count."""
        applied = self._quotas.applied(quota, user, client_id)
        if applied is not None and (quota, *applied.shared_by) in self._rates:
            self._rates[quota, *applied.shared_by].record(-amount, now_ms=now_ms)

    def forget_idle(self, *, now_ms: int) -> None:
        """A chore: client ids are free text, so they must not stay for ever."""
        idle = [key for key, rate in self._rates.items() if now_ms - rate.recorded_ms >= IDLE_MS]
        for key in idle:
            del self._rates[key]


def _percent(work_ms: float) -> float:
    """A second of work in a second is 100 percent."""
    return work_ms / 1_000 * 100


@dataclass(slots=True)
class Mute:
    """Until when nothing is read from a connection."""

    until_ms: int = 0

    def extend(self, delay_ms: int, *, now_ms: int) -> None:
        """Delays of several quotas run at the same time: the longest counts."""
        self.until_ms = max(self.until_ms, now_ms + delay_ms)

    def remaining_ms(self, *, now_ms: int) -> int:
        return max(self.until_ms - now_ms, 0)
