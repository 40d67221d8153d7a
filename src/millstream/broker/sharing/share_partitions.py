"""The shell around share groups' records: timers, durability, sessions, and who waits for what.

The rules are pure (`share/`). Here each change is stored before anyone hears of it, one timer per
partition brings the ends of locks, and a restart finds every group where it was, with nothing
held. Who is in a group is not known here (`share_groups.py`), nor are requests (`apis/`).
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from millstream.base.clock import Clock
from millstream.base.errors import MillstreamError
from millstream.broker.group_configs import GroupConfigs
from millstream.broker.groups.topic_catalog import TopicIdPartition
from millstream.broker.partition import ServedPartition
from millstream.broker.share.acknowledgement import (
    Acknowledgement,
    NotAcquired,
    check_acknowledgements,
)
from millstream.broker.share.acquisition import Demand
from millstream.broker.share.share_partition import DeadLetters, SharePartition
from millstream.broker.share.share_sessions import SessionKey, ShareSessions
from millstream.broker.share.share_state import NO_START_OFFSET, ShareState
from millstream.broker.share.share_state_records import SharePartitionKey, StoredShare
from millstream.broker.sharing.dead_letters import DeadLetterOffice
from millstream.broker.sharing.served_share import ServedShare
from millstream.broker.sharing.share_reads import (
    READ_BYTES_MIN,
    HandedOut,
    ReadBatches,
    ShareRead,
    first_offset,
)
from millstream.broker.sharing.share_state_log import ShareStateLog
from millstream.broker.sharing.share_store import ShareStore
from millstream.broker.topics import Topics

NEW_SHARE = StoredShare(state_epoch=0)


class SharePartitions:
    """Every partition of every share group. Owned by the broker's loop."""

    def __init__(
        self,
        log: ShareStateLog,
        *,
        topics: Topics,
        configs: GroupConfigs,
        dead_letters: DeadLetterOffice,
        now_ms: Clock,
    ) -> None:
        self.partition = log.partition
        self.sessions = ShareSessions()
        self._log = log
        self._topics = topics
        self._configs = configs
        self._dead_letters = dead_letters
        self._wall_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._store = ShareStore(log, now_ms=now_ms)
        self._burials: set[asyncio.Task[None]] = set()
        self._shares: dict[str, dict[TopicIdPartition, ServedShare]] = {}
        for key, stored in log.load().items():
            self._restore(key, stored)

    def now_ms(self) -> int:
        """Locks follow a clock that never jumps; they are not stored."""
        return int(self._loop.time() * 1000)

    # --- look up ------------------------------------------------------------------------------

    def find(self, group_id: str, place: TopicIdPartition) -> ServedShare | None:
        return self._shares.get(group_id, {}).get(place)

    def group_ids(self) -> Collection[str]:
        return (*self._shares,)

    def of_group(self, group_id: str) -> list[ServedShare]:
        return [*self._shares.get(group_id, {}).values()]

    def positions(self, group_id: str) -> Mapping[TopicIdPartition, ShareState]:
        """How far the group has come, wherever it has begun."""
        return {share.place: share.state for share in self.of_group(group_id)}

    @property
    def dead_letter_count(self) -> int:
        return self._dead_letters.written_count

    def __iter__(self) -> Iterator[ServedShare]:
        return (share for shares in self._shares.values() for share in shares.values())

    def _add(self, key: SharePartitionKey, stored: StoredShare) -> ServedShare:
        share = ServedShare(key, stored, terms=self._configs.share_terms_of(key.group_id))
        self._shares.setdefault(key.group_id, {})[share.place] = share
        return share

    def _restore(self, key: SharePartitionKey, stored: StoredShare) -> None:
        """What was settled beyond the log's end is gone with it: relaxed, after a power cut."""
        log_end = self._log_end(key)
        if log_end is None or not stored.state.reaches_beyond(log_end):
            self._add(key, stored)
            return
        share = self._add(key, replace(stored, state=stored.state.cut_to(log_end)))
        share.must_repair = True

    def _log_end(self, key: SharePartitionKey) -> int | None:
        """None: the topic is being deleted."""
        try:
            return self._topics.with_id(key.topic_id).partition(key.partition).log.end_offset
        except MillstreamError:
            return None

    def is_there(self, place: TopicIdPartition) -> bool:
        """Whether there is such a partition, whoever may read it."""
        try:
            self._topics.with_id(place.topic_id).partition(place.partition)
        except MillstreamError:
            return False
        return True

    # --- begin --------------------------------------------------------------------------------

    def open(
        self, group_id: str, place: TopicIdPartition, partition: ServedPartition
    ) -> ServedShare:
        """The share, with a start. Before it is read for, `until_ready`: many at a time share
        one sync."""
        share = self.find(group_id, place)
        if share is None:
            share = self._add(SharePartitionKey(group_id, *place), NEW_SHARE)
        if share.records is None:
            reset = self._configs.share_reset_of(group_id)
            offset = first_offset(partition.log, reset, now_ms=self._wall_ms())
            share.start_at(offset, self._configs.share_terms_of(group_id))
        if share.is_in_doubt:
            self._store.store(share)
        return share

    async def until_ready(self, share: ServedShare) -> None:
        """Until where it starts is stored, and nothing else is in doubt."""
        if share.is_in_doubt:
            await self._stored(share)

    async def _stored(self, share: ServedShare) -> None:
        await asyncio.shield(self._store.store(share))

    def _follow(self, share: ServedShare, partition: ServedPartition) -> SharePartition:
        """The records under the group's present terms, from where the log begins now."""
        assert share.records is not None, "open it first"
        records, group_id = share.records, share.key.group_id
        records.terms = self._configs.share_terms_of(group_id)
        records.keeps_dead_letters = self._configs.dead_letter_topic_of(group_id) is not None
        if partition.log.start_offset > records.start_offset:
            records.move_start_to(partition.log.start_offset)
            self._store.store(share)
        return records

    # --- hand out -----------------------------------------------------------------------------

    def next_read(
        self, share: ServedShare, partition: ServedPartition, *, records_max: int, bytes_max: int
    ) -> ShareRead | None:
        """Where the next member would find something; None if there is nothing to be had."""
        log = partition.log
        offset = self._follow(share, partition).next_fetch_offset
        is_committed_only = self._configs.share_reads_committed(share.key.group_id)
        end = log.last_stable_offset if is_committed_only else log.high_watermark
        if offset is None or offset >= end:
            return None
        wanted_bytes = max(READ_BYTES_MIN, records_max * share.record_bytes)
        return ShareRead(
            log=log,
            offset=offset,
            end=end,
            bytes_max=min(bytes_max, wanted_bytes),
            is_committed_only=is_committed_only,
        )

    def hand_out(self, share: ServedShare, read: ReadBatches, demand: Demand) -> HandedOut | None:
        """Give the member what it may have of a read; None if there was nothing for anyone."""
        assert share.records is not None
        share.record_bytes = read.record_bytes or share.record_bytes
        acquired = share.records.acquire(read.fetched, demand, now_ms=self.now_ms())
        if share.records.has_unsaved_change:  # there was nothing at some offsets
            self._store.store(share)
        self._set_timer(share)
        return HandedOut(read.cut_to(acquired), acquired) if acquired else None

    # --- settle -------------------------------------------------------------------------------

    def acknowledge(
        self,
        member: SessionKey,
        place: TopicIdPartition,
        partition: ServedPartition,
        batches: Sequence[Acknowledgement],
        *,
        is_renewal: bool,
    ) -> Awaitable[None]:
        """Settle all of it now, or raise; what is returned is done when that is durable."""
        may_renew = is_renewal and self._configs.share_may_renew(member.group_id)
        check_acknowledgements(batches, may_renew=may_renew)
        share = self.find(member.group_id, place)
        if share is None or share.records is None:
            raise NotAcquired(offset=batches[0].offsets.start, member_id=member.member_id)
        records = self._follow(share, partition)
        letters = records.acknowledge(member.member_id, batches, now_ms=self.now_ms())
        return self._settled(share, partition, letters)

    def _settled(
        self, share: ServedShare, partition: ServedPartition, letters: DeadLetters
    ) -> Awaitable[None]:
        self._set_timer(share)
        stored = self._store.store(share)
        self.wake_if_more(share, partition)
        topic = self._configs.dead_letter_topic_of(share.key.group_id)
        if not letters or topic is None:
            return asyncio.shield(stored)
        burial = self._loop.create_task(self._bury(share, partition, topic, letters))
        self._burials.add(burial)
        burial.add_done_callback(self._burials.discard)
        burial.add_done_callback(_hear)
        return asyncio.shield(burial)

    async def _bury(
        self, share: ServedShare, partition: ServedPartition, topic: str, letters: DeadLetters
    ) -> None:
        """Their letters first, then the records' end: a crash in between repeats the letters."""
        await self._dead_letters.write(topic, share.key, letters)
        assert share.records is not None
        share.records.bury(letters)
        self.wake_if_more(share, partition)
        await self._stored(share)

    def _set_timer(self, share: ServedShare) -> None:
        """A deadline may be early, never late: as long as one is awaited, none is set anew."""
        deadline_ms = share.records.deadline_ms if share.records is not None else None
        if deadline_ms is not None and not share.is_awaiting(deadline_ms):
            now_ms = self.now_ms()
            share.await_deadline(deadline_ms, now_ms=now_ms, when_due=lambda: self._expire(share))

    def _expire(self, share: ServedShare) -> None:
        """Locks have run out: others may have the records."""
        share.forget_deadline()
        try:
            partition = self._served(share)
        except MillstreamError:  # deleted meanwhile, and the share with it in a moment
            return
        letters = self._follow(share, partition).expire(self.now_ms())
        self._settled(share, partition, letters)

    def _served(self, share: ServedShare) -> ServedPartition:
        return self._topics.with_id(share.key.topic_id).partition(share.key.partition)

    def wake_if_more(self, share: ServedShare, partition: ServedPartition) -> None:
        if share.has_waiting and not share.is_gone and self.has_more(share, partition):
            share.wake_next()

    def has_more(self, share: ServedShare, partition: ServedPartition) -> bool:
        return self.next_read(share, partition, records_max=1, bytes_max=1) is not None

    # --- members ------------------------------------------------------------------------------

    def close_session(self, member: SessionKey) -> None:
        """Others may have what the member still holds."""
        self.sessions.close(member)
        for share in self.of_group(member.group_id):
            if share.records is not None:
                self._give_back(share, member.member_id)

    def _give_back(self, share: ServedShare, member_id: str) -> None:
        try:
            partition = self._served(share)
        except MillstreamError:  # deleted meanwhile, and the share with it in a moment
            return
        records = self._follow(share, partition)
        letters = records.give_back(member_id, now_ms=self.now_ms())
        if letters or records.has_unsaved_change:
            self._settled(share, partition, letters)

    def disconnect(self, connection_id: int) -> None:
        """A session ends with its connection."""
        for member, _ in self.sessions.disconnect(connection_id):
            self.close_session(member)

    # --- offsets ------------------------------------------------------------------------------

    async def set_start(self, group_id: str, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Begin anew at these; returns when that is durable. For a group without members.

        -1: as if it had never been there, where its `share.auto.offset.reset` says.
        """
        forgotten = [place for place, offset in offsets.items() if offset == NO_START_OFFSET]
        shares = [self.find(group_id, place) for place in forgotten]
        await self._forget([share for share in shares if share is not None])
        stores = [
            self._store.store(self._begin_at(SharePartitionKey(group_id, *place), offset))
            for place, offset in offsets.items()
            if offset != NO_START_OFFSET
        ]
        await asyncio.gather(*(asyncio.shield(stored) for stored in stores))

    def _begin_at(self, key: SharePartitionKey, offset: int) -> ServedShare:
        before = self.find(key.group_id, TopicIdPartition(key.topic_id, key.partition))
        stored = NEW_SHARE if before is None else before.stored_anew()
        if before is not None:
            before.close()
        share = self._add(key, stored)
        share.start_at(offset, self._configs.share_terms_of(key.group_id))
        return share

    async def forget(self, group_id: str, topic_ids: Iterable[bytes] | None) -> None:
        """Forget what the group has done in these topics, or in all; returns when it is durable."""
        wanted = None if topic_ids is None else frozenset(topic_ids)
        await self._forget(
            [
                share
                for share in self.of_group(group_id)
                if wanted is None or share.key.topic_id in wanted
            ]
        )

    async def forget_deleted_topics(self) -> None:
        known = frozenset(topic.id for topic in self._topics)
        await self._forget([share for share in self if share.key.topic_id not in known])

    async def _forget(self, shares: Sequence[ServedShare]) -> None:
        if not shares:
            return
        ends = [share.journal.end() for share in shares]
        removed = self._log.put_deletion(ends, now_ms=self._wall_ms())  # raises before any change
        for share in shares:
            share.close()
            of_group = self._shares[share.key.group_id]
            del of_group[share.place]
            if not of_group:
                del self._shares[share.key.group_id]
        await removed

    def rewrite_if_worth_it(self) -> None:
        self._store.rewrite_if_worth_it(self)

    @property
    def is_burying(self) -> bool:
        """Whether dead letters are on their way."""
        return bool(self._burials)

    def stop(self) -> None:
        """No lock runs out any more, and connections that end give nothing back: whatever is held
        now is nobody's after the start, as after a crash."""
        self._store.close()
        for share in self:
            share.forget_deadline()


def _hear(burial: "asyncio.Task[None]") -> None:
    """Nobody may wait for it, as when a lock ran out; what failed was said where it failed."""
    if not burial.cancelled():
        burial.exception()
