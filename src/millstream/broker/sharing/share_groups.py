"""The shell around share groups (KIP-932): who is in them, and where they start.

The rules are pure (`share/share_group.py`). Here what a call has changed is made durable in
`__consumer_offsets` before anyone hears of it, one timer per group brings its deadlines, and a
restart finds every group where it was. Which records members hold is `share_partitions.py`'s
business: a member that leaves keeps its share session and its records, for it may still settle
them (as in Kafka). It gives them back with the last epoch of that session, or its connection.
"""

import asyncio
import contextlib
import logging
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError, Retryable
from millstream.broker.deadline_timer import DeadlineTimer
from millstream.broker.durable_state import Change, DurableState
from millstream.broker.groups.group_state import GroupKind
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.new_groups import NewGroups
from millstream.broker.share.share_group import (
    NoShareGroup,
    NotShared,
    ShareGroup,
    check_heartbeat,
)
from millstream.broker.share.share_group_facts import ShareFact, ShareFactKey
from millstream.broker.share.share_group_messages import (
    ShareGroupOutcome,
    ShareHeartbeat,
    ShareHeartbeatReply,
)
from millstream.broker.share.share_group_records import (
    is_share_key,
    read_share_fact,
    read_share_fact_key,
    share_changes_of,
    share_fact_key,
)
from millstream.broker.share.share_member import JOINING_EPOCH
from millstream.broker.share.share_state import ShareState
from millstream.broker.wire import ErrorCode

logger = logging.getLogger(__name__)


class SharedRecords(Protocol):
    """What share groups ask of `share_partitions.py`."""

    def group_ids(self) -> Iterable[str]:
        """Of every group that has a state."""

    def positions(self, group_id: str) -> Mapping[TopicIdPartition, ShareState]:
        """How far the group has come, where it has a state."""

    async def set_start(self, group_id: str, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Of a group without members; returns when it is durable."""

    async def forget(self, group_id: str, topic_ids: Iterable[bytes] | None) -> None:
        """Of these topics, or all that the group has a state of; returns when it is durable."""


class NothingShared:
    """Stands in until the records' half is joined to this one."""

    def group_ids(self) -> Iterable[str]:
        return ()

    def positions(self, group_id: str) -> Mapping[TopicIdPartition, ShareState]:
        return {}

    async def set_start(self, group_id: str, offsets: Mapping[TopicIdPartition, int]) -> None:
        pass

    async def forget(self, group_id: str, topic_ids: Iterable[bytes] | None) -> None:
        pass


class ShareGroupBusy(Retryable):
    def __init__(self, *, group_id: str) -> None:
        super().__init__(f"share group {group_id} is being changed or deleted; try again")
        self.group_id = group_id


@dataclass(slots=True)
class CoordinatedShareGroup:
    """A share group, and what of it is on its way to the disk."""

    members: ShareGroup
    timer: DeadlineTimer = field(default_factory=DeadlineTimer)
    stored: "asyncio.Future[None] | None" = None  # all that was decided so far
    # What did not get into the log: it goes with the next outcome.
    unstored: dict[ShareFactKey, ShareFact | None] = field(default_factory=dict)


class ShareGroups:
    """Every share group by its id. Owned by the loop.

    Ids are shared with the other kinds of groups: `kind_of_other` says whose an id is, if theirs.
    """

    def __init__(
        self,
        state: DurableState,
        *,
        new: NewGroups,
        kind_of_other: Callable[[str], GroupKind | None],
        now_ms: Clock,
        wall_ms: Clock,
    ) -> None:
        self._state = state
        self._new = new
        self._kind_of_other = kind_of_other
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._records: SharedRecords = NothingShared()
        self._groups: dict[str, CoordinatedShareGroup] = {}
        # One change of where a group starts at a time; meanwhile nobody joins that group.
        self._turn = asyncio.Lock()
        self._changing: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._load()

    # --- look up ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ShareGroup]:
        return (group.members for group in self._groups.values())

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def named(self, group_id: str) -> ShareGroup:
        return self._named(group_id).members

    def positions(self, group_id: str) -> Mapping[TopicIdPartition, ShareState]:
        """Of every partition that the group has a state of, or will have once it is fetched."""
        shared = self._groups[group_id].members.book.shared if group_id in self else frozenset()
        stored = self._records.positions(group_id)
        return {part: stored.get(part, ShareState()) for part in sorted(shared)}

    def check_shared(self, group_id: str, place: TopicIdPartition) -> None:
        """Raise unless the group reads there. One that is just being deleted reads nowhere."""
        group = self._groups.get(group_id)
        if group is None or group_id == self._changing or place not in group.members.book.shared:
            raise NotShared(group_id=group_id, place=place)

    def _named(self, group_id: str) -> CoordinatedShareGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise NoShareGroup(group_id=group_id, kind=self._kind_of_other(group_id))
        return group

    def _named_or_new(self, group_id: str) -> CoordinatedShareGroup:
        if group_id not in self and self._kind_of_other(group_id) is None:
            self._groups[group_id] = CoordinatedShareGroup(self._new.share(group_id))
        return self._named(group_id)

    # --- members ------------------------------------------------------------------------------

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareHeartbeatReply:
        """A join makes the group. Returns when what it has changed is durable."""
        fault = check_heartbeat(request)
        if fault is not None:
            return ShareHeartbeatReply(error=ErrorCode.INVALID_REQUEST, message=fault)
        is_join = request.epoch == JOINING_EPOCH
        group = self._named_or_new(group_id) if is_join else self._named(group_id)
        if group_id == self._changing:
            raise ShareGroupBusy(group_id=group_id)
        outcome = group.members.heartbeat(request, now_ms=self._now_ms())
        await self._settle(group, outcome)
        assert outcome.reply is not None
        return outcome.reply

    def follow_topics(self) -> None:
        """Topics came, went or grew."""
        for group in self._groups.values():
            outcome = group.members.topics_changed()
            if outcome.must_persist:
                self._settle_soon(group, outcome)
                self._forget_soon(group.members.group_id, _topic_ids(outcome.ended))

    def follow_config(self, group_id: str) -> None:
        """The group's configuration has changed."""
        if group_id in self:
            self.named(group_id).limits = self._new.share(group_id).limits

    def _set_timer(self, group: CoordinatedShareGroup) -> None:
        deadline_ms = group.members.deadline_ms
        group.timer.set(deadline_ms, now_ms=self._now_ms(), when_due=partial(self._tick, group))

    def _tick(self, group: CoordinatedShareGroup) -> None:
        self._settle_soon(group, group.members.tick(self._now_ms()))

    # --- where groups start -------------------------------------------------------------------

    async def set_start(self, group_id: str, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Let a group without members start there; it need not exist. Durable on return."""
        if not offsets and group_id not in self:
            return
        async with self._change_of(group_id):
            group = self._named_or_new(group_id)
            await self._settle(group, group.members.share(offsets))
            await self._records.set_start(group_id, offsets)

    async def forget_topics(self, group_id: str, topic_ids: Sequence[bytes]) -> None:
        """Let a group without members forget where it was. Durable on return."""
        async with self._change_of(group_id):
            group = self._named(group_id)
            group.members.check_vacant()
            await self._records.forget(group_id, topic_ids)
            await self._settle(group, group.members.forget_topics(topic_ids))

    async def delete(self, group_id: str) -> None:
        """Remove a group without members. First goes how far it had come, or else another group
        of that name would go on from there."""
        async with self._change_of(group_id):
            group = self._named(group_id)
            group.members.check_vacant()
            await self._records.forget(group_id, None)
            facts = [*group.members.book.fact_keys(), *group.unstored]
            changes: list[Change] = [(share_fact_key(group_id, key), None) for key in facts]
            await self._state.put_deletion(changes, now_ms=self._wall_ms())
            group.timer.cancel()
            del self._groups[group_id]

    @contextlib.asynccontextmanager
    async def _change_of(self, group_id: str) -> AsyncIterator[None]:
        """One at a time, and meanwhile nobody joins the group."""
        async with self._turn:
            self._changing = group_id
            try:
                yield
            finally:
                self._changing = None

    # --- from an outcome to the disk ------------------------------------------------------------

    def _settle(
        self, group: CoordinatedShareGroup, outcome: ShareGroupOutcome
    ) -> "asyncio.Future[None]":
        """What follows from an outcome. Done when all that was decided so far is durable."""
        self._set_timer(group)
        group.unstored |= dict(outcome.facts)
        if group.unstored:
            group.stored = self._store(group)
        return group.stored or _done()

    def _store(self, group: CoordinatedShareGroup) -> "asyncio.Future[None]":
        changes = share_changes_of(group.members.group_id, tuple(group.unstored.items()))
        try:
            stored = self._state.put(changes, now_ms=self._wall_ms())
        except MillstreamError as error:  # a full disk: it is tried again with the next heartbeat
            failed = _new_future()
            failed.set_exception(error)
            return failed
        group.unstored = {}
        return stored

    def _settle_soon(self, group: CoordinatedShareGroup, outcome: ShareGroupOutcome) -> None:
        """The same where nobody waits for it."""
        self._do_soon(group.members.group_id, self._settle(group, outcome))

    def _do_soon(self, group_id: str, work: Awaitable[None]) -> None:
        async def done() -> None:
            try:
                await work
            except MillstreamError as error:
                logger.error("share group %s: its state could not be stored: %s", group_id, error)

        task = asyncio.ensure_future(done())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- the internal topic -------------------------------------------------------------------

    def _load(self) -> None:
        facts: dict[str, dict[ShareFactKey, ShareFact]] = {}
        for key, value in self._state:
            if is_share_key(key):
                group_id, what = read_share_fact_key(key)
                facts.setdefault(group_id, {})[what] = read_share_fact(what, value)
        for group_id, own in facts.items():
            group = self._groups[group_id] = CoordinatedShareGroup(self._new.share(group_id))
            group.members.restore(own, now_ms=self._now_ms())
            self._set_timer(group)

    def join_records(self, records: SharedRecords) -> None:
        """From here on both halves work together. A crash may have come between the two."""
        self._records = records
        for group_id in records.group_ids():
            shared = self.named(group_id).book.shared if group_id in self else frozenset()
            self._forget_soon(
                group_id, _topic_ids(records.positions(group_id)) - _topic_ids(shared)
            )
        self.follow_topics()

    def _forget_soon(self, group_id: str, topic_ids: Collection[bytes]) -> None:
        if topic_ids:
            self._do_soon(group_id, self._records.forget(group_id, topic_ids))


def _topic_ids(partitions: Iterable[TopicIdPartition]) -> set[bytes]:
    return {part.topic_id for part in partitions}


def _new_future() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


def _done() -> "asyncio.Future[None]":
    done = _new_future()
    done.set_result(None)
    return done
