"""Time is a parameter everywhere below `running.py`; this is what it is filled with there."""

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]


def system_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
