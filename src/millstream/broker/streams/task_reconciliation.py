"""One step of a member towards its target tasks, as Kafka's coordinator takes it.

The same three states as of consumer groups (`groups/reconciliation.py`). A member gives up first,
and gets an active task only when nobody else owns it. The threads of a process share a state
directory, so that a task may be in it once, whether active or standby.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from millstream.broker.groups.consumer_member import MemberState
from millstream.broker.streams.streams_member import StreamsProgress
from millstream.broker.streams.task import TaskId, Tasks

Owned = Tasks | None  # as the member reports it; None: it did not say


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTarget:
    """What a member shall have; the questions are about all other members."""

    epoch: int
    tasks: Tasks
    is_owned: Callable[[TaskId], bool]  # is it active anywhere else?
    is_in_process: Callable[[TaskId], bool]  # has another thread of its process the state?


def reconcile(progress: StreamsProgress, target: TaskTarget, owned: Owned) -> StreamsProgress:
    """The member's next progress; the same object if there is nothing to do yet."""
    if progress.state is MemberState.STABLE and progress.epoch == target.epoch:
        return progress
    if progress.state is MemberState.UNREVOKED_PARTITIONS and _holds(owned, _revoking(progress)):
        return progress
    return _advance(progress, target, owned)


def _advance(progress: StreamsProgress, target: TaskTarget, owned: Owned) -> StreamsProgress:
    wanted = target.tasks
    kept = {task: epoch for task, epoch in progress.active.items() if task in wanted.active}
    given_up = {task: epoch for task, epoch in progress.active.items() if task not in wanted.active}
    kept_standby = progress.standby & wanted.standby
    given_up_standby = progress.standby - wanted.standby
    if _holds(owned, Tasks(active=frozenset(given_up), standby=given_up_standby)):
        return replace(
            progress,
            state=MemberState.UNREVOKED_PARTITIONS,
            active=kept,
            standby=kept_standby,
            revoking_active=given_up,
            revoking_standby=given_up_standby,
        )
    missing, missing_standby = wanted.active - kept.keys(), wanted.standby - kept_standby
    free = {one for one in missing if not target.is_owned(one) and not target.is_in_process(one)}
    free_standby = {one for one in missing_standby if not target.is_in_process(one)}
    is_complete = free == missing and free_standby == missing_standby
    return replace(
        progress.moved_to(target.epoch),
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        active=kept | dict.fromkeys(sorted(free), target.epoch),
        standby=kept_standby | free_standby,
        revoking_active={},
        revoking_standby=frozenset(),
    )


def _revoking(progress: StreamsProgress) -> Tasks:
    return Tasks(active=frozenset(progress.revoking_active), standby=progress.revoking_standby)


def _holds(owned: Owned, tasks: Tasks) -> bool:
    """Has it any of these, for all we know?"""
    if owned is None:
        return bool(tasks.active or tasks.standby)
    return bool(owned.active & tasks.active or owned.standby & tasks.standby)
