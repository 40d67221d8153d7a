"""Fixtures of the fault tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY_DISK = Path("/dev/shm")


@pytest.fixture
def lock_path() -> Iterator[Path]:
    """A data directory for a simulated disk. Only its lock file is real, and taken very often."""
    parent = MEMORY_DISK if MEMORY_DISK.is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent) as path:
        yield Path(path)
