from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gated_disk import GatedDisk
from tests.support.served_node import Serve, ServedNode
from tests.support.simulated_disk import SimulatedDisk


@pytest.fixture
def disk(tmp_path: Path) -> SimulatedDisk:
    """The disk of the test's nodes; the directory itself is real, for the lock is taken there."""
    (tmp_path / "data").mkdir()
    return SimulatedDisk(tmp_path / "data")


@pytest.fixture
def serve(tmp_path: Path, disk: SimulatedDisk) -> Iterator[Serve]:
    """Makes nodes, one after another on the same disk; what is open at the end is closed."""
    opened: list[ServedNode] = []

    def open_one(**config: Any) -> ServedNode:
        opened.append(ServedNode(tmp_path / "data", **{"disk": disk} | config))
        return opened[-1]

    yield open_one
    for served in opened:
        served.close()


@pytest.fixture
def served(serve: Serve) -> ServedNode:
    return serve()


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[GatedDisk]:
    """A disk for `serve(disk=gate)` whose syncs a test can hold back."""
    disk = GatedDisk(tmp_path / "data")
    yield disk
    disk.open_gate()
