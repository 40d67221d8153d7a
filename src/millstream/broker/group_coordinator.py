"""The shell around the groups: timers, durability, and the way from a request to its answer.

The rules are pure (`groups/`). Here each call's outcome is made durable in `__consumer_offsets`
before anyone hears of it, one timer per group brings its deadlines, and a restart finds every
group where it was.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError
from millstream.base.record import Record
from millstream.broker.durable_state import Change, DurableState
from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.classic_offset_rules import expiry_rule
from millstream.broker.groups.group_messages import Reply
from millstream.broker.groups.group_metadata import GroupMetadata
from millstream.broker.groups.group_offsets import CommittedOffset, GroupOffsets, TopicPartition
from millstream.broker.groups.group_records import (
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group_value,
    read_key,
    read_offset_value,
)
from millstream.broker.groups.group_state import GroupLimits, GroupState
from millstream.broker.groups.outcome import Outbox, Outcome, Replies
from millstream.broker.kafka_errors import coordinator_error_code
from millstream.broker.transactions.transaction import Identity
from millstream.broker.wire import ErrorCode
from millstream.log.record_batch import Marker

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CoordinatedGroup:
    """A group, how far it has read, and the answers that wait for the disk."""

    members: ClassicGroup
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    outbox: Outbox = field(default_factory=Outbox)
    timer: asyncio.TimerHandle | None = None
    # Offsets on their way to the disk: whoever deletes offsets must not miss them.
    committing: Counter[TopicPartition] = field(default_factory=Counter)
    last_store: "asyncio.Future[None] | None" = None  # of its metadata, until that is synced

    @property
    def partitions(self) -> list[TopicPartition]:
        """Every partition of which an offset is stored, or will be in a moment."""
        return sorted({where for where, _ in self.offsets} | self.committing.keys())

    @property
    def is_removable(self) -> bool:
        """Nothing would be lost: no member, no offset, no id that was given out."""
        return (
            self.members.state is GroupState.EMPTY
            and not self.members.roster.pending
            and not len(self.offsets)
            and not self.offsets.has_held
            and not self.committing
        )


class GroupCoordinator:
    """Every group by its id. Owned by the loop."""

    def __init__(
        self,
        state: DurableState,
        *,
        limits: GroupLimits,
        offsets_retention_ms: int,
        now_ms: Clock,
    ) -> None:
        self.partition = state.partition
        self._state = state
        self._limits = limits
        self._offsets_retention_ms = offsets_retention_ms
        self._loop = asyncio.get_running_loop()
        # Deadlines follow a clock that never jumps; what is stored is near the wall clock's time.
        self._wall_ms = now_ms
        self._started_ms = now_ms() - int(self._loop.time() * 1000)
        self._groups: dict[str, CoordinatedGroup] = {}
        # Offsets that open transactions hold for deleted topics, by producer id: their keys.
        self._doomed: dict[int, list[bytes]] = {}
        self._load()

    def now_ms(self) -> int:
        return self._started_ms + int(self._loop.time() * 1000)

    # --- look up ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[CoordinatedGroup]:
        return iter(self._groups.values())

    def find(self, group_id: str) -> CoordinatedGroup | None:
        return self._groups.get(group_id)

    def find_or_create(self, group_id: str) -> CoordinatedGroup:
        group = self._groups.get(group_id)
        if group is None:
            members = ClassicGroup(
                group_id, limits=self._limits, new_suffix=_new_suffix, now_ms=self.now_ms()
            )
            group = self._groups[group_id] = CoordinatedGroup(members)
        return group

    # --- members ------------------------------------------------------------------------------

    def run(self, group: CoordinatedGroup, outcome: Outcome) -> None:
        """Make an outcome durable, then deliver it; and wake up for what the group waits for."""
        replies = group.outbox.push(outcome)
        if outcome.metadata is not None:
            self._store(group, outcome.metadata)
        _deliver(replies)
        self._set_timer(group)

    def _store(self, group: CoordinatedGroup, metadata: GroupMetadata) -> None:
        try:
            change = (group_key(group.members.group_id), group_value(metadata))
            stored = self._state.put([change], now_ms=self._wall_ms())
        except MillstreamError as error:
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
        self.run(group, group.members.persist_failed(now_ms=self.now_ms()))

    def _set_timer(self, group: CoordinatedGroup) -> None:
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        deadline_ms = group.members.deadline_ms
        if deadline_ms is not None:
            delay = max(0, deadline_ms - self.now_ms() + 1) / 1000
            group.timer = self._loop.call_later(delay, self._tick, group)

    def _tick(self, group: CoordinatedGroup) -> None:
        group.timer = None
        self.run(group, group.members.tick(self.now_ms()))

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
        for where, committed in commits:
            group.offsets.hold(who.producer_id, where, committed)
        await stored

    async def end_transaction(self, marker: Marker, who: Identity) -> None:
        """Let the offsets of a transaction count, or drop them; returns when that is durable."""
        await self._state.end_transaction(
            marker, producer_id=who.producer_id, producer_epoch=who.epoch, now_ms=self._wall_ms()
        )
        for group in self:
            group.offsets.release(who.producer_id, is_commit=marker.is_commit)
        doomed = self._doomed.pop(who.producer_id, [])
        if marker.is_commit:
            await self._remove(doomed)

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
        if group.members.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        group_id = group.members.group_id
        keys = [group_key(group_id), *(offset_key(group_id, where) for where in group.partitions)]
        removed = self._remove(keys)  # raises before anything has changed, if it must
        group.members.delete()
        if group.timer is not None:
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
            for producer_id, where in group.offsets.drop_held(topic):
                key = offset_key(group.members.group_id, where)
                self._doomed.setdefault(producer_id, []).append(key)
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
        for key, value in self._state:
            group_id, where = read_key(key)
            group = self.find_or_create(group_id)
            if where is None:
                group.members.restore(read_group_value(value), now_ms=self.now_ms())
            else:
                group.offsets.commit(where, read_offset_value(value))
        for producer_id, records in self._state.pending.items():
            for record in records:
                self._hold(producer_id, record)
        for group in self._groups.values():
            self._set_timer(group)

    def _hold(self, producer_id: int, record: Record) -> None:
        group_id, where = read_key(record.key or b"")
        if where is not None and record.value is not None:
            committed = read_offset_value(record.value)
            self.find_or_create(group_id).offsets.hold(producer_id, where, committed)


def _new_suffix() -> str:
    return str(uuid.uuid4())


def _deliver(replies: Replies) -> None:
    """A token is a function that takes the reply to its connection."""
    for reply_to, reply in replies:
        answer: Callable[[Reply], None] = reply_to  # type: ignore[assignment] # opaque to groups
        answer(reply)
