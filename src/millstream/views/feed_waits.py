"""How long a subscriber waits: until it gives up, and until it wants a sign of life."""

import time


class Waits:
    """In seconds; None is for ever."""

    def __init__(self, *, timeout: float | None = None, heartbeat: float | None = None) -> None:
        self._timeout, self._heartbeat = timeout, heartbeat
        self.restart()

    def restart(self) -> None:
        """Something came."""
        self._quiet_since = self._beat_since = time.monotonic()

    def restart_heartbeat(self) -> None:
        self._beat_since = time.monotonic()

    def left_s(self) -> float | None:
        """Until the first of both."""
        now, ends = time.monotonic(), []
        if self._timeout is not None:
            ends.append(self._quiet_since + self._timeout)
        if self._heartbeat is not None:
            ends.append(self._beat_since + self._heartbeat)
        return max(0.0, min(ends) - now) if ends else None

    def is_over(self) -> bool:
        return self._timeout is not None and time.monotonic() >= self._quiet_since + self._timeout
