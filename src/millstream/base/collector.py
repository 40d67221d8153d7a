"""Python's collector of cycles, out of the way where many objects are made that have none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """It looks for cycles at every 700th new object. Messages are many, and have none: with it, to
    make them takes twice the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
