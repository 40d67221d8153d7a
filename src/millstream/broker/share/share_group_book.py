"""What a share group knows: members, epochs, who shall read what, and what has to be stored of it.

`share_group.py` hears the members and decides; here is what follows from it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from millstream.broker.groups.topic_catalog import TopicCatalog, TopicIdPartition
from millstream.broker.share.share_group_facts import (
    GROUP_KEY,
    MEMBER_KINDS,
    PARTITIONS_KEY,
    TARGET_KEY,
    SharedTopic,
    SharedTopicsFact,
    ShareFact,
    ShareFactKey,
    ShareFactKind,
    ShareFacts,
    ShareGroupFact,
    ShareTargetFact,
)
from millstream.broker.share.share_member import (
    ShareMember,
    ShareMemberProfile,
    ShareMemberProgress,
)
from millstream.broker.share.simple_assignor import Subscriber, assign


class ShareGroupBook:
    """Members have a target once it was computed for them; only shared partitions are given out."""

    def __init__(self, catalog: TopicCatalog) -> None:
        self.catalog = catalog
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.assigned_ms = -1
        self._members: dict[str, ShareMember] = {}
        self._targets: dict[str, frozenset[TopicIdPartition]] = {}
        self._shared: dict[bytes, SharedTopic] = {}
        self._shared_partitions: frozenset[TopicIdPartition] = frozenset()
        self._changed: dict[ShareFactKey, None] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ShareMember]:
        return iter(self._members.values())

    def find(self, member_id: str) -> ShareMember | None:
        return self._members.get(member_id)

    @property
    def topics(self) -> frozenset[str]:
        """What anybody subscribes to."""
        return frozenset().union(*(member.profile.topics for member in self))

    @property
    def shared(self) -> frozenset[TopicIdPartition]:
        """The partitions that the group has a state of."""
        return self._shared_partitions

    # Steps.

    def advance(
        self, member: ShareMember, profile: ShareMemberProfile, *, now_ms: int
    ) -> ShareMember:
        """Take note of what a member said, and bring it up to date."""
        is_new = member.member_id not in self._members
        has_changed = is_new or profile.topics != member.profile.topics
        self._put(replace(member, profile=profile))
        if has_changed:
            self.bump()
        if self.epoch > self.target_epoch:
            self._share_new_partitions()
            self._assign(now_ms)
        target = self._targets.get(member.member_id, frozenset())
        progress = member.progress.moved_to(self.target_epoch, target)
        updated = replace(member, profile=profile, progress=progress)
        self._put(updated)
        return updated

    def remove(self, *members: ShareMember) -> None:
        for member in members:
            del self._members[member.member_id]
            self._targets.pop(member.member_id, None)
            for kind in MEMBER_KINDS:
                self._note(ShareFactKey(kind, member.member_id))
        if members:
            self.bump()

    def bump(self) -> None:
        self.epoch += 1
        self.metadata_hash = self.catalog.hash_of(self.topics)
        self._note(GROUP_KEY)

    def follow_topics(self) -> None:
        """Topics came, went or grew: if that concerns the group, its epoch rises."""
        self.unshare([one for one in self._shared if self.catalog.with_id(one) is None])
        if self._members and self.catalog.hash_of(self.topics) != self.metadata_hash:
            self.bump()

    def _share_new_partitions(self) -> None:
        """What is subscribed to and exists has a state from now on; it is kept if nobody reads."""
        topics = [self.catalog.with_id(one) for one in self.catalog.ids_of(self.topics)]
        self._share_topics(
            self._shared
            | {
                topic.id: SharedTopic(topic.name, frozenset(range(topic.partition_count)))
                for topic in topics
                if topic is not None and topic.partition_count > 0
            }
        )

    def share(self, partitions: Iterable[TopicIdPartition]) -> None:
        """These have a state from now on, even if nobody subscribes to them."""
        topics = dict(self._shared)
        for part in partitions:
            topic = self.catalog.with_id(part.topic_id)
            assert topic is not None, "the caller has looked"
            shared = topics.get(part.topic_id, SharedTopic(topic.name, frozenset()))
            topics[topic.id] = SharedTopic(topic.name, shared.partitions | {part.partition})
        self._share_topics(topics)
        self._note(GROUP_KEY)  # it may be new

    def unshare(self, topic_ids: Iterable[bytes]) -> None:
        gone = {*topic_ids}
        self._share_topics({one: topic for one, topic in self._shared.items() if one not in gone})

    def _share_topics(self, topics: Mapping[bytes, SharedTopic]) -> None:
        """Heartbeats ask what is shared more often than it changes: so it is kept at hand."""
        if topics == self._shared:
            return
        self._shared = dict(topics)
        self._shared_partitions = frozenset(
            TopicIdPartition(topic_id, number)
            for topic_id, topic in topics.items()
            for number in topic.partitions
        )
        self._note(PARTITIONS_KEY)

    def _assign(self, now_ms: int) -> None:
        subscribers = [
            Subscriber(
                member_id=member.member_id,
                topic_ids=self.catalog.ids_of(member.profile.topics),
                held=self._targets.get(member.member_id, frozenset()),
            )
            for member in self
        ]
        for member_id, partitions in assign(subscribers, self.shared).items():
            if self._targets.get(member_id) != partitions:
                self._targets[member_id] = partitions
                self._note(ShareFactKey(ShareFactKind.TARGET_OF_MEMBER, member_id))
        self.target_epoch, self.assigned_ms = self.epoch, now_ms
        self._note(TARGET_KEY)

    def _put(self, member: ShareMember) -> None:
        before = self._members.get(member.member_id)
        self._members[member.member_id] = member
        if before is None or before.profile != member.profile:
            self._note(ShareFactKey(ShareFactKind.MEMBER, member.member_id))
        if before is None or before.progress != member.progress:
            self._note(ShareFactKey(ShareFactKind.PROGRESS, member.member_id))

    # The way to disk and back.

    def take_facts(self) -> ShareFacts:
        """What has changed since the last time, as it is now."""
        facts = tuple((key, self._fact(key)) for key in self._changed)
        self._changed = {}
        return facts

    def fact_keys(self) -> Iterator[ShareFactKey]:
        yield from (GROUP_KEY, TARGET_KEY, PARTITIONS_KEY)
        for member_id in self._members:
            yield from (ShareFactKey(kind, member_id) for kind in MEMBER_KINDS)

    def restore(self, facts: Mapping[ShareFactKey, ShareFact]) -> None:
        for key, fact in facts.items():
            match fact:
                case ShareGroupFact():
                    self.epoch, self.metadata_hash = fact.epoch, fact.metadata_hash
                case ShareTargetFact():
                    self.target_epoch, self.assigned_ms = fact.epoch, fact.assigned_ms
                case SharedTopicsFact():
                    self._share_topics(fact.by_id)
                case frozenset():
                    self._targets[key.member_id] = fact
                case ShareMemberProfile():
                    progress = facts.get(ShareFactKey(ShareFactKind.PROGRESS, key.member_id))
                    if not isinstance(progress, ShareMemberProgress):
                        progress = ShareMemberProgress()
                    self._put(ShareMember(member_id=key.member_id, profile=fact, progress=progress))
        self._changed = {}

    def _fact(self, key: ShareFactKey) -> ShareFact | None:
        member = self._members.get(key.member_id)
        match key.kind:
            case ShareFactKind.GROUP:
                return ShareGroupFact(epoch=self.epoch, metadata_hash=self.metadata_hash)
            case ShareFactKind.TARGET:
                return ShareTargetFact(epoch=self.target_epoch, assigned_ms=self.assigned_ms)
            case ShareFactKind.PARTITIONS:
                return SharedTopicsFact(by_id=dict(self._shared))
            case ShareFactKind.TARGET_OF_MEMBER:
                return self._targets.get(key.member_id)
            case ShareFactKind.MEMBER:
                return member.profile if member else None
            case ShareFactKind.PROGRESS:
                return member.progress if member else None

    def _note(self, key: ShareFactKey) -> None:
        self._changed[key] = None
