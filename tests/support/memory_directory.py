"""A directory in memory, where a sync costs nothing: for what syncs much and tests no power cut."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def memory_directory() -> Iterator[Path]:
    """On disk where the system has none in memory."""
    usable = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
    # A library's thread may still put a file there while it is removed.
    with tempfile.TemporaryDirectory(
        dir=SHARED_MEMORY if usable else None, ignore_cleanup_errors=True
    ) as path:
        yield Path(path)
