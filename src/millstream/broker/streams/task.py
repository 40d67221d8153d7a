"""A task: one partition of one part of a topology, with the state that belongs to it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class TaskId(NamedTuple):
    subtopology: str
    partition: int


# Each active task with the epoch in which the member got it (KIP-1251).
HeldTasks = Mapping[TaskId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """`active` are processed; `standby` keep a copy of the state, ready to take over."""

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()


NO_TASKS = Tasks()


def numbers_by_subtopology(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """As messages have them: for each subtopology, the numbers of its tasks, all in order."""
    numbers: dict[str, list[int]] = {}
    for subtopology, partition in sorted(tasks):
        numbers.setdefault(subtopology, []).append(partition)
    return numbers
