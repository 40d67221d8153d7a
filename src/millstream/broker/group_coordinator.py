"""The shell around the groups: timers, durability, and the way from a request to its answer.

The rules are pure (`groups/`). Here each call's outcome is made durable in `__consumer_offsets`
before anyone hears of it, one timer per group brings its deadlines, and a restart finds every
group where it was.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError
from millstream.base.record import Record
from millstream.broker.coordinated_group import CoordinatedGroup
from millstream.broker.durable_state import Change, DurableState
from millstream.broker.group_configs import GroupConfigs
from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.consumer_admission import check_heartbeat, refuse
from millstream.broker.groups.consumer_group import ConsumerGroup
from millstream.broker.groups.consumer_member import JOINING_EPOCH
from millstream.broker.groups.consumer_messages import ConsumerHeartbeat
from millstream.broker.groups.consumer_records import read_fact
from millstream.broker.groups.consumer_state import ASSIGNORS
from millstream.broker.groups.conversion import (
    AnyGroup,
    to_classic_group,
    to_consumer_group,
    to_streams_group,
    vacated,
)
from millstream.broker.groups.group_messages import ReplyTo
from millstream.broker.groups.group_offsets import CommittedOffset, TopicPartition
from millstream.broker.groups.group_records import (
    any_fact_key,
    changes_of,
    group_key,
    offset_key,
    offset_value,
    read_group_value,
    read_key,
    read_offset_value,
)
from millstream.broker.groups.group_state import GroupKind, GroupLimits, GroupState
from millstream.broker.groups.offset_rules import expiry_rule
from millstream.broker.groups.outcome import AnyReply, Outcome, Replies
from millstream.broker.groups.stored_facts import Fact, FactKey
from millstream.broker.held_offsets import HeldOffsets
from millstream.broker.kafka_errors import coordinator_error_code
from millstream.broker.new_groups import NewGroups
from millstream.broker.share.share_group import ShareGroup
from millstream.broker.share.share_group_records import is_share_key
from millstream.broker.sharing.share_groups import ShareGroups
from millstream.broker.streams import streams_admission
from millstream.broker.streams.streams_facts import StreamsFact, StreamsFactKey
from millstream.broker.streams.streams_group import StreamsGroup
from millstream.broker.streams.streams_messages import StreamsHeartbeat
from millstream.broker.streams.streams_records import read_streams_fact
from millstream.broker.topics import OverridesChange, Topics
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import ErrorCode
from millstream.log.record_batch import Marker

logger = logging.getLogger(__name__)

GroupOfAnyKind = AnyGroup | ShareGroup


class GroupCoordinator:
    """Every group by its id. Owned by the loop."""

    def __init__(
        self,
        state: DurableState,
        *,
        topics: Topics,
        limits: GroupLimits,
        configs: GroupConfigs,
        offsets_retention_ms: int,
        now_ms: Clock,
    ) -> None:
        self.partition = state.partition
        self._state = state
        self.configs = configs
        self._new = NewGroups(topics, limits=limits, configs=configs, now_ms=self.now_ms)
        self._offsets_retention_ms = offsets_retention_ms
        self._loop = asyncio.get_running_loop()
        # Deadlines follow a clock that never jumps; what is stored is near the wall clock's time.
        self._wall_ms = now_ms
        self._started_ms = now_ms() - int(self._loop.time() * 1000)
        self._groups: dict[str, CoordinatedGroup] = {}
        self._held = HeldOffsets()
        self.shares = ShareGroups(
            state,
            new=self._new,
            kind_of_other=self._kind_of_own,
            now_ms=self.now_ms,
            wall_ms=now_ms,
        )
        self._load()

    def now_ms(self) -> int:
        return self._started_ms + int(self._loop.time() * 1000)

    # --- look up ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[CoordinatedGroup]:
        return iter(self._groups.values())

    def of_every_kind(self) -> Iterator[GroupOfAnyKind]:
        yield from (group.members for group in self)
        yield from self.shares

    def kind_of(self, group_id: str) -> GroupKind | None:
        """An id is of one kind of group, or of none yet."""
        return GroupKind.SHARE if group_id in self.shares else self._kind_of_own(group_id)

    def _kind_of_own(self, group_id: str) -> GroupKind | None:
        group = self._groups.get(group_id)
        return group.members.kind if group else None

    def find(self, group_id: str) -> CoordinatedGroup | None:
        return self._groups.get(group_id)

    def find_or_create(self, group_id: str) -> CoordinatedGroup:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = CoordinatedGroup(self._new.classic(group_id))
        return group

    # --- members ------------------------------------------------------------------------------

    def run(self, group: CoordinatedGroup, outcome: Outcome) -> None:
        """Make an outcome durable, then deliver it; and wake up for what the group waits for."""
        outcome = group.with_unstored(outcome)
        replies = group.outbox.push(outcome)
        if outcome.must_persist:
            self._store(group, outcome)
        _deliver(replies)
        if isinstance(group.members, ConsumerGroup) and group.members.must_become_classic:
            self._convert_to_classic(group, group.members)
        self._set_timer(group)

    def _store(self, group: CoordinatedGroup, outcome: Outcome) -> None:
        now_ms = self._wall_ms()
        try:
            changes = changes_of(group.members.group_id, outcome, now_ms=now_ms)
            stored = self._state.put(changes, now_ms=now_ms)
        except MillstreamError as error:
            group.unstored |= dict(outcome.facts)
            if group.last_store is None:
                self._not_stored(group, error)
            else:  # the outbox hears of them in order: first of those that are still under way
                not_stored = partial(self._not_stored, group, error)
                group.last_store.add_done_callback(lambda _: not_stored())
            return
        group.last_store = stored
        stored.add_done_callback(partial(self._stored, group))

    def _stored(self, group: CoordinatedGroup, stored: "asyncio.Future[None]") -> None:
        if group.last_store is stored:
            group.last_store = None
        error = stored.exception()
        if isinstance(error, MillstreamError):
            self._not_stored(group, error)
        else:
            _deliver(group.outbox.persisted())

    def _not_stored(self, group: CoordinatedGroup, error: MillstreamError) -> None:
        logger.error("group %s: its state could not be stored: %s", group.members.group_id, error)
        _deliver(group.outbox.failed(coordinator_error_code(error)))
        outcome = group.members.persist_failed(now_ms=self.now_ms())
        if outcome != Outcome():  # else what is unstored would be tried again and again
            self.run(group, outcome)

    def _set_timer(self, group: CoordinatedGroup) -> None:
        deadline_ms = group.members.deadline_ms
        group.timer.set(deadline_ms, now_ms=self.now_ms(), when_due=partial(self._tick, group))

    def _tick(self, group: CoordinatedGroup) -> None:
        self.run(group, group.members.tick(self.now_ms()))

    # --- kinds of groups ------------------------------------------------------------------------

    def consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, reply_to: ReplyTo
    ) -> None:
        """ConsumerGroupHeartbeat: a join makes the group, or makes one of a classic group."""
        refusal = check_heartbeat(request, ASSIGNORS)
        is_join = request.epoch == JOINING_EPOCH
        group = self._groups.get(group_id)
        if refusal is not None:
            _deliver(((reply_to, refusal),))
        elif group is not None and isinstance(group.members, ConsumerGroup):
            self._hear(group, group.members, request, reply_to)
        elif not is_join or group_id in self.shares:
            message = f"there is no consumer group {group_id}"
            _deliver(((reply_to, refuse(ErrorCode.GROUP_ID_NOT_FOUND, message)),))
        elif group is None:
            members = self._new.consumer(group_id)
            group = self._groups[group_id] = CoordinatedGroup(members)
            self._hear(group, members, request, reply_to)
        else:
            self._convert_to_consumer(group, request, reply_to)

    def _hear(
        self,
        group: CoordinatedGroup,
        members: ConsumerGroup,
        request: ConsumerHeartbeat,
        reply_to: ReplyTo,
    ) -> None:
        now_ms = self.now_ms()
        self.run(group, members.consumer_heartbeat(request, reply_to=reply_to, now_ms=now_ms))

    def _convert_to_consumer(
        self, group: CoordinatedGroup, join: ConsumerHeartbeat, reply_to: ReplyTo
    ) -> None:
        old = group.members
        if not isinstance(old, ClassicGroup):  # also without members: its topology would be lost
            message = f"group {old.group_id} is a {old.kind.value} group"
            _deliver(((reply_to, refuse(ErrorCode.GROUP_ID_NOT_FOUND, message)),))
            return
        new = self._new.consumer(old.group_id)
        outcome = to_consumer_group(old, new, join, reply_to=reply_to, now_ms=self.now_ms())
        if outcome.must_persist:
            logger.info("group %s goes on as a consumer group", old.group_id)
            group.members = new
        self.run(group, outcome)

    def find_for_join(self, group_id: str) -> CoordinatedGroup:
        """JoinGroup: any group without members is a classic group's name, too."""
        group = self.find_or_create(group_id)
        self._vacate(group)
        return group

    def _vacate(self, group: CoordinatedGroup) -> None:
        """A group of a newer protocol that has no members goes on as an empty classic one."""
        old = group.members
        if not isinstance(old, ClassicGroup) and old.is_vacant:
            logger.info("group %s goes on as a classic group", old.group_id)
            group.members = self._new.classic(old.group_id)
            self.run(group, vacated(old))

    def _convert_to_classic(self, group: CoordinatedGroup, old: ConsumerGroup) -> None:
        logger.info("group %s goes on as a classic group", old.group_id)
        new = self._new.classic(old.group_id)
        group.members = new
        self.run(group, to_classic_group(old, new, now_ms=self.now_ms()))

    def streams_heartbeat(
        self, group_id: str, request: StreamsHeartbeat, reply_to: ReplyTo
    ) -> None:
        """StreamsGroupHeartbeat: a join makes the group, also of a classic one without members."""
        refusal = streams_admission.check_heartbeat(request)
        is_join = request.epoch == JOINING_EPOCH
        group = self._groups.get(group_id)
        if refusal is not None:
            _deliver(((reply_to, refusal),))
        elif group is not None and isinstance(group.members, StreamsGroup):
            self._hear_of_streams(group, group.members, request, reply_to)
        elif is_join and group is None and group_id not in self.shares:
            members = self._new.streams(group_id)
            group = self._groups[group_id] = CoordinatedGroup(members)
            self._hear_of_streams(group, members, request, reply_to)
        elif is_join and group is not None and _is_empty_classic(group.members):
            self._convert_to_streams(group, request, reply_to)
        else:
            message = f"there is no streams group {group_id}"
            refusal = streams_admission.refuse(ErrorCode.GROUP_ID_NOT_FOUND, message)
            _deliver(((reply_to, refusal),))

    def _hear_of_streams(
        self,
        group: CoordinatedGroup,
        members: StreamsGroup,
        request: StreamsHeartbeat,
        reply_to: ReplyTo,
    ) -> None:
        now_ms = self.now_ms()
        self.run(group, members.streams_heartbeat(request, reply_to=reply_to, now_ms=now_ms))

    def _convert_to_streams(
        self, group: CoordinatedGroup, join: StreamsHeartbeat, reply_to: ReplyTo
    ) -> None:
        old = group.members
        assert isinstance(old, ClassicGroup)
        new = self._new.streams(old.group_id)
        outcome = to_streams_group(old, new, join, reply_to=reply_to, now_ms=self.now_ms())
        if outcome.must_persist:
            logger.info("group %s goes on as a streams group", old.group_id)
            group.members = new
        self.run(group, outcome)

    async def change_config(self, group_id: str, change: OverridesChange) -> None:
        """Change what is set for one group; returns when that is durable."""
        await self.configs.change(group_id, change)
        group = self._groups.get(group_id)
        if group is not None and isinstance(group.members, ConsumerGroup):
            group.members.limits = self.configs.limits_of(group_id)
        if group is not None and isinstance(group.members, StreamsGroup):
            group.members.limits = self.configs.streams_limits_of(group_id)
        self.shares.follow_config(group_id)

    def follow_topic(self, name: str) -> None:
        """The topic came, went or grew: groups that read it assign anew."""
        self._new.follow_topic(name)
        for group in tuple(self):
            if not isinstance(group.members, ClassicGroup):
                self.run(group, group.members.topic_changed(name))
        self.shares.follow_topics()

    # --- offsets ------------------------------------------------------------------------------

    async def commit(
        self, group: CoordinatedGroup, commits: Sequence[tuple[TopicPartition, CommittedOffset]]
    ) -> None:
        """Store offsets that were checked before; returns when they are durable."""
        if not commits:
            return
        group_id = group.members.group_id
        changes: list[Change] = [
            (offset_key(group_id, where), offset_value(committed)) for where, committed in commits
        ]
        places = Counter(where for where, _ in commits)
        group.committing += places
        try:
            await self._state.put(changes, now_ms=self._wall_ms())
        finally:
            group.committing -= places
        for where, committed in commits:
            group.offsets.commit(where, committed)

    async def commit_in_transaction(
        self,
        group: CoordinatedGroup,
        commits: Sequence[tuple[TopicPartition, CommittedOffset]],
        who: Identity,
    ) -> None:
        """Store offsets that count once the producer's transaction is committed."""
        if not commits:
            return
        group_id = group.members.group_id
        stored = self._state.put_in_transaction(
            [(offset_key(group_id, where), offset_value(offset)) for where, offset in commits],
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            now_ms=self._wall_ms(),
        )
        self._held.hold(who.producer_id, group, commits)
        await stored

    async def end_transaction(self, marker: Marker, who: Identity) -> None:
        """Let the offsets of a transaction count, or drop them; returns when that is durable."""
        await self._state.end_transaction(
            marker, producer_id=who.producer_id, producer_epoch=who.epoch, now_ms=self._wall_ms()
        )
        await self._remove(self._held.end(who.producer_id, is_commit=marker.is_commit))

    async def delete_offsets(
        self, places: Sequence[tuple[CoordinatedGroup, TopicPartition]]
    ) -> None:
        """Remove offsets, of several groups in one go; returns when they are gone for good."""
        keys = [offset_key(group.members.group_id, where) for group, where in places]
        await self._remove(keys)
        for group, where in places:
            group.offsets.delete(where)

    async def delete(self, group: CoordinatedGroup) -> ErrorCode:
        """Remove a group without members, with all that it has stored."""
        members, group_id = group.members, group.members.group_id
        if members.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        keys = [group_key(group_id), *(offset_key(group_id, where) for where in group.partitions)]
        if not isinstance(members, ClassicGroup):
            keys += [any_fact_key(group_id, key) for key in members.book.fact_keys()]
        removed = self._remove(keys)  # raises before anything has changed, if it must
        self._held.doom(group)
        group.members.delete()
        group.timer.cancel()
        self._groups.pop(group_id)
        await removed
        return ErrorCode.NONE

    def _remove(self, keys: Iterable[bytes]) -> "asyncio.Future[None]":
        """What was never stored needs no record that removes it."""
        changes: list[Change] = [(key, None) for key in keys if key in self._state]
        if changes:
            return self._state.put_deletion(changes, now_ms=self._wall_ms())
        nothing: asyncio.Future[None] = self._loop.create_future()
        nothing.set_result(None)
        return nothing

    async def forget_topic(self, topic: str) -> None:
        """The topic is gone: so is how far anyone had read it, also in open transactions."""
        for group in self:
            self._held.doom(group, topic)
        await self.delete_offsets(
            [(group, where) for group in self for where in group.partitions if where.topic == topic]
        )

    async def expire(self) -> None:
        """Drop offsets past their retention, and groups of which nothing is left."""
        expired = [(group, where) for group in self for where in self._expired(group)]
        await self.delete_offsets(expired)
        for group in tuple(self):
            if group.is_removable:
                await self.delete(group)

    def _expired(self, group: CoordinatedGroup) -> list[TopicPartition]:
        if self._offsets_retention_ms < 0:
            return []
        return group.offsets.expired(
            expiry_rule(group.members),
            now_ms=self._wall_ms(),
            retention_ms=self._offsets_retention_ms,
        )

    # --- the internal topic -------------------------------------------------------------------

    def rewrite_if_worth_it(self) -> None:
        self._state.rewrite_if_worth_it(now_ms=self._wall_ms())

    def _load(self) -> None:
        facts: dict[str, dict[FactKey, Fact]] = {}
        streams: dict[str, dict[StreamsFactKey, StreamsFact]] = {}
        for key, value in self._state:
            if is_share_key(key):
                continue  # theirs
            group_id, what = read_key(key)
            group = self.find_or_create(group_id)
            if isinstance(what, TopicPartition):
                group.offsets.commit(what, read_offset_value(value))
            elif isinstance(what, StreamsFactKey):
                streams.setdefault(group_id, {})[what] = read_streams_fact(what, value)
            elif what is not None:
                facts.setdefault(group_id, {})[what] = read_fact(what, value)
            elif isinstance(group.members, ClassicGroup):
                group.members.restore(read_group_value(value), now_ms=self.now_ms())
        for group_id, own in facts.items():
            self._restore_consumer(group_id, own)
        for group_id, streams_facts in streams.items():
            self._restore_streams(group_id, streams_facts)
        for producer_id, records in self._state.pending.items():
            for record in records:
                self._hold(producer_id, record)
        for group in self._groups.values():
            self._set_timer(group)

    def _restore_consumer(self, group_id: str, facts: Mapping[FactKey, Fact]) -> None:
        members = self._new.consumer(group_id)
        members.restore(facts, now_ms=self.now_ms())
        self._groups[group_id].members = members

    def _restore_streams(self, group_id: str, facts: Mapping[StreamsFactKey, StreamsFact]) -> None:
        members = self._new.streams(group_id)
        members.restore(facts, now_ms=self.now_ms())
        self._groups[group_id].members = members

    def _hold(self, producer_id: int, record: Record) -> None:
        group_id, where = read_key(record.key or b"")
        if isinstance(where, TopicPartition) and record.value is not None:
            held = [(where, read_offset_value(record.value))]
            self._held.hold(producer_id, self.find_or_create(group_id), held)


def _is_empty_classic(members: AnyGroup) -> bool:
    return isinstance(members, ClassicGroup) and members.is_vacant


def _deliver(replies: Replies) -> None:
    """A token is a function that takes the reply to its connection."""
    for reply_to, reply in replies:
        answer: Callable[[AnyReply], None] = reply_to  # type: ignore[assignment] # opaque to groups
        answer(reply)
