"""Whether the disk of a data directory has room, and what to say of it in the diagnostics. Pure.

A disk counts as full while less than `FULL_BYTES` are free, or while writes find no space although
the file system shows some (a quota, a limit of a file's size). It is said at once, then once a
minute, and once when it is over. The owner counts refused writes and calls `look`; this module
reads no disk and no clock.
"""

from millstream.base.disk import FULL_BYTES
from millstream.base.quantity import format_duration_ms, format_whole_size

LINE_INTERVAL_MS = 60_000
# Clients try again within a second or two: after this long without a refusal there is room.
QUIET_MS = 5_000


class DiskSpace:
    """Owned by the broker's loop. `full_since_ms` is None while there is room."""

    def __init__(self, place: str) -> None:
        self._place = place
        self.refusals = 0  # since the start of the broker
        self.full_since_ms: int | None = None
        self._refusals_seen = self._refusals_before = 0
        self._refused_ms = self._said_ms = 0

    @property
    def is_full(self) -> bool:
        return self.full_since_ms is not None

    def note_refusal(self) -> None:
        """A write found no space."""
        self.refusals += 1

    def look(self, free_bytes: int, *, now_ms: int) -> str | None:
        """Judge the state; returns the line that the diagnostics should have now, if any."""
        if self.refusals > self._refusals_seen:
            self._refusals_seen, self._refused_ms = self.refusals, now_ms
            is_refusing = True
        else:
            is_refusing = self.is_full and 0 <= now_ms - self._refused_ms < QUIET_MS
        if free_bytes < FULL_BYTES or is_refusing:
            return self._full(free_bytes, now_ms)
        return self._over(free_bytes, now_ms) if self.is_full else None

    def _full(self, free_bytes: int, now_ms: int) -> str | None:
        if self.full_since_ms is None:
            self.full_since_ms = now_ms
        elif 0 <= now_ms - self._said_ms < LINE_INTERVAL_MS:
            return None
        self._said_ms = now_ms
        free = format_whole_size(free_bytes)
        return (
            f"{self._place}: the disk is full: {free} free, {self._refused()}"
            f"{self._for(now_ms)}. Producers wait, readers are served. Free some space: delete "
            "topics or records, or other files; writing continues by itself"
        )

    def _over(self, free_bytes: int, now_ms: int) -> str:
        line = (
            f"{self._place}: the disk has room again: {format_whole_size(free_bytes)} free, "
            f"{self._refused()}{self._for(now_ms)}"
        )
        self.full_since_ms, self._refusals_before = None, self.refusals
        return line

    def _refused(self) -> str:
        count = self.refusals - self._refusals_before
        return f"{count:,} {'write' if count == 1 else 'writes'} refused"

    def _for(self, now_ms: int) -> str:
        lasted_ms = max(0, now_ms - (self.full_since_ms or now_ms)) // 1_000 * 1_000
        return f" in {format_duration_ms(lasted_ms)}" if lasted_ms else ""
