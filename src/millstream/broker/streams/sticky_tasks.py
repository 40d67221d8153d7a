"""The assignor: every thread has as many tasks as the next, and tasks stay where their state is.

Tasks with state are shared out first, so that they are level by themselves; then those without.
Each goes, while there is room, to the member that had it, to another thread of its process (the
state is in the process's directory), to a member that had it as a standby, and else to whoever
has least. Standbys follow: each in a process that has nothing else of the task.
"""

import heapq
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.broker.streams.task import NO_TASKS, TaskId, Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAssignee:
    """A member: a thread of a process. `had` is its target so far."""

    member_id: str
    process_id: str
    had: Tasks = NO_TASKS


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksToAssign:
    stateful: Sequence[TaskId] = ()
    stateless: Sequence[TaskId] = ()
    standbys: int = 0  # of each task with state

    @property
    def count(self) -> int:
        return len(self.stateful) * (1 + self.standbys) + len(self.stateless)


def assign_tasks(assignees: Iterable[TaskAssignee], tasks: TasksToAssign) -> Mapping[str, Tasks]:
    """By member id, what each shall have."""
    draft = _Draft(assignees)
    if not draft.members:
        return {}
    draft.place_active(tasks.stateful, total=len(tasks.stateful))
    draft.place_active(tasks.stateless, total=len(tasks.stateful) + len(tasks.stateless))
    share = -(-tasks.count // len(draft.members))
    for _ in range(tasks.standbys):
        draft.place_standbys(tasks.stateful, share)
    return draft.result()


_Entry = tuple[tuple[int, float], int]  # a member's load, and its place in the order of names


class _Draft:
    """Who has what, while it is being shared out. Of two equals the first by name is served."""

    def __init__(self, assignees: Iterable[TaskAssignee]) -> None:
        self.members = sorted(assignees, key=lambda one: one.member_id)
        self._active: dict[str, set[TaskId]] = {one.member_id: set() for one in self.members}
        self._standby: dict[str, set[TaskId]] = {one.member_id: set() for one in self.members}
        self._threads: dict[str, list[TaskAssignee]] = {}
        self._sizes = {one.member_id: 0 for one in self.members}
        self._sizes_of_processes = {one.process_id: 0 for one in self.members}
        self._had_active: dict[TaskId, TaskAssignee] = {}
        self._had_standby: dict[TaskId, list[TaskAssignee]] = {}
        self._places: dict[TaskId, set[str]] = {}  # the processes that have it in any role
        for one in self.members:
            self._threads.setdefault(one.process_id, []).append(one)
            for task in one.had.active:
                self._had_active[task] = one
            for task in one.had.standby:
                self._had_standby.setdefault(task, []).append(one)

    def result(self) -> Mapping[str, Tasks]:
        return {
            name: Tasks(active=frozenset(active), standby=frozenset(self._standby[name]))
            for name, active in self._active.items()
        }

    # Active tasks.

    def place_active(self, tasks: Sequence[TaskId], *, total: int) -> None:
        """`total` tasks are shared out when these are, too: nobody gets two more than another."""
        quota = _Quota(self._active, total)
        rest = [task for task in tasks if not self._keep(task, quota)]
        rest = [task for task in rest if not self._give_to_state(task, quota)]
        least = _LeastLoaded(self.members, self._load)  # who has room: nobody has fewer
        for task in rest:
            self._give(task, least.take(), quota)

    def _keep(self, task: TaskId, quota: "_Quota") -> bool:
        owner = self._had_active.get(task)
        if owner is None or not quota.has_room(owner):
            return False
        self._give(task, owner, quota)
        return True

    def _give_to_state(self, task: TaskId, quota: "_Quota") -> bool:
        """To where its state is: the process that had it, else one with a standby."""
        owner = self._had_active.get(task)
        siblings = self._threads[owner.process_id] if owner is not None else []
        for group in (siblings, self._had_standby.get(task, [])):
            roomy = [one for one in group if quota.has_room(one)]
            if roomy:
                self._give(task, min(roomy, key=self._load), quota)
                return True
        return False

    def _give(self, task: TaskId, member: TaskAssignee, quota: "_Quota") -> None:
        quota.count(member)
        self._put(task, member, self._active)

    def _put(self, task: TaskId, member: TaskAssignee, tasks: dict[str, set[TaskId]]) -> None:
        tasks[member.member_id].add(task)
        self._places.setdefault(task, set()).add(member.process_id)
        self._sizes[member.member_id] += 1
        self._sizes_of_processes[member.process_id] += 1

    # Standbys.

    def place_standbys(self, tasks: Sequence[TaskId], share: int) -> None:
        """One more of each; none where every process has something of the task already."""
        least = _LeastLoaded(self.members, self._load)
        for task in tasks:
            taken = self._places[task]
            if len(taken) == len(self._threads):
                continue
            had = (*self._had_standby.get(task, ()), *filter(None, [self._had_active.get(task)]))
            keeps = [one for one in had if one.process_id not in taken and self._size(one) < share]
            chosen = min(keeps, key=self._load) if keeps else least.take(without=taken)
            self._put(task, chosen, self._standby)

    # Loads.

    def _size(self, member: TaskAssignee) -> int:
        return self._sizes[member.member_id]

    def _load(self, member: TaskAssignee) -> tuple[int, float]:
        """First of the thread itself, then of its process."""
        of_process = self._sizes_of_processes[member.process_id]
        return self._size(member), of_process / len(self._threads[member.process_id])


class _LeastLoaded:
    """Members by their load, which only rises: an entry that is out of date is put back.

    By process first: the hundred threads of one that may not have a task are left out in one step.
    """

    def __init__(
        self,
        members: Sequence[TaskAssignee],
        load_of: Callable[[TaskAssignee], tuple[int, float]],
    ) -> None:
        self._members, self._load_of = members, load_of
        self._threads: dict[str, list[_Entry]] = {}
        for rank, one in enumerate(members):
            self._threads.setdefault(one.process_id, []).append((load_of(one), rank))
        for threads in self._threads.values():
            heapq.heapify(threads)
        self._processes = [(self._first_of(name), name) for name in self._threads]
        heapq.heapify(self._processes)

    def take(self, without: Container[str] = ()) -> TaskAssignee:
        """The first of a process that is not among those; there is one. It stays in."""
        passed: list[tuple[_Entry, str]] = []
        while True:
            first, process = self._processes[0]
            now = self._first_of(process)
            if now != first:
                heapq.heapreplace(self._processes, (now, process))
            elif process in without:
                passed.append(heapq.heappop(self._processes))
            else:
                for one in passed:
                    heapq.heappush(self._processes, one)
                return self._members[first[1]]

    def _first_of(self, process: str) -> "_Entry":
        threads = self._threads[process]
        while True:
            load, rank = threads[0]
            now = self._load_of(self._members[rank])
            if now == load:
                return load, rank
            heapq.heapreplace(threads, (now, rank))


class _Quota:
    """How many active tasks a member may have: all equally many, some of them one more."""

    def __init__(self, active: Mapping[str, set[TaskId]], total: int) -> None:
        self._active = active
        self._floor, extra = divmod(total, len(active))
        self._extra = extra - sum(len(tasks) > self._floor for tasks in active.values())

    def has_room(self, member: TaskAssignee) -> bool:
        count = len(self._active[member.member_id])
        return count < self._floor or (count == self._floor and self._extra > 0)

    def count(self, member: TaskAssignee) -> None:
        """The member is about to get one."""
        if len(self._active[member.member_id]) == self._floor:
            self._extra -= 1
