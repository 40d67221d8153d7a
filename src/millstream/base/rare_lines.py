"""One line a minute of each warning that clients can cause as often as they want."""

import logging
from collections.abc import Callable

RARE_SECONDS = 60.0


class RareLines(logging.Filter):
    """Of one logger. `seconds` is a monotonic clock. A line says how many were left out before it.

    Warnings are told apart by their format, which is the code's and never a client's text.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        super().__init__()
        self._seconds = seconds
        self._said_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        kind, now = str(record.msg), self._seconds()
        if now - self._said_at.get(kind, -RARE_SECONDS) < RARE_SECONDS:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return False
        self._said_at[kind] = now
        if left_out := self._left_out.pop(kind, 0):
            record.msg = f"{kind} ({left_out} more like this since the last such line)"
        return True
