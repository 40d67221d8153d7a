"""A simulated disk that keeps what a power cut at any moment would leave; brokers start on it."""

from collections.abc import Iterator
from pathlib import Path

from tests.support.served_node import ServedNode
from tests.support.simulated_disk import SimulatedDisk, Survival

# What is left, with the moment of the cut in words.
Leftovers = list[tuple[str, SimulatedDisk]]


class RecordingDisk(SimulatedDisk):
    """Keeps what a power cut before each step would leave, once `start` was called."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.leftovers: Leftovers = []
        self._is_recording = False

    def start(self) -> None:
        self._is_recording = True

    def stop(self) -> Leftovers:
        self._keep("at the end")
        self._is_recording = False
        return self.leftovers

    def step(self, path: Path, *, needs_space: bool = False, is_sync: bool = False) -> None:
        if self._is_recording:
            self._keep(f"before step {self.steps}, {'sync of ' if is_sync else ''}{path.name}")
        super().step(path, needs_space=needs_space, is_sync=is_sync)

    def _keep(self, moment: str) -> None:
        for survival in Survival:
            left = self.after_power_cut(survival, seed=self.steps)
            self.leftovers.append((f"{moment}: {survival.value}", left))


def restarted(path: Path, leftovers: Leftovers) -> Iterator[tuple[str, ServedNode]]:
    for moment, disk in leftovers:
        served = ServedNode(path, disk=disk)
        yield moment, served
        served.close()
