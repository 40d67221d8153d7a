"""The shell around the groups: timers, durability, and the way from a request to its answer.

The rules are pure (`groups/`). Here each call's outcome is made durable in `__consumer_offsets`
before anyone hears of it, one timer per group brings its deadlines, and a restart finds every
group where it was.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError
from millstream.broker.durable_state import Change, DurableState
from millstream.broker.groups.classic_group import ClassicGroup
from millstream.broker.groups.classic_offset_rules import expiry_rule
from millstream.broker.groups.group_messages import Reply
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
from millstream.broker.kafka_errors import error_code

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CoordinatedGroup:
    """A group, how far it has read, and the answers that wait for the disk."""

    members: ClassicGroup
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    outbox: Outbox = field(default_factory=Outbox)
    timer: asyncio.TimerHandle | None = None
    commits_in_flight: int = 0

    @property
    def is_removable(self) -> bool:
        """Nothing would be lost: no member, no offset, no id that was given out."""
        return (
            self.members.state is GroupState.EMPTY
            and not self.members.roster.pending
            and not len(self.offsets)
            and not self.commits_in_flight
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
            change = (group_key(group.members.group_id), group_value(outcome.metadata))
            try:
                stored = self._state.put([change], now_ms=self._wall_ms())
            except MillstreamError as error:
                self._not_stored(group, error)
            else:
                stored.add_done_callback(lambda done: self._stored(group, done.exception()))
        _deliver(replies)
        self._set_timer(group)

    def _stored(self, group: CoordinatedGroup, error: BaseException | None) -> None:
        if isinstance(error, MillstreamError):
            self._not_stored(group, error)
        elif error is None:
            _deliver(group.outbox.persisted())

    def _not_stored(self, group: CoordinatedGroup, error: MillstreamError) -> None:
        logger.error("group %s: its state could not be stored: %s", group.members.group_id, error)
        _deliver(group.outbox.failed(error_code(error)))
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
        group.commits_in_flight += 1
        try:
            await self._state.put(changes, now_ms=self._wall_ms())
        finally:
            group.commits_in_flight -= 1
        for where, committed in commits:
            group.offsets.commit(where, committed)

    async def delete_offsets(
        self, group: CoordinatedGroup, partitions: Sequence[TopicPartition]
    ) -> None:
        if partitions:
            group_id = group.members.group_id
            await self._state.put_deletion(
                [(offset_key(group_id, where), None) for where in partitions],
                now_ms=self._wall_ms(),
            )
            for where in partitions:
                group.offsets.delete(where)

    async def delete(self, group: CoordinatedGroup) -> None:
        """Remove a group that is DEAD or holds nothing, with all that it has stored."""
        group_id = group.members.group_id
        changes: list[Change] = [(offset_key(group_id, where), None) for where, _ in group.offsets]
        changes.append((group_key(group_id), None))
        if group.timer is not None:
            group.timer.cancel()
        self._groups.pop(group_id, None)
        await self._state.put_deletion(changes, now_ms=self._wall_ms())

    async def forget_topic(self, topic: str) -> None:
        """The topic is gone: so is how far anyone had read it."""
        for group in tuple(self._groups.values()):
            await self.delete_offsets(
                group, [where for where, _ in group.offsets if where.topic == topic]
            )

    async def expire(self) -> None:
        """Drop offsets past their retention, and groups of which nothing is left."""
        if self._offsets_retention_ms < 0:
            return
        for group in tuple(self._groups.values()):
            expired = group.offsets.expired(
                expiry_rule(group.members),
                now_ms=self._wall_ms(),
                retention_ms=self._offsets_retention_ms,
            )
            await self.delete_offsets(group, expired)
            if expired and group.is_removable:
                await self.delete(group)

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
        for group in self._groups.values():
            self._set_timer(group)


def _new_suffix() -> str:
    return str(uuid.uuid4())


def _deliver(replies: Replies) -> None:
    """A token is a function that takes the reply to its connection."""
    for reply_to, reply in replies:
        answer: Callable[[Reply], None] = reply_to  # type: ignore[assignment] # opaque to groups
        answer(reply)
