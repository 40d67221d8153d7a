"""The state of a consumer group (KIP-848): its members, who owns what, and who shall.

    epoch          rises with each change of members, subscriptions or topics
    target epoch   the epoch that the target assignment was made for
    member epoch   the target that a member has reached (reconciliation.py)

Keeps the book, and notes which facts a call has changed. What members say, and what they are
told, is in `consumer_group.py` and `hosted_classics.py`; both speak to this.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from millstream.base.errors import Corrupt
from millstream.broker.groups.assignment import Assignee, Assignor, elect_assignor
from millstream.broker.groups.consumer_member import (
    JOINING_EPOCH,
    ConsumerMember,
    MemberProfile,
    MemberProgress,
)
from millstream.broker.groups.group_offsets import TopicPartition
from millstream.broker.groups.group_state import GroupState
from millstream.broker.groups.range_assignor import assign_ranges
from millstream.broker.groups.reconciliation import Owned, Target, reconcile
from millstream.broker.groups.stored_facts import (
    Fact,
    FactKey,
    FactKind,
    Facts,
    GroupFact,
    TargetFact,
)
from millstream.broker.groups.subscription_patterns import Sees, SubscriptionPatterns, sees_all
from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition
from millstream.broker.groups.uniform_assignor import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
DEFAULT_ASSIGNOR = "uniform"

GROUP_KEY = FactKey(FactKind.GROUP)
TARGET_KEY = FactKey(FactKind.TARGET)
MEMBER_KINDS = (FactKind.MEMBER, FactKind.TARGET_OF_MEMBER, FactKind.PROGRESS)


class ConsumerState:
    """A partition has one owner at most: who has it assigned, or is still to revoke it."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self.catalog = catalog
        self.epoch = 0
        self.target_epoch = 0
        self.metadata_hash = 0
        self.patterns = SubscriptionPatterns()
        self._members: dict[str, ConsumerMember] = {}
        self._static_ids: dict[str, str] = {}  # instance id -> member id
        self._targets: dict[str, frozenset[TopicIdPartition]] = {}
        self._owners: dict[TopicIdPartition, str] = {}
        self._changed: dict[FactKey, None] = {}  # a set that keeps its order

    # Questions.

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ConsumerMember]:
        """A copy: members may be removed on the way."""
        return iter(list(self._members.values()))

    def find(self, member_id: str) -> ConsumerMember | None:
        return self._members.get(member_id)

    def find_static(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = self._static_ids.get(instance_id) if instance_id is not None else None
        return self._members[member_id] if member_id is not None else None

    @property
    def phase(self) -> GroupState:
        if not self._members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        if all(member.progress.is_settled(self.target_epoch) for member in self):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def assignor(self) -> str:
        return elect_assignor((m.profile.assignor for m in self), DEFAULT_ASSIGNOR)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        return member.profile.topics | self.patterns.topics_of(member.profile.pattern)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return frozenset[str]().union(*(self.topics_of(member) for member in self))

    def target_partitions(self, member_id: str) -> frozenset[TopicIdPartition]:
        return self._targets.get(member_id, frozenset())

    def owns_since(self, member_id: str, where: TopicPartition, epoch: int) -> bool:
        """Whether the member got this partition in `epoch` or before, and has it still."""
        topic = self.catalog.named(where.topic)
        if topic is None:
            return False
        part = TopicIdPartition(topic.id, where.partition)
        granted = self._members[member_id].progress.granted_epoch(part)
        return granted is not None and granted <= epoch

    def target_of(self, member: ConsumerMember) -> Target:
        return Target(
            epoch=self.target_epoch,
            partitions=self.target_partitions(member.member_id),
            subscribed_ids=self.catalog.ids_of(self.topics_of(member)),
            is_owned=self._owners.__contains__,
        )

    # Changes of members.

    def advance(
        self,
        member: ConsumerMember,
        profile: MemberProfile,
        owned: Owned,
        sees: Sees = sees_all,
    ) -> ConsumerMember:
        """The member, old or new, says this of itself: take it in, and take its next step.

        `sees`: which topics it may know of, for its pattern.
        """
        has_new_topics = profile.topics != member.profile.topics
        has_new_pattern = (profile.pattern or None) != (member.profile.pattern or None)
        updated = replace(member, profile=profile)
        self._put(updated)
        if has_new_pattern:
            self._follow_pattern(member.profile.pattern, profile.pattern, sees)
        elif profile.pattern and not self.patterns.has_viewer(profile.pattern):
            self._follow_pattern(None, profile.pattern, sees)
            self._bump_if_topics_changed()
        if self.epoch == 0 or has_new_topics or has_new_pattern:
            self.bump()
        if self.epoch > self.target_epoch:
            self._assign()
        is_new = has_new_topics or has_new_pattern
        target = self.target_of(updated)
        progress = reconcile(updated.progress, target, owned, is_subscription_new=is_new)
        updated = replace(updated, progress=progress)
        self._put(updated)
        return updated

    def succeed(self, member: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member is back under another id: it takes over what its predecessor had."""
        target = self.target_partitions(member.member_id)
        self._drop(member)
        progress = replace(member.progress, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        successor = replace(member, member_id=member_id, progress=progress)
        self._put(successor)
        self._set_target(member_id, target)
        return successor

    def park(self, member: ConsumerMember, epoch: int) -> None:
        """A static member has gone, and may return: it keeps what it has assigned."""
        progress = replace(member.progress, epoch=epoch, revoking={})
        self._put(replace(member, progress=progress))

    def remove(self, *members: ConsumerMember) -> None:
        for member in members:
            self._drop(member)
            self._follow_pattern(member.profile.pattern, None)
        if members:
            self.bump()

    def adopt(self, member: ConsumerMember) -> None:
        """Take a member as it is, with what it owns for its target: it comes from elsewhere."""
        self._put(member)
        self._set_target(member.member_id, frozenset(member.progress.assigned))

    def follow_topic(self, name: str) -> None:
        """The topic came, went or grew: if that concerns the group, its epoch rises."""
        topic = self.catalog.named(name)
        exists = topic is not None and not topic.is_unreadable
        for pattern in self.patterns.follow(name, exists=exists):
            self._note(FactKey(FactKind.PATTERN, pattern))
        self._bump_if_topics_changed()

    def bump(self) -> None:
        self.epoch += 1
        self.metadata_hash = self.catalog.hash_of(self.subscribed_topics)
        self._note(GROUP_KEY)

    # The way to disk and back.

    def take_facts(self) -> Facts:
        """What has changed since the last time, as it is now."""
        facts = tuple((key, self._fact(key)) for key in self._changed)
        self._changed = {}
        return facts

    def note_everything(self) -> None:
        for key in self.fact_keys():
            self._note(key)

    def fact_keys(self) -> Iterator[FactKey]:
        yield GROUP_KEY
        yield TARGET_KEY
        for member_id in self._members:
            yield from (FactKey(kind, member_id) for kind in MEMBER_KINDS)
        yield from (FactKey(FactKind.PATTERN, pattern) for pattern in self.patterns)

    def restore(self, facts: Mapping[FactKey, Fact]) -> None:
        """Become the group that was stored, and catch up with topics that changed meanwhile."""
        for key, fact in facts.items():
            match key.kind, fact:
                case FactKind.GROUP, GroupFact():
                    self.epoch, self.metadata_hash = fact.epoch, fact.metadata_hash
                case FactKind.TARGET, TargetFact():
                    self.target_epoch = fact.epoch
                case FactKind.TARGET_OF_MEMBER, frozenset():
                    self._targets[key.name] = fact  # type: ignore[assignment] # of its kind
                case FactKind.PATTERN, frozenset():
                    self.patterns.put(key.name, fact)  # type: ignore[arg-type] # of its kind
                case FactKind.MEMBER, MemberProfile():
                    progress = facts.get(FactKey(FactKind.PROGRESS, key.name), MemberProgress())
                    assert isinstance(progress, MemberProgress)
                    self._check_free(key.name, progress)
                    self._put(ConsumerMember(member_id=key.name, profile=fact, progress=progress))
        self._changed = {}
        self.patterns.drop_missing(self.catalog)
        self._bump_if_topics_changed()

    def _check_free(self, member_id: str, progress: MemberProgress) -> None:
        for part in (*progress.assigned, *progress.revoking):
            if part in self._owners:
                raise Corrupt(
                    f"__consumer_offsets: partition {part.partition} of topic id "
                    f"{part.topic_id.hex()} has two owners, {self._owners[part]} and {member_id}"
                )

    def _fact(self, key: FactKey) -> Fact | None:
        member = self._members.get(key.name)
        match key.kind:
            case FactKind.CLASSIC_GROUP:
                return None
            case FactKind.GROUP:
                return GroupFact(epoch=self.epoch, metadata_hash=self.metadata_hash)
            case FactKind.TARGET:
                return TargetFact(epoch=self.target_epoch)
            case FactKind.PATTERN:
                is_known = key.name in self.patterns
                return self.patterns.topics_of(key.name) if is_known else None
            case FactKind.TARGET_OF_MEMBER:
                return self._targets.get(key.name)
            case FactKind.MEMBER:
                return member.profile if member else None
            case FactKind.PROGRESS:
                return member.progress if member else None

    def _note(self, key: FactKey) -> None:
        self._changed[key] = None

    # The book.

    def _put(self, member: ConsumerMember) -> None:
        before = self._members.get(member.member_id)
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id
        if before is None or before.profile != member.profile:
            self._note(FactKey(FactKind.MEMBER, member.member_id))
        if before is None or before.progress != member.progress:
            self._note(FactKey(FactKind.PROGRESS, member.member_id))
            self._release(before)
            for held in (member.progress.assigned, member.progress.revoking):
                for part in held:
                    assert part not in self._owners, f"{part} is owned twice"
                    self._owners[part] = member.member_id

    def _drop(self, member: ConsumerMember) -> None:
        self._release(member)
        del self._members[member.member_id]
        if member.instance_id is not None:
            self._static_ids.pop(member.instance_id)
        self._targets.pop(member.member_id, None)
        for kind in MEMBER_KINDS:
            self._note(FactKey(kind, member.member_id))

    def _release(self, member: ConsumerMember | None) -> None:
        if member is not None:
            for held in (member.progress.assigned, member.progress.revoking):
                for part in held:
                    del self._owners[part]

    def _follow_pattern(self, old: str | None, new: str | None, sees: Sees = sees_all) -> None:
        """A pattern lives as long as a member has it."""
        if old and all(member.profile.pattern != old for member in self):
            self.patterns.remove(old)
            self._note(FactKey(FactKind.PATTERN, old))
        if new and not self.patterns.has_viewer(new):
            self.patterns.resolve(new, self.catalog, sees)
            self._note(FactKey(FactKind.PATTERN, new))

    def _bump_if_topics_changed(self) -> None:
        if self and self.catalog.hash_of(self.subscribed_topics) != self.metadata_hash:
            self.bump()

    # The target assignment.

    def _assign(self) -> None:
        assign = ASSIGNORS[self.assignor]
        for member_id, partitions in assign([*map(self._assignee, self)], self.catalog).items():
            self._set_target(member_id, partitions)
        self.target_epoch = self.epoch
        self._note(TARGET_KEY)

    def _assignee(self, member: ConsumerMember) -> Assignee:
        return Assignee(
            member_id=member.member_id,
            instance_id=member.instance_id,
            topic_ids=self.catalog.ids_of(self.topics_of(member)),
            held=self.target_partitions(member.member_id),
        )

    def _set_target(self, member_id: str, partitions: frozenset[TopicIdPartition]) -> None:
        if self._targets.get(member_id) != partitions:
            self._targets[member_id] = partitions
            self._note(FactKey(FactKind.TARGET_OF_MEMBER, member_id))
