"""A simulated disk whose syncs wait at a gate, so that a test can act while one is under way."""

import threading
from pathlib import Path

from tests.support.simulated_disk import SimulatedDisk

WITHIN_S = 20.0


class GatedDisk(SimulatedDisk):
    """Open until `shut`; then syncs of `.log` files in other threads wait until `open_gate`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._gate = threading.Event()
        self._gate.set()
        self._waiting = threading.Semaphore(0)
        self._loop_thread = threading.current_thread()

    def shut(self) -> None:
        self._gate.clear()

    def open_gate(self) -> None:
        self._gate.set()

    def until_a_sync_waits(self) -> None:
        assert self._waiting.acquire(timeout=WITHIN_S), "no sync came"

    def step(self, path: Path, *, needs_space: bool = False, is_sync: bool = False) -> None:
        is_ours = threading.current_thread() is self._loop_thread
        if is_sync and path.suffix == ".log" and not is_ours and not self._gate.is_set():
            self._waiting.release()
            assert self._gate.wait(WITHIN_S), "nobody opened the gate"
        super().step(path, needs_space=needs_space, is_sync=is_sync)
