"""Waiting for a condition, against a deadline; and for the absence of a change."""

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], *, what: str, within_s: float = 10.0) -> None:
    """Poll until the condition holds; fail with `what` was expected when the time is up."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.01)


def stays(condition: Callable[[], bool], *, what: str, for_s: float = 0.3) -> None:
    """The condition holds now and goes on holding for a while."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert condition(), f"it did not stay so: {what}"
        time.sleep(0.02)
