"""What clients do wrong from outside, in the diagnostics: at once, then once a minute with a count.

A client that is turned away tries again, often twenty times a second, and for ever; a hostile one
finds a new reason each time. Writes nothing itself.
"""

from millstream.base.clock import Clock

LINE_INTERVAL_MS = 60_000
# More kinds of trouble than a client has that only means well.
LINES_OF_ADDRESS_MAX = 10
# Strangers must not fill the memory.
REMEMBERED_MAX = 1_000


class Complaints:
    """By address and reason. Owned by the broker's loop."""

    def __init__(self, *, now_ms: Clock) -> None:
        self._now_ms = now_ms
        self._said: dict[tuple[str, str], tuple[int, int]] = {}  # when, and how many times since
        self._lines: dict[str, tuple[int, int]] = {}  # by address: since when, and how many

    def about(self, address: str, reason: str) -> str | None:
        """The reason as a line should have it, or None if it was written a moment ago."""
        now_ms, key = self._now_ms(), (address, reason)
        said_ms, unsaid = self._said.pop(key, (None, 0))
        if said_ms is not None and now_ms - said_ms < LINE_INTERVAL_MS:
            self._said[key] = (said_ms, unsaid + 1)
            return None
        lines = self._count_line(address, now_ms)
        if lines > LINES_OF_ADDRESS_MAX:
            return None
        self._said[key] = (now_ms, 0)
        if len(self._said) > REMEMBERED_MAX:
            del self._said[next(iter(self._said))]
        line = f"{reason} ({unsaid} more times from {address})" if unsaid else reason
        is_last = lines == LINES_OF_ADDRESS_MAX
        return f"{line}; no more lines about {address} for a minute" if is_last else line

    def _count_line(self, address: str, now_ms: int) -> int:
        """How many lines about the address there are in this minute, with this one."""
        since_ms, lines = self._lines.pop(address, (now_ms, 0))
        if now_ms - since_ms >= LINE_INTERVAL_MS:
            since_ms, lines = now_ms, 0
        self._lines[address] = (since_ms, lines + 1)
        if len(self._lines) > REMEMBERED_MAX:
            del self._lines[next(iter(self._lines))]
        return lines + 1
