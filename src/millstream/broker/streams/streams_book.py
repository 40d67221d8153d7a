"""What a streams group knows: its members, its topology, who owns which task, and who shall.

    epoch          rises with each change of members, topics or standbys
    target epoch   the epoch that the target assignment was made for
    member epoch   the target that a member has reached (task_reconciliation.py)

Keeps the book, and notes which facts a call has changed. What members say, and what they are
told, is in `streams_group.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from millstream.base.errors import Corrupt
from millstream.broker.groups.group_offsets import TopicPartition
from millstream.broker.groups.group_state import GroupState
from millstream.broker.groups.topic_catalog import TopicCatalog
from millstream.broker.streams.internal_topics import ResolvedTopology, resolve
from millstream.broker.streams.sticky_tasks import TaskAssignee, TasksToAssign, assign_tasks
from millstream.broker.streams.streams_facts import (
    GROUP_KEY,
    MEMBER_KINDS,
    TARGET_KEY,
    TOPOLOGY_KEY,
    StreamsFact,
    StreamsFactKey,
    StreamsFactKind,
    StreamsFacts,
    StreamsGroupFact,
    StreamsTargetFact,
)
from millstream.broker.streams.streams_member import (
    StreamsMember,
    StreamsProfile,
    StreamsProgress,
)
from millstream.broker.streams.task import NO_TASKS, TaskId, Tasks
from millstream.broker.streams.task_reconciliation import Owned, TaskTarget, reconcile
from millstream.broker.streams.topology import Topology

FIRST_EPOCH = 1  # a member that hears 0 would join again
NOT_VALIDATED = -1


class StreamsBook:
    """An active task has one owner at most: who has it, or is still to revoke it."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self.catalog = catalog
        self.epoch = FIRST_EPOCH
        self.target_epoch = FIRST_EPOCH
        self.assigned_ms = 0
        self.metadata_hash = 0
        self.standbys: int | None = None
        self.topology: Topology | None = None
        self.resolved = ResolvedTopology()
        self._members: dict[str, StreamsMember] = {}
        self._targets: dict[str, Tasks] = {}
        self._owners: dict[TaskId, str] = {}
        self._standby_owners: dict[TaskId, set[str]] = {}
        self._changed: dict[StreamsFactKey, None] = {}  # a set that keeps its order

    # Questions.

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[StreamsMember]:
        """A copy: members may be removed on the way."""
        return iter(list(self._members.values()))

    def find(self, member_id: str) -> StreamsMember | None:
        return self._members.get(member_id)

    @property
    def phase(self) -> GroupState:
        if not self._members:
            return GroupState.EMPTY
        if not self.resolved.is_ready:
            return GroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.progress.is_settled(self.target_epoch) for member in self):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """What members read; nobody does without members."""
        if self.topology is None or not self._members:
            return frozenset()
        return self.topology.read_topics

    def target_tasks(self, member_id: str) -> Tasks:
        return self._targets.get(member_id, NO_TASKS)

    def owns_since(self, member_id: str, where: TopicPartition, epoch: int) -> bool:
        """Whether a task of this member, got in `epoch` or before, reads the partition."""
        member = self._members[member_id]
        readers = () if self.topology is None else self.topology.readers.get(where.topic, ())
        granted = (member.progress.granted_epoch(TaskId(one, where.partition)) for one in readers)
        return any(since is not None and since <= epoch for since in granted)

    # Changes of members.

    def advance(self, member: StreamsMember, owned: Owned) -> StreamsMember:
        """The next step of a member of the group."""
        target = TaskTarget(
            epoch=self.target_epoch,
            tasks=self.target_tasks(member.member_id),
            is_owned=partial(self._is_owned, member),
            is_in_process=partial(self._is_in_process, member),
        )
        updated = replace(member, progress=reconcile(member.progress, target, owned))
        self._put(updated)
        return updated

    def put(self, member: StreamsMember) -> None:
        """A member, old or new, says this of itself."""
        if self._members.get(member.member_id) != member:
            self._put(member)
            self.bump()

    def remove(self, *members: StreamsMember) -> None:
        for member in members:
            self._release(member)
            del self._members[member.member_id]
            self._targets.pop(member.member_id, None)
            for kind in MEMBER_KINDS:
                self._note(StreamsFactKey(kind, member.member_id))
        if members:
            self.bump()

    # Changes around them.

    def start_topology(self, topology: Topology) -> None:
        """The first member says what the application is."""
        self.topology = topology
        self._note(TOPOLOGY_KEY)
        self._resolve()
        self.bump()

    def follow_topic(self, name: str) -> None:
        """The topic came, went or grew: if that concerns the group, its epoch rises."""
        if self.topology is None or name not in self.topology.topics:
            return
        self._resolve()
        if self._members and self._hash() != self.metadata_hash:
            self.bump()

    def follow_standbys(self, standbys: int) -> None:
        if self.standbys != standbys:
            self.standbys = standbys
            self.bump()

    def bump(self) -> None:
        """Once for each call is enough: nobody has heard of an epoch before its target is made."""
        if GROUP_KEY not in self._changed:
            self.epoch += 1
        self.metadata_hash = self._hash()
        self._note(GROUP_KEY)

    def _resolve(self) -> None:
        if self.topology is not None:
            self.resolved = resolve(self.topology, self.catalog)

    def _hash(self) -> int:
        return 0 if self.topology is None else self.catalog.hash_of(self.topology.topics)

    # The target assignment.

    def assign(self, *, now_ms: int) -> None:
        """While the topics are not as they must be, nobody has a task."""
        assignees = [
            TaskAssignee(
                member_id=one.member_id,
                process_id=one.process_id,
                had=self.target_tasks(one.member_id),
            )
            for one in self
        ]
        for member_id, tasks in assign_tasks(assignees, self._tasks()).items():
            if self._targets.get(member_id) != tasks:
                self._targets[member_id] = tasks
                self._note(StreamsFactKey(StreamsFactKind.TARGET_OF_MEMBER, member_id))
        self.target_epoch, self.assigned_ms = self.epoch, now_ms
        self._note(TARGET_KEY)

    def _tasks(self) -> TasksToAssign:
        if self.topology is None or not self.resolved.is_ready:
            return TasksToAssign()
        parts = self.topology.subtopologies
        tasks_of = self.resolved.tasks_of
        return TasksToAssign(
            stateful=[task for one in parts if one.is_stateful for task in tasks_of(one)],
            stateless=[task for one in parts if not one.is_stateful for task in tasks_of(one)],
            standbys=self.standbys or 0,
        )

    # Who owns what.

    def _is_owned(self, member: StreamsMember, task: TaskId) -> bool:
        return self._owners.get(task, member.member_id) != member.member_id

    def _is_in_process(self, member: StreamsMember, task: TaskId) -> bool:
        holders = {*self._standby_owners.get(task, ())}
        if task in self._owners:
            holders.add(self._owners[task])
        others = holders - {member.member_id}
        return any(self._members[one].process_id == member.process_id for one in others)

    def _put(self, member: StreamsMember) -> None:
        before = self._members.get(member.member_id)
        self._members[member.member_id] = member
        if before is None or before.profile != member.profile:
            self._note(StreamsFactKey(StreamsFactKind.MEMBER, member.member_id))
        if before is None or before.progress != member.progress:
            self._note(StreamsFactKey(StreamsFactKind.PROGRESS, member.member_id))
            self._release(before)
            self._hold(member)

    def _hold(self, member: StreamsMember) -> None:
        for task in member.progress.owned_active():
            assert task not in self._owners, f"{task} is owned twice"
            self._owners[task] = member.member_id
        for task in member.progress.owned_standby():
            self._standby_owners.setdefault(task, set()).add(member.member_id)

    def _release(self, member: StreamsMember | None) -> None:
        if member is None:
            return
        for task in member.progress.owned_active():
            del self._owners[task]
        for task in member.progress.owned_standby():
            self._standby_owners[task].discard(member.member_id)
            if not self._standby_owners[task]:
                del self._standby_owners[task]

    # The way to disk and back.

    def take_facts(self) -> StreamsFacts:
        """What has changed since the last time, as it is now."""
        facts = tuple((key, self._fact(key)) for key in self._changed)
        self._changed = {}
        return facts

    def fact_keys(self) -> Iterator[StreamsFactKey]:
        yield from (GROUP_KEY, TARGET_KEY, TOPOLOGY_KEY)
        for member_id in self._members:
            yield from (StreamsFactKey(kind, member_id) for kind in MEMBER_KINDS)

    def restore(self, facts: Mapping[StreamsFactKey, StreamsFact]) -> None:
        for key, fact in facts.items():
            match fact:
                case StreamsGroupFact():
                    self.epoch, self.metadata_hash = fact.epoch, fact.metadata_hash
                    self.standbys = fact.standbys
                case StreamsTargetFact():
                    self.target_epoch, self.assigned_ms = fact.epoch, fact.assigned_ms
                case Topology():
                    self.topology = fact
                case Tasks():
                    self._targets[key.member_id] = fact
                case StreamsProfile():
                    progress = facts.get(StreamsFactKey(StreamsFactKind.PROGRESS, key.member_id))
                    if not isinstance(progress, StreamsProgress):
                        progress = StreamsProgress()
                    self._check_owners(key.member_id, progress)
                    member = StreamsMember(member_id=key.member_id, profile=fact, progress=progress)
                    self._put(member)
        self._resolve()
        self._changed = {}
        if self._members and self._hash() != self.metadata_hash:
            self.bump()  # a topic has changed, and that this concerns the group was not stored

    def _check_owners(self, member_id: str, progress: StreamsProgress) -> None:
        for task in progress.owned_active():
            if task in self._owners:
                raise Corrupt(
                    f"__consumer_offsets: task {task.subtopology}_{task.partition} has two "
                    f"owners, {self._owners[task]} and {member_id}"
                )

    def _fact(self, key: StreamsFactKey) -> StreamsFact | None:
        member = self._members.get(key.member_id)
        match key.kind:
            case StreamsFactKind.GROUP:
                return self._group_fact()
            case StreamsFactKind.TARGET:
                return StreamsTargetFact(epoch=self.target_epoch, assigned_ms=self.assigned_ms)
            case StreamsFactKind.TOPOLOGY:
                return self.topology
            case StreamsFactKind.TARGET_OF_MEMBER:
                return self._targets.get(key.member_id)
            case StreamsFactKind.MEMBER:
                return member.profile if member else None
            case StreamsFactKind.PROGRESS:
                return member.progress if member else None

    def _group_fact(self) -> StreamsGroupFact:
        is_ready = self.topology is not None and self.resolved.is_ready
        return StreamsGroupFact(
            epoch=self.epoch,
            metadata_hash=self.metadata_hash,
            validated_epoch=self.topology.epoch if self.topology and is_ready else NOT_VALIDATED,
            standbys=self.standbys,
        )

    def _note(self, key: StreamsFactKey) -> None:
        self._changed[key] = None
